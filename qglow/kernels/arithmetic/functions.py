"""Functions of one variable as vector code: their scalar meaning, or the target's own instruction."""

from __future__ import annotations

from qglow.instructions.ops.functions import Function
from qglow.kernels.arithmetic.half import emit_through_float16
from qglow.kernels.arithmetic.scalar import emit_scalar
from qglow.kernels.emit.builder import Value
from qglow.kernels.emit.emitter import Emitter
from qglow.numerics.scalar.elementary import RoundTo


def emit_function(e: Emitter, operation: Function, x: Value) -> Value:
    """Emit a function of a float vector, by an instruction of the target only if it gives the same bits."""
    if isinstance(operation, RoundTo) and operation.element == "float16" and e.target.converts_half:
        return emit_through_float16(e, x)
    return emit_scalar(e, operation.real, x)

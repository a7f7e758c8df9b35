"""Conversion of float16 and bfloat16 as vector code: by instructions, or as in numerics.scalar.half.

Some targets have instructions that convert float16. Elsewhere LLVM would call a function of its own runtime
library, but compiled code is linked to no library: there, and for bfloat16, integer operations convert.
"""

from __future__ import annotations

from llvmlite import ir

from qglow.core.types import ElementType
from qglow.kernels.arithmetic.scalar import VectorAlgebra
from qglow.kernels.emit.builder import F32, I16, I32, Value, vec
from qglow.kernels.emit.emitter import Emitter
from qglow.numerics.scalar.algebra import Int, Real
from qglow.numerics.scalar.half import narrowed, widened_bfloat16, widened_float16


def emit_through_float16(e: Emitter, x: Value) -> Value:
    """Round float32 `x` to the nearest float16 and back, on targets that convert it by instructions."""
    return e.b.fpext(e.b.fptrunc(x, vec(ir.HalfType(), x.type.count)), x.type)


def emit_widened(e: Emitter, stored: Value, element: ElementType) -> Value:
    """Widen the 16 bits of floats to float32, exactly, by integer operations."""
    lanes = stored.type.count
    wide = Int(VectorAlgebra(e, vec(F32, lanes)), e.b.zext(stored, vec(I32, lanes)))
    return (widened_bfloat16(wide) if element is ElementType.BFLOAT16 else widened_float16(wide)).value


def emit_narrowed(e: Emitter, x: Value, element: ElementType) -> Value:
    """Round float32 `x` to the 16 bits of the nearest float of this type."""
    bits = narrowed(Real(VectorAlgebra(e, x.type), x), element)
    return e.b.trunc(bits.value, vec(I16, x.type.count))


def load_widened(e: Emitter, pointer: Value, element: ElementType, lanes: int, align: int = 0) -> Value:
    """Load `lanes` 16-bit floats and widen them to float32 (exact).

    align: bytes to which they are aligned; 0 for those of the vector.
    """
    stored = e.load(pointer, vec(I16, lanes), align=align or 2 * lanes)
    kind = vec(F32, lanes)
    if element is ElementType.FLOAT16 and e.target.converts_half:
        return e.b.fpext(e.b.bitcast(stored, vec(ir.HalfType(), lanes)), kind)
    return emit_widened(e, stored, element)

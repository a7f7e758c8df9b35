"""Bounds of integer results, from scales and zero points.

They decide which code is emitted, also where that code reads scales and zero points at run time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from qglow.core.types import Quantization, TensorType
from qglow.instructions.operation import Operation
from qglow.instructions.ops.elementwise import (
    Affine,
    ElementAdd,
    ElementDiv,
    ElementMul,
    ElementPower,
    ElementSub,
    PRelu,
)
from qglow.instructions.ops.quantize import Dequantize, Quantize, Requantize, Rescale
from qglow.kernels.arithmetic.requantize import IntegerRange, fits_rounding, integer_range, steps_limit
from qglow.kernels.emit.operand import Memory
from qglow.numerics.requantize import multiplier, ratio


def result_range(operation: Operation, dest: Memory) -> IntegerRange:
    """Zero point and bounds of an integer result: the operation's bounds, or those of the type of `dest`."""
    low, high = getattr(operation, "q_lo", None), getattr(operation, "q_hi", None)
    return integer_range(dest.type, dest.bias, low, high, dest.zero_point)


def largest_result(operation: Operation, memories: Mapping[str, Memory]) -> float:
    """Magnitude, in units of the scale of `dest`, that no result exceeds before the clamp.

    Infinite where it is not known: for float operands, and for operations other than those below.
    """
    if not all(memory.type.is_quantized for memory in memories.values()):
        return math.inf
    dest = memories["dest"].type
    if isinstance(operation, ElementMul):
        lhs, rhs = (_known(memories[name].type) for name in ("lhs", "rhs"))
        factor = float(multiplier(lhs.scale, rhs.scale, _known(dest).scale))
        return steps_limit(lhs, 1.0) * steps_limit(rhs, factor)
    if isinstance(operation, ElementAdd | ElementSub | Rescale):
        return sum(rescaled_limit(m.type, dest) for name, m in memories.items() if name != "dest")
    return math.inf


def rescaled_limit(kind: TensorType, dest: TensorType) -> float:
    """Magnitude, in units of the scale of `dest`, that no element of an integer operand exceeds."""
    known = _known(kind)
    return steps_limit(known, float(ratio(known.scale, _known(dest).scale)))


def _known(kind: TensorType) -> Quantization:
    assert kind.quantization is not None
    return kind.quantization


READING_PARAMETERS: tuple[type[Operation], ...] = (
    ElementAdd,
    ElementSub,
    ElementMul,
    ElementDiv,
    ElementPower,
    PRelu,
    Affine,
    Quantize,
    Dequantize,
    Rescale,
    Requantize,
)
"""Operations whose code may read scales and zero points at run time."""


def decided_by_parameters(operation: Operation, memories: Mapping[str, Memory]) -> tuple[object, ...]:
    """Facts from scales and zero points that the code of these operations depends on at compile time.

    They are whether rounding needs no float clamp, and whether the bounds hold the zero point. Where both are
    equal, one code that reads its parameters at run time serves all of them.
    """
    holds_zero = (
        not memories["dest"].type.is_quantized or result_range(operation, memories["dest"]).holds_zero
    )
    return fits_rounding(largest_result(operation, memories)), holds_zero

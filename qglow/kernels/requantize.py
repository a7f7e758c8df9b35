"""The ends of integer kernels: rules 1, 2, 5 and 6 of the numeric contract as vector code.

int8 results are bytes with the activation bias added; zero points and bounds are given likewise. int16
results are signed, without a bias.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from qglow.core.types import Quantization, TensorType
from qglow.kernels.builder import F32, I8, I16, I32, Emitter, Value, scalar, suffix, vec
from qglow.numerics.requantize import ROUNDING_LIMIT

__all__ = [
    "ROUNDING_LIMIT",
    "IntegerRange",
    "integer_range",
    "clamp_float",
    "emit_affine_int8",
    "emit_dequantize",
    "emit_quantize",
    "emit_requantize",
    "emit_steps",
    "round_to_integers",
    "widen_centred",
]


@dataclass(frozen=True, slots=True)
class IntegerRange:
    """Zero point and bounds of a result, all with the activation bias added; `element` is i8 or i16."""

    zero_point: int
    low: int = 0
    high: int = 255
    element: Any = I8


def integer_range(
    kind: TensorType, bias: int, q_lo: int | None = None, q_hi: int | None = None
) -> IntegerRange:
    """The biased zero point and bounds of an activation type; the bounds are those of the type if None."""
    known = _quantization(kind)
    low, high = known.smallest if q_lo is None else q_lo, known.largest if q_hi is None else q_hi
    element = I16 if known.is_wide else I8
    return IntegerRange(known.zero_point + bias, low + bias, high + bias, element)


def _quantization(kind: TensorType) -> Quantization:
    if kind.quantization is None:
        raise ValueError(f"{kind} has no scale")
    return kind.quantization


def clamp_float(e: Emitter, value: Value, low: float, high: float) -> Value:
    """`lo > x ? lo : x`, then `hi < y ? hi : y`; NaN passes. Infinite bounds cost nothing."""
    kind = value.type
    if low != float("-inf"):
        bound = scalar(kind, low)
        value = e.b.select(e.b.fcmp_ordered(">", bound, value), bound, value)
    if high != float("inf"):
        bound = scalar(kind, high)
        value = e.b.select(e.b.fcmp_ordered("<", bound, value), bound, value)
    return value


def round_to_integers(
    e: Emitter, value: Value, result: IntegerRange, proven: bool, may_be_nan: bool = True
) -> Value:
    """Clamp, round half to even, add the zero point: float32 steps of the result to its integers.

    `proven` says that no magnitude reaches 2^30: then clamping is done on integers, which is
    cheaper. Otherwise floats are clamped first, and NaN becomes the zero point.
    """
    wide = vec(I32, value.type.count)
    if not proven:
        low, high = result.low - result.zero_point, result.high - result.zero_point
        value = clamp_float(e, value, low, high)
        if may_be_nan:
            zero = scalar(value.type, 0.0)
            value = e.b.select(e.b.fcmp_unordered("uno", value, value), zero, value)
    steps = e.call(f"llvm.lrint.{suffix(wide)}.{suffix(value.type)}", wide, [value])
    if result.zero_point:
        steps = e.b.add(steps, scalar(wide, result.zero_point))
    if proven or not may_be_nan or result.low <= result.zero_point <= result.high:
        # Bounds of an activation may leave out the zero point, which NaN becomes nevertheless.
        steps = e.intrinsic("llvm.smax", steps, scalar(wide, result.low))
        steps = e.intrinsic("llvm.smin", steps, scalar(wide, result.high))
    return e.b.trunc(steps, vec(result.element, wide.count))


def emit_requantize(e: Emitter, acc: Value, multiplier: Value, result: IntegerRange, proven: bool) -> Value:
    """Rule 5: int32 sums times float32 multipliers, to integers. `proven`: max|acc| * m < 2^30."""
    value = e.b.fmul(e.b.sitofp(acc, multiplier.type), multiplier)
    return round_to_integers(e, value, result, proven, may_be_nan=False)


def emit_quantize(e: Emitter, value: Value, scale: float, result: IntegerRange) -> Value:
    """Rule 1: float32 to integers by a true division; NaN becomes the zero point."""
    return round_to_integers(e, e.b.fdiv(value, scalar(value.type, scale)), result, proven=False)


def widen_centred(e: Emitter, q: Value, zero_point: int) -> Value:
    """int32 of bytes minus their (biased) zero point, or of int16."""
    widen = e.b.zext if q.type.element == I8 else e.b.sext
    wide = widen(q, vec(I32, q.type.count))
    return e.b.sub(wide, scalar(wide.type, zero_point)) if zero_point else wide


def emit_steps(e: Emitter, q: Value, zero_point: int, factor: float) -> Value:
    """`float32(q - zp) * factor` of integers: reals for their scale, steps of another type for a ratio."""
    value = e.b.sitofp(widen_centred(e, q, zero_point), vec(F32, q.type.count))
    return e.b.fmul(value, scalar(value.type, factor))


def emit_dequantize(e: Emitter, q: Value, zero_point: int, scale: float) -> Value:
    """Rule 2: integers to float32."""
    return emit_steps(e, q, zero_point, scale)


def emit_affine_int8(
    e: Emitter, q: Value, zero_point: int, factor: Value, shift: Value, result: IntegerRange, proven: bool
) -> Value:
    """Rule 6, BatchNormalization: `float32(q - zp) * r + t` to integers, vectors r and t."""
    value = e.b.sitofp(widen_centred(e, q, zero_point), factor.type)
    value = e.b.fadd(e.b.fmul(value, factor), shift)
    return round_to_integers(e, value, result, proven)


def steps_limit(quantization: Quantization, factor: float) -> float:
    """Largest magnitude that `float32(q - zp) * factor` can have, with room for rounding."""
    zero = quantization.zero_point
    reach = max(zero - quantization.smallest, quantization.largest - zero)
    return reach * abs(float(factor)) * 1.001


def fits_rounding(*limits: Any) -> bool:
    """Whether values whose magnitudes add up to these limits may be rounded without a clamp."""
    return bool(sum(float(limit) for limit in limits) < ROUNDING_LIMIT)

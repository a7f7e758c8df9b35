"""Quantization, dequantization and requantization of the numeric contract as vector code.

int8 values are bytes with the target's activation bias added, and so are their zero points and bounds.
int16 values are signed, without a bias.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from qglow.core.types import Quantization, TensorType
from qglow.kernels.arithmetic.fixed_point import multiply_fixed
from qglow.kernels.arithmetic.quotients import reciprocal, rounded_quotients, saves_divisions
from qglow.kernels.arithmetic.scalar import emit_scalar
from qglow.kernels.arithmetic.soft_float import (
    divide_in_integers,
    is_plain,
    nan_in_integers,
    scale_in_integers,
)
from qglow.kernels.emit.builder import F32, I8, I16, I32, Number, Value, scalar, vec
from qglow.kernels.emit.emitter import Emitter
from qglow.numerics.requantize import ROUNDING_LIMIT
from qglow.numerics.scalar.clamps import clip

__all__ = [
    "ROUNDING_LIMIT",
    "IntegerRange",
    "integer_range",
    "place_steps",
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
    """Zero point and bounds of an integer result, all with the activation bias added.

    `element`: LLVM type of the result, i8 or i16. `holds_zero`: whether the zero point lies within the
    bounds. `fixed_point`: whether sums are brought to its scale by rule 10.
    """

    zero_point: Number
    low: int
    high: int
    element: Any = I8
    holds_zero: bool = True
    fixed_point: bool = False

    @property
    def distances(self) -> tuple[Number, Number]:
        """Bounds less the zero point."""
        return self.low - self.zero_point, self.high - self.zero_point


def integer_range(
    kind: TensorType, bias: int, q_lo: int | None = None, q_hi: int | None = None, zero_point: Number = None
) -> IntegerRange:
    """Zero point and bounds of an activation type, with `bias` added.

    `q_lo`, `q_hi`: bounds without the bias; those of the type if None. `zero_point`: the biased zero point
    as a value in the code, where code reads it at run time; None takes that of the type.
    """
    known = _quantization(kind)
    low, high = known.smallest if q_lo is None else q_lo, known.largest if q_hi is None else q_hi
    element = I16 if known.is_wide else I8
    zero = known.zero_point + bias if zero_point is None else zero_point
    holds_zero = low <= known.zero_point <= high
    return IntegerRange(zero, low + bias, high + bias, element, holds_zero, known.fixed_point)


def _quantization(kind: TensorType) -> Quantization:
    if kind.quantization is None:
        raise ValueError(f"{kind} has no scale")
    return kind.quantization


def clamp_float(e: Emitter, value: Value, low: Number, high: Number) -> Value:
    """Clamp floats to bounds as numerics.scalar.clamps.clip does; NaN stays NaN."""
    return emit_scalar(e, lambda x: clip(x, low, high), value)


def round_to_integers(
    e: Emitter, value: Value, result: IntegerRange, proven: bool, may_be_nan: bool = True
) -> Value:
    """Round float32 values in units of the result's scale half to even, add the zero point and clamp.

    `proven`: no magnitude reaches 2^30. Then rounding to int32 is defined without a clamp before it, and
    integers alone are clamped, which is cheaper. Otherwise floats are clamped first. Where they `may_be_nan`,
    NaN becomes the zero point.
    """
    if not proven:
        value = _within(e, value, result, may_be_nan)
    # Clamping is skipped where NaN has become a zero point outside of the bounds, which it would move. All
    # other values are within the bounds there, as floats were clamped.
    is_clamped = proven or not may_be_nan or result.holds_zero
    return place_steps(e, e.target.round_to_words(e, value), result, is_clamped)


def _within(e: Emitter, value: Value, result: IntegerRange, may_be_nan: bool) -> Value:
    """Clamp floats in units of the result's scale to its bounds; NaN, if there may be any, becomes 0."""
    value = clamp_float(e, value, *result.distances)
    if not may_be_nan:
        return value
    return e.b.select(e.b.fcmp_unordered("uno", value, value), scalar(value.type, 0.0), value)


def place_steps(e: Emitter, steps: Value, result: IntegerRange, is_clamped: bool = True) -> Value:
    """Add the zero point to whole steps of the result's scale, clamp, and narrow to its element type.

    In fixed point steps may be any int32.
    """
    wide = steps.type
    if result.zero_point and result.fixed_point:
        steps = e.intrinsic("llvm.sadd.sat", steps, scalar(wide, result.zero_point))
    elif result.zero_point:
        steps = e.b.add(steps, scalar(wide, result.zero_point))
    if is_clamped:
        steps = e.intrinsic("llvm.smax", steps, scalar(wide, result.low))
        steps = e.intrinsic("llvm.smin", steps, scalar(wide, result.high))
    return e.b.trunc(steps, vec(result.element, wide.count))


def place_bounded(e: Emitter, steps: Value, is_nan: Value, result: IntegerRange) -> Value:
    """Clamp whole steps, and give the zero point for NaN, also where that is out of bounds."""
    low, high = result.distances
    bounded = e.intrinsic("llvm.smax", steps, scalar(steps.type, low))
    bounded = e.intrinsic("llvm.smin", bounded, scalar(steps.type, high))
    bounded = e.b.select(is_nan, scalar(steps.type, 0), bounded)
    return place_steps(e, bounded, result, is_clamped=False)


def emit_requantize(e: Emitter, acc: Value, multiplier: Value, result: IntegerRange, proven: bool) -> Value:
    """Requantize int32 sums by float32 multipliers (rules 5 and 10). `proven`: max|acc| * m < 2^30."""
    if result.fixed_point:
        return place_steps(e, multiply_fixed(e, acc, multiplier, proven), result)
    # Without a float unit a product too large for int32 keeps its sign, which is all that the clamp needs.
    if proven or not e.target.has_float_unit:
        return place_steps(e, e.target.rescale_to_words(e, acc, multiplier), result)
    value = e.b.fmul(e.b.sitofp(acc, multiplier.type), multiplier)
    return round_to_integers(e, value, result, proven, may_be_nan=False)


def emit_quantize(
    e: Emitter, value: Value, scale: Number, result: IntegerRange, beside_others: bool = False
) -> Value:
    """Quantize float32 to the bits of a true division (rule 1); NaN becomes the zero point.

    beside_others: whether much other arithmetic surrounds it, beside which a division takes no time.
    """
    if not e.target.has_float_unit and is_plain(scale):
        steps = divide_in_integers(e, value, scale)
        return place_bounded(e, steps, nan_in_integers(e, value), result)
    multiplies = result.element == I8 and saves_divisions(e) and not beside_others
    inverse = reciprocal(e, scale, value.type) if multiplies else None
    return quantize_by(e, value, scalar(value.type, scale), inverse, result)


def quantize_by(e: Emitter, value: Value, scale: Value, inverse: Value | None, result: IntegerRange) -> Value:
    """Quantize float32 by scales in lanes; inverse: their `reciprocal`, None where it is not to be used."""

    def divided() -> Value:
        # A product with the reciprocal rounds twice and may differ in the last bit, which decides ties.
        quotient = _within(e, e.b.fdiv(value, scale), result, may_be_nan=True)
        return e.target.round_to_words(e, quotient)

    if inverse is None:
        return place_steps(e, divided(), result, result.holds_zero)
    steps = rounded_quotients(e, value, inverse, result.distances, divided)
    return place_steps(e, steps, result, result.holds_zero)


def widen_centred(e: Emitter, q: Value, zero_point: Number) -> Value:
    """Widen int8 or int16 activations to int32 and subtract their zero point; both as memory holds them."""
    unsigned = q.type.element == I8 and e.target.activation_bias
    widen = e.b.zext if unsigned else e.b.sext
    wide = widen(q, vec(I32, q.type.count))
    return e.b.sub(wide, scalar(wide.type, zero_point)) if zero_point else wide


def emit_steps(e: Emitter, q: Value, zero_point: Number, factor: Number) -> Value:
    """Compute `float32(q - zp) * factor` of integer activations.

    With their scale as `factor` that is their real value; with the ratio of their scale to another one it is
    the value in units of the other scale.
    """
    value = e.b.sitofp(widen_centred(e, q, zero_point), vec(F32, q.type.count))
    return e.b.fmul(value, scalar(value.type, factor))


def emit_dequantize(e: Emitter, q: Value, zero_point: Number, scale: Number) -> Value:
    """Dequantize: `float32(q - zp) * scale`."""
    if not e.target.has_float_unit and is_plain(scale) and q.type.element == I8:
        return scale_in_integers(e, widen_centred(e, q, zero_point), scale)
    return emit_steps(e, q, zero_point, scale)


def emit_affine_int8(
    e: Emitter, q: Value, zero_point: Number, factor: Value, shift: Value, result: IntegerRange, proven: bool
) -> Value:
    """Emit BatchNormalization of integers: `float32(q - zp) * factor + shift`, rounded to integers.

    `factor` and `shift` are float32 vectors, in units of the result's scale. `proven`: as in
    `round_to_integers`.
    """
    value = e.b.sitofp(widen_centred(e, q, zero_point), factor.type)
    value = e.b.fadd(e.b.fmul(value, factor), shift)
    return round_to_integers(e, value, result, proven)


def steps_limit(quantization: Quantization, factor: float) -> float:
    """Largest magnitude of `float32(q - zp) * factor` over all q of the type, 0.1 % added for rounding."""
    zero = quantization.zero_point
    reach = max(zero - quantization.smallest, quantization.largest - zero)
    return reach * abs(float(factor)) * 1.001


def fits_rounding(*limits: Any) -> bool:
    """Whether sums of values within these magnitudes may be rounded to int32 without a clamp before it."""
    return bool(sum(float(limit) for limit in limits) < ROUNDING_LIMIT)

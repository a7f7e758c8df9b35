"""The ends of int8 kernels: rules 1, 2, 5 and 6 of the numeric contract as vector code.

Results are bytes with the activation bias added; zero points and bounds are given likewise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from qglow.core.types import Quantization, TensorType
from qglow.kernels.builder import F32, I8, I32, Emitter, Value, scalar, suffix, vec
from qglow.numerics.requantize import ROUNDING_LIMIT

__all__ = [
    "ROUNDING_LIMIT",
    "ByteRange",
    "byte_range",
    "clamp_float",
    "emit_affine_int8",
    "emit_dequantize",
    "emit_quantize",
    "emit_requantize",
    "emit_steps",
    "round_to_bytes",
    "widen_centred",
]


@dataclass(frozen=True, slots=True)
class ByteRange:
    """Zero point and bounds of a result, all with the activation bias added."""

    zero_point: int
    low: int = 0
    high: int = 255


def byte_range(kind: TensorType, bias: int, q_lo: int = -128, q_hi: int = 127) -> ByteRange:
    """The biased zero point and bounds of an int8 activation type."""
    return ByteRange(_quantization(kind).zero_point + bias, q_lo + bias, q_hi + bias)


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


def round_to_bytes(
    e: Emitter, value: Value, result: ByteRange, proven: bool, may_be_nan: bool = True
) -> Value:
    """Clamp, round half to even, add the zero point: float32 steps of the result to bytes.

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
    return e.b.trunc(steps, vec(I8, wide.count))


def emit_requantize(e: Emitter, acc: Value, multiplier: Value, result: ByteRange, proven: bool) -> Value:
    """Rule 5: int32 sums times float32 multipliers, to bytes. `proven`: max|acc| * m < 2^30."""
    value = e.b.fmul(e.b.sitofp(acc, multiplier.type), multiplier)
    return round_to_bytes(e, value, result, proven, may_be_nan=False)


def emit_quantize(e: Emitter, value: Value, scale: float, result: ByteRange) -> Value:
    """Rule 1: float32 to bytes by a true division; NaN becomes the zero point."""
    return round_to_bytes(e, e.b.fdiv(value, scalar(value.type, scale)), result, proven=False)


def widen_centred(e: Emitter, q: Value, zero_point: int) -> Value:
    """int32 of bytes minus their (biased) zero point."""
    wide = e.b.zext(q, vec(I32, q.type.count))
    return e.b.sub(wide, scalar(wide.type, zero_point)) if zero_point else wide


def emit_steps(e: Emitter, q: Value, zero_point: int, factor: float) -> Value:
    """`float32(q - zp) * factor` of bytes: reals for their scale, steps of another type for a ratio."""
    value = e.b.sitofp(widen_centred(e, q, zero_point), vec(F32, q.type.count))
    return e.b.fmul(value, scalar(value.type, factor))


def emit_dequantize(e: Emitter, q: Value, zero_point: int, scale: float) -> Value:
    """Rule 2: bytes to float32."""
    return emit_steps(e, q, zero_point, scale)


def emit_affine_int8(
    e: Emitter, q: Value, zero_point: int, factor: Value, shift: Value, result: ByteRange, proven: bool
) -> Value:
    """Rule 6, BatchNormalization: `float32(q - zp) * r + t` to bytes, vectors r and t."""
    value = e.b.sitofp(widen_centred(e, q, zero_point), factor.type)
    value = e.b.fadd(e.b.fmul(value, factor), shift)
    return round_to_bytes(e, value, result, proven)


def steps_limit(zero_point: int, factor: float) -> float:
    """Largest magnitude that `float32(q - zp) * factor` of a byte can have, with room for rounding."""
    return max(zero_point, 255 - zero_point) * abs(float(factor)) * 1.001


def fits_rounding(*limits: Any) -> bool:
    """Whether values whose magnitudes add up to these limits may be rounded without a clamp."""
    return bool(sum(float(limit) for limit in limits) < ROUNDING_LIMIT)

"""Requantization in fixed point, for processors without a float unit (rule 10 of the numeric contract).

A multiplier m is `q * 2^(e - 31)` with an integer q of 31 bits. A product with it is rounded twice, as
gemmlowp and CMSIS-NN do: `SaturatingRoundingDoublingHighMul` keeps the upper half of the product with q, ties
upwards, and `RoundingDivideByPOT` divides by a power of two, ties away from zero.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from qglow.core.types import Array, Quantization

FRACTION = 31
"""Fraction bits of a multiplier's digits, which lie in [2^30, 2^31)."""
_LEAST, _MOST = -(2**31), 2**31 - 1
_SUM_BITS = {False: 20, True: 15}
"""Bits by which operands of a sum are moved up: int8, and where one is int16."""


def split(multiplier: Any) -> tuple[Array, Array]:
    """Digits and exponent of positive float32 multipliers, int64: `m = digits * 2^(exponent - 31)`, exactly.

    Digits are 0 where no product reaches one half: where m is below 2^-32.
    """
    fraction, exponent = np.frexp(np.asarray(multiplier, np.float32))
    digits = np.ldexp(fraction.astype(np.float64), FRACTION).astype(np.int64)
    exponent = exponent.astype(np.int64)
    return np.where(exponent < -FRACTION, 0, digits), exponent


def multiply(total: Array, multiplier: Any) -> Array:
    """Products of int32 with positive float32 multipliers, rounded twice; int64 within int32.

    Multipliers of 1 and more first move sums up, saturating at the ends of int32.
    """
    digits, exponent = split(multiplier)
    up = np.clip(exponent, 0, FRACTION)
    moved = np.clip(np.asarray(total).astype(np.int64) << up, _LEAST, _MOST)
    high = (moved * digits + (1 << (FRACTION - 1))) >> FRACTION
    return _divided(high, np.clip(-exponent, 0, FRACTION))


def _divided(value: Array, places: Array) -> Array:
    """Divide by 2^places, rounding ties away from zero."""
    mask = (np.int64(1) << places) - 1
    threshold = (mask >> 1) + (value < 0)
    return np.asarray((value >> places) + ((value & mask) > threshold))


def requantize_fixed(total: Array, multiplier: Any, target: Quantization, low: int, high: int) -> Array:
    """`clamp(total * m + zp)` of int32 in the type of `target`, within bounds."""
    steps = multiply(total, multiplier) + target.zero_point
    return np.asarray(np.clip(steps, low, high), target.element.dtype)


def sum_bits(lhs: Quantization, rhs: Quantization) -> int:
    """Bits by which the operands of a sum are moved up before they are brought to a common scale."""
    return _SUM_BITS[lhs.is_wide or rhs.is_wide]


def sum_multipliers(lhs: float, rhs: float, dest: float, bits: int) -> tuple[float, float, float]:
    """Multipliers of both operands of a sum, at most one half, and of the sum of what they give.

    In float32: `s / t` with t twice the larger scale, and `t / s_y * 2^-bits`. Raises ValueError where one is
    not finite.
    """
    with np.errstate(all="ignore"):
        twice = np.float32(2.0) * np.float32(max(lhs, rhs))
        last = np.float32(np.float32(twice / np.float32(dest)) * np.float32(2.0**-bits))
        found = np.float32(lhs) / twice, np.float32(rhs) / twice, last
    if not (np.isfinite(twice) and np.isfinite(last)):
        raise ValueError(f"the multipliers of a sum of scales {lhs} and {rhs} overflow float32 for {dest}")
    return float(found[0]), float(found[1]), float(found[2])


def add_fixed(
    lhs: Array, lhs_quant: Quantization, rhs: Array, rhs_quant: Quantization, target: Quantization, sign: int
) -> Array:
    """Sum (sign 1) or difference (-1) of integers in steps of `target`, without its zero point; int64."""
    bits = sum_bits(lhs_quant, rhs_quant)
    of_lhs, of_rhs, of_sum = sum_multipliers(lhs_quant.scale, rhs_quant.scale, target.scale, bits)
    left = multiply((lhs.astype(np.int64) - lhs_quant.zero_point) << bits, of_lhs)
    right = multiply((rhs.astype(np.int64) - rhs_quant.zero_point) << bits, of_rhs)
    return multiply(left + sign * right, of_sum)

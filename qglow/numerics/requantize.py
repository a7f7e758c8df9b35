"""Requantization of int32 sums to int8 (rules 3, 5 and 6 of the numeric contract)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from qglow.core.types import Array, Quantization
from qglow.numerics.fixed_point import requantize_fixed
from qglow.numerics.quantize import INT8_MAX, INT8_MIN, quantize_by, saturate_to

INT32_MAX = 2**31 - 1
ROUNDING_LIMIT = 2.0**30
"""Below this magnitude a float32 product may be rounded to int32 without a float clamp."""
_CACHED = 1 << 15
"""Elements that are summed together."""
EXACT_SUMMANDS = 2**24 // 128
"""So many int8 add up to an integer that float32 holds, and so does every part of their sum."""


def multiplier(scale_x: float, scales_w: Any, scale_y: float) -> Array:
    """`(s_x * s_w) / s_y` in float32, left to right; the shape of `scales_w`.

    Raises ValueError when a result is not finite: such scales cannot go together.
    """
    with np.errstate(all="ignore"):
        product = np.float32(scale_x) * np.asarray(scales_w, np.float32)
        result = np.asarray(product / np.float32(scale_y), np.float32)
    return finite(result, f"({scale_x} * s_w) / {scale_y}")


def ratio(scale_x: float, scale_y: float) -> np.float32:
    """`s_x / s_y` in float32. Raises ValueError when it is not finite."""
    with np.errstate(all="ignore"):
        result = np.float32(scale_x) / np.float32(scale_y)
    return np.float32(finite(np.asarray(result), f"{scale_x} / {scale_y}"))


def finite(values: Array, what: str) -> Array:
    """The multipliers as they are. Raises ValueError when one overflowed."""
    if not np.all(np.isfinite(values)):
        raise ValueError(f"the multiplier {what} overflows float32")
    return values


def requantize(
    acc: Array, multiplier: Any, target: Quantization, lo: int | None = None, hi: int | None = None
) -> Array:
    """`clamp(round_half_even(float32(acc) * m) + zp)` in the type of `target`, within bounds.

    `acc` holds integers, which are rounded to float32 once; `multiplier` is float32 and broadcasts
    against it. The clamp is done in float: the same result, and nothing to prove about the product. A target
    in fixed point takes rule 10 instead, for integers within int32.
    """
    if target.fixed_point:
        low = target.smallest if lo is None else lo
        return requantize_fixed(acc, multiplier, target, low, target.largest if hi is None else hi)
    with np.errstate(over="ignore", under="ignore"):
        product = np.asarray(acc).astype(np.float32) * np.asarray(multiplier, np.float32)
    return saturate_to(product, target, lo, hi)


def quantized_bounds(lo_real: float, hi_real: float, quantization: Quantization) -> tuple[int, int]:
    """The integer bounds that stand for a fused Relu or Clip to [lo_real, hi_real]."""
    lo, hi = quantize_by(np.array([lo_real, hi_real], np.float32), quantization)
    return int(lo), int(hi)


def rescale(
    q: Array, source: Quantization, target: Quantization, lo: int | None = None, hi: int | None = None
) -> Array:
    """Integers of `source` as integers of `target`: `float32(q - zp_x) * (s_x / s_y)`."""
    steps = np.asarray(q).astype(np.int32) - source.zero_point
    return requantize(steps, ratio(source.scale, target.scale), target, lo, hi)


def accumulator_extremes(
    w: Array, bias: Array | None, zero_x: int, zero_w: Any = 0, axis: int = 0
) -> tuple[Array, Array]:
    """Smallest and largest sum of every output channel over all int8 inputs, exactly (int64).

    `w` is int8 with output channels along `axis`, `zero_w` a scalar or one value a channel,
    `bias` int32 of one value a channel. Padding contributes 0, which lies between the two.
    """
    rows = np.moveaxis(np.asarray(w), axis, 0)
    rows = rows.reshape(rows.shape[0], -1)
    if rows.dtype == np.int8 and not np.any(zero_w):
        positive, negative = _signed_sums(rows)
    else:
        rows = rows.astype(np.int64) - np.asarray(zero_w, np.int64).reshape(-1, 1)
        positive, negative = np.maximum(rows, 0).sum(axis=1), np.minimum(rows, 0).sum(axis=1)
    up, down = INT8_MAX - zero_x, INT8_MIN - zero_x
    low = positive * down + negative * up
    high = positive * up + negative * down
    if bias is not None:
        low, high = low + bias, high + bias
    return low, high


def _signed_sums(rows: Array) -> tuple[Array, Array]:
    """int64 sums of the positive and of the negative int8 in every row.

    From the sums of values and of magnitudes, which float32 holds exactly for so many columns, in any order.
    """
    total, size = np.zeros(rows.shape[0], np.int64), np.zeros(rows.shape[0], np.int64)
    columns = min(max(rows.shape[1], 1), EXACT_SUMMANDS)
    ones, height = np.ones(columns, np.float32), max(1, _CACHED // columns)
    for start in range(0, rows.shape[1], columns):
        for top in range(0, rows.shape[0], height):
            part = slice(top, top + height)
            values = rows[part, start : start + columns].astype(np.float32)
            weight = ones[: values.shape[1]]
            total[part] += (values @ weight).astype(np.int64)
            size[part] += (np.abs(values, out=values) @ weight).astype(np.int64)
    return (size + total) // 2, (total - size) // 2


def worst_accumulator(w: Array, bias: Array | None, zero_x: int, zero_w: Any = 0, axis: int = 0) -> Array:
    """Largest magnitude that the sum of every output channel can reach (int64)."""
    low, high = accumulator_extremes(w, bias, zero_x, zero_w, axis)
    return np.asarray(np.maximum(np.abs(low), np.abs(high)))


def accumulator_margin(worst: Array) -> float:
    """Number of times that the worst sum fits into int32; below 1 the sum can overflow."""
    largest = int(np.max(worst, initial=0))
    return INT32_MAX / largest if largest else math.inf


def needs_float_clamp(worst: Array, multiplier: Any) -> bool:
    """Whether some `max|acc| * m` may reach 2^30, so that code must clamp before it rounds."""
    product = np.asarray(worst, np.float64) * np.asarray(multiplier, np.float64)
    return bool(np.max(product, initial=0.0) >= ROUNDING_LIMIT)

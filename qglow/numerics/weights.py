"""Scales of weights, and integers for weights and biases (rule 4 of the numeric contract)."""

from __future__ import annotations

from typing import Any

import numpy as np

from qglow.core.types import Array
from qglow.numerics.quantize import along, quantize
from qglow.numerics.requantize import INT32_MAX

WEIGHT_MAX = 127
SMALLEST_WEIGHT_SCALE = 2.0**-100
BIAS_ROOM = 2.0**30
"""A bias may use half of int32, so that the sum beside it has the other half."""
SMALLEST_PRODUCT = 2.0**-125
"""Lower bound of s_x * s_w: twice the smallest normal float32, so that rounding keeps it normal."""
LARGEST_PRODUCT = 2.0**127
CACHED = 1 << 15
"""Elements that are rounded together."""


def largest_weights(w: Array, axis: int) -> Array:
    """float64 `max|w|` of every slice along `axis`."""
    others = tuple(other for other in range(w.ndim) if other != axis % w.ndim)
    low, high = np.min(w, axis=others, initial=0.0), np.max(w, axis=others, initial=0.0)
    return np.asarray(np.maximum(-low, high).astype(np.float64))


def weight_scales(w: Array, bias: Array | None, scale_x: float, axis: int, per_tensor: bool = False) -> Array:
    """float32 scale of every slice of `w` along `axis`, by `scales_of`."""
    return scales_of(largest_weights(np.asarray(w), axis), bias, scale_x, per_tensor)


def scales_of(largest: Array, bias: Array | None, scale_x: float, per_tensor: bool = False) -> Array:
    """float32 scale of every slice of weights, of which these float64 are the largest magnitudes.

    `max(max|w| / 127, |b| / (s_x * 2^30), 2^-100)`, raised where `s_x * s_w` would be
    subnormal; 1 where weights and bias are all zero. `per_tensor` gives every slice the
    largest. Computed in float64. Raises ValueError for weights or biases that are not finite
    or so large that a scale would not be.
    """
    offset = np.zeros_like(largest) if bias is None else np.abs(np.asarray(bias, np.float64))
    if not (np.all(np.isfinite(largest)) and np.all(np.isfinite(offset))):
        raise ValueError("weights and biases must be finite")
    x = float(np.float32(scale_x))
    scales = np.maximum(largest / WEIGHT_MAX, offset / (x * BIAS_ROOM))
    scales = np.maximum(scales, max(SMALLEST_WEIGHT_SCALE, SMALLEST_PRODUCT / x))
    used = (largest > 0.0) | (offset > 0.0)
    if per_tensor and np.any(used):
        scales, used = np.full_like(scales, np.max(scales[used])), np.ones_like(used)
    scales = np.where(used, scales, max(1.0, SMALLEST_PRODUCT / x))
    if np.max(scales, initial=0.0) * max(x, 1.0) > LARGEST_PRODUCT:
        raise ValueError(f"weights or biases are too large for an input of scale {scale_x}")
    return np.asarray(scales.astype(np.float32))


def quantize_weights(w: Array, scales: Any, axis: int) -> Array:
    """int8 weights in [-127, 127], zero point 0: `round_half_even(w / s_w)` as rule 1 has it."""
    w = np.asarray(w)
    scales = np.asarray(scales)
    if not w.size or scales.ndim == 0:
        return quantize(w, scales, 0, lo=-WEIGHT_MAX, hi=WEIGHT_MAX, axis=axis)
    # Some rows at a time: what is between the weights and their integers stays in the cache.
    result = np.empty(w.shape, np.int8)
    rows = max(1, CACHED * w.shape[0] // w.size)
    for start in range(0, w.shape[0], rows):
        part = slice(start, start + rows)
        own = scales[part] if axis % w.ndim == 0 else scales
        result[part] = quantize(w[part], own, 0, lo=-WEIGHT_MAX, hi=WEIGHT_MAX, axis=axis)
    return result


def dequantize_weights(q: Array, scales: Any, axis: int) -> Array:
    """float32 weights that symmetric int8 weights stand for."""
    return np.multiply(q, along(scales, np.ndim(q), axis, np.float32), dtype=np.float32)


def bias_scales(scale_x: float, scales_w: Any) -> Array:
    """`float32(s_x * s_w)`, the scale of an int32 bias and of the sum it belongs to."""
    return np.asarray(np.float32(scale_x) * np.asarray(scales_w, np.float32), np.float32)


def quantize_bias(bias: Array, scale_x: float, scales_w: Any) -> Array:
    """int32 bias at scale `float32(s_x * s_w)`, zero point 0, rounded half to even from float64.

    Raises ValueError when a value does not fit, which the scales of `weight_scales` prevent.
    """
    scales = bias_scales(scale_x, scales_w).astype(np.float64)
    rounded = np.rint(np.asarray(bias, np.float64) / scales)
    if not np.all(np.abs(rounded) <= INT32_MAX):
        raise ValueError("a bias does not fit into int32 at its scale; choose scales with weight_scales")
    return np.asarray(rounded.astype(np.int32))

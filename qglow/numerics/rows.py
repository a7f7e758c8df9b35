"""Scales of rows that are measured while a model runs (rule 11 of the numeric contract)."""

from __future__ import annotations

import numpy as np

from qglow.core.types import Array
from qglow.numerics.quantize import quantize

LARGEST = 127
"""The largest integer that a row is scaled to; the smallest is its negative."""
LEAST_SCALE = 2.0**-100
"""Least scale of a row: that of zeros too."""
INFINITE = 0x7F800000
"""Bits of infinity: those of the absolute value of a NaN are above them."""
NO_NUMBER = 0x7FC00000
"""Bits of the NaN that is the scale of a row with infinities or NaN."""
MAGNITUDE = 0x7FFFFFFF
"""Bits of a float32 that are not its sign."""


def row_scales(x: Array) -> Array:
    """`max(max|x| / 127, 2^-100)` of every row along the last axis, which keeps an extent of 1.

    The bits of |x| are compared as integers. A row with infinities or NaN has a NaN.
    """
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32) & np.uint32(MAGNITUDE)
    top = np.max(bits, axis=-1, keepdims=True, initial=0)
    found = np.maximum(top.view(np.float32) / np.float32(LARGEST), np.float32(LEAST_SCALE))
    broken = np.array(NO_NUMBER, np.uint32).view(np.float32)
    return np.asarray(np.where(top >= INFINITE, broken, found), np.float32)


def rows_by_scales(x: Array, scales: Array) -> Array:
    """int8 `round_half_even(clamp(x / scale, -127, 127))` of rows; zeros where the scale is NaN."""
    with np.errstate(all="ignore"):
        quotients = np.asarray(x, np.float32) / scales
    return quantize(quotients, 1.0, 0, -LARGEST, LARGEST)


def scaled_sums(sums: Array, row_scales: Array, column_scales: Array, addend: Array | None) -> Array:
    """`float32(sum) * (s_r * s_w)` of sums [M, N] by scales [M, 1] and [N], then plus an addend [N]."""
    with np.errstate(all="ignore"):
        factors = np.asarray(row_scales, np.float32) * np.asarray(column_scales, np.float32)
        scaled = np.asarray(sums).astype(np.float32) * factors
        return np.asarray(scaled if addend is None else scaled + addend, np.float32)

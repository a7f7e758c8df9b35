"""Histograms whose bins are the top 16 bits of the float32 pattern.

Sign, exponent and 7 bits of mantissa: 0.8 % of the value everywhere, no range to know in
advance, and merging is adding.
"""

from __future__ import annotations

import math

import numpy as np

from qglow.core.types import Array

BIN_COUNT = 65536
NAN_BIN = 0x7FC0
POSITIVE_INFINITY_BIN = 0x7F80
NEGATIVE_INFINITY_BIN = 0xFF80
POSITIVE_ZERO_BIN = 0x0000
NEGATIVE_ZERO_BIN = 0x8000
SIGN = 0x8000


def bin_index(x: Array) -> Array:
    """uint16 bin of every float32 element: its pattern shifted right by 16.

    Every NaN is in `NAN_BIN`: its sign and payload differ between processors, and a payload
    of low bits only would fall into the bin of an infinity.
    """
    x = np.asarray(x, np.float32)
    bins = (x.view(np.uint32) >> np.uint32(16)).astype(np.uint16)
    return np.asarray(np.where(np.isnan(x), np.uint16(NAN_BIN), bins))


def histogram(x: Array) -> Array:
    """int64[65536]: how many elements each bin holds."""
    return np.bincount(bin_index(x).reshape(-1), minlength=BIN_COUNT).astype(np.int64)


def bin_value_range(index: int) -> tuple[float, float]:
    """Smallest and largest value of a bin; (nan, nan) for a bin of NaN, inf twice for one of inf."""
    if is_nan_bin(index):
        return math.nan, math.nan
    if is_infinity_bin(index):
        value = -math.inf if index & SIGN else math.inf
        return value, value
    ends = np.array([index << 16, (index << 16) | 0xFFFF], np.uint32).view(np.float32)
    low, high = sorted(float(v) for v in ends)
    return low, high


def is_nan_bin(index: int) -> bool:
    """Whether the bin holds patterns of NaN (only `NAN_BIN` is ever counted)."""
    return (index & ~SIGN) > POSITIVE_INFINITY_BIN


def is_infinity_bin(index: int) -> bool:
    """Whether the bin holds one of the infinities."""
    return (index & ~SIGN) == POSITIVE_INFINITY_BIN


def is_zero_bin(index: int) -> bool:
    """Whether the bin holds a zero (and subnormals below 2^-133 of its sign)."""
    return (index & ~SIGN) == POSITIVE_ZERO_BIN


def finite_range(x: Array) -> tuple[float, float]:
    """Smallest and largest element, NaN and infinities ignored; (inf, -inf) if there is none."""
    finite = np.asarray(x, np.float32)
    finite = finite[np.isfinite(finite)]
    if not finite.size:
        return math.inf, -math.inf
    return float(finite.min()), float(finite.max())

"""int8 functions of one variable as tables of 256 entries (rule 7 of the numeric contract)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from qglow.core.types import Array, Quantization
from qglow.numerics.quantize import INT8_MAX, INT8_MIN

TABLE_SIZE = 256


def build_table(function: Callable[[Array], Array], x_quant: Quantization, y_quant: Quantization) -> Array:
    """int8[256]: the result for every int8 input q at index q + 128.

    Input, function, division by the scale, clamp and rounding (half to even) are float64, so
    that an entry is off by at most half a step. Where the function is NaN the entry is the
    zero point.
    """
    q = np.arange(INT8_MIN, INT8_MAX + 1, dtype=np.float64)
    with np.errstate(all="ignore"):
        y = np.asarray(function((q - x_quant.zero_point) * x_quant.scale), np.float64) / y_quant.scale
    zero = y_quant.zero_point
    steps = np.rint(np.clip(y, INT8_MIN - zero, INT8_MAX - zero))
    return np.asarray((np.where(np.isnan(steps), 0.0, steps) + zero).astype(np.int8))


def apply_table(q: Array, table: Array) -> Array:
    """The table's entry for every int8 element."""
    return np.asarray(table[np.asarray(q).astype(np.int16) - INT8_MIN])

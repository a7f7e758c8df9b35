"""int16 activations times int8 weights: sums of the two bytes of every activation (rule 3).

`x = 256 * high + low` with high in -128 ... 127 and low in 0 ... 255, so the sum of `x * w` is
`256 * (sum of high * w) + (sum of low * w)`, bias with the low part. Both are sums of bytes, which int32
holds as it does those of int8 activations; put together they are exact in int64 and in float64.
As int8 values, high has scale `256 * s` and zero point 0, low scale `s` and zero point -128: their reals
add up to that of x.
"""

from __future__ import annotations

import numpy as np

from qglow.core.types import Array, Quantization
from qglow.numerics.requantize import worst_accumulator

PLACE = 256
"""Worth of a unit of the high byte."""
LOW_ZERO = -128
"""The zero point of low bytes as int8."""


def high_byte(x: Array) -> Array:
    """int8 of int16: `floor(x / 256)`."""
    return np.asarray(np.asarray(x, np.int16) >> 8).astype(np.int8)


def low_byte(x: Array) -> Array:
    """int8 of int16: what `high_byte` leaves, 0 ... 255, stored 128 less."""
    return np.asarray((np.asarray(x, np.int16) & 0xFF) + LOW_ZERO).astype(np.int8)


def high_parameters(quantization: Quantization) -> Quantization:
    """int8 parameters of the high bytes of int16 values with these."""
    return Quantization.per_tensor(PLACE * quantization.scale, 0)


def low_parameters(quantization: Quantization) -> Quantization:
    """int8 parameters of the low bytes of int16 values with these."""
    return Quantization.per_tensor(quantization.scale, LOW_ZERO)


def join(low: Array, high: Array) -> Array:
    """int64 `256 * high + low` of int32 sums."""
    return np.asarray(high, np.int64) * PLACE + np.asarray(low, np.int64)


def worst_sum(w: Array, bias: Array | None, x: Quantization, axis: int = 0) -> Array:
    """Largest magnitude that a sum kept in int32 can reach (int64), of every output channel.

    As `worst_accumulator`; for int16 that of either sum of bytes.
    """
    if not x.is_wide:
        return worst_accumulator(w, bias, x.zero_point, axis=axis)
    low = worst_accumulator(w, bias, LOW_ZERO, axis=axis)
    return np.maximum(low, worst_accumulator(w, None, 0, axis=axis))

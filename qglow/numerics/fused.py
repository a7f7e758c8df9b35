"""Float32 fused multiply-add, and the chains of it that compiled sums of products are (rule 9).

Slow and exact: the reference for compiled float kernels on processors with FMA. `conv_float`
and `gemm_float` compute the same sums in numpy's order, fast.
"""

from __future__ import annotations

import numpy as np

from qglow.core.types import Array
from qglow.numerics.conv import output_shape
from qglow.numerics.windows import Pads, Pair, pad_for_windows, taps


def fused_multiply_add(a: Array, b: Array, c: Array) -> Array:
    """float32 `a * b + c`, rounded once.

    The float64 product is exact and the float64 sum is rounded to odd, after which the
    rounding to float32 is as if it were the only one (Boldo and Melquiond, 2008).
    """
    with np.errstate(all="ignore"):
        product = np.asarray(a, np.float32).astype(np.float64) * np.asarray(b, np.float32)
        addend = np.asarray(c, np.float32).astype(np.float64)
        total = np.asarray(product + addend)
        other = total - product
        error = (product - (total - other)) + (addend - other)
        even = (total.view(np.int64) & 1) == 0
        towards = np.where(error > 0.0, np.inf, -np.inf)
        inexact = np.isfinite(total) & (error != 0.0)
        odd = np.where(inexact & even, np.nextafter(total, towards), total)
        return np.asarray(odd.astype(np.float32))


def gemm_chain(x: Array, w: Array, bias: Array | None = None) -> Array:
    """float32 `x @ w + bias` (M x K, K x N): from the bias, one fused multiply-add for every k."""
    x, w = np.asarray(x, np.float32), np.asarray(w, np.float32)
    result = _start(bias, (x.shape[0], w.shape[1]), 1)
    for k in range(x.shape[1]):
        result = fused_multiply_add(x[:, k, None], w[k], result)
    return result


def conv_chain(
    x: Array,
    w: Array,
    bias: Array | None = None,
    strides: Pair = (1, 1),
    pads: Pads = (0, 0, 0, 0),
    dilations: Pair = (1, 1),
    group: int = 1,
) -> Array:
    """float32 convolution: from the bias, one fused multiply-add for every (kh, kw, c) ascending.

    Padding takes part as zeros, which changes no bit but the sign of a zero.
    """
    x, w = np.asarray(x, np.float32), np.asarray(w, np.float32)
    shape = output_shape(x.shape, w.shape, strides, pads, dilations, group)
    kernel, extents = (w.shape[2], w.shape[3]), (shape[2], shape[3])
    padded = pad_for_windows(x, kernel, strides, pads, dilations, extents, 0.0)
    filters = w.reshape(*w.shape[:2], -1)
    result = _start(bias, shape, 1)
    for tap, view in enumerate(taps(padded, kernel, strides, dilations, extents)):
        for channel in range(w.shape[1]):
            source = np.repeat(view[:, channel :: w.shape[1]], w.shape[0] // group, axis=1)
            result = fused_multiply_add(source, filters[:, channel, tap, None, None], result)
    return result


def _start(bias: Array | None, shape: tuple[int, ...], axis: int) -> Array:
    """Start of a chain: the bias along `axis`, or zeros."""
    result = np.zeros(shape, np.float32)
    if bias is not None:
        vector = [1] * len(shape)
        vector[axis] = -1
        result += np.asarray(bias, np.float32).reshape(vector)
    return result

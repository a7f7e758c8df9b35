"""Matrix products, float and int8: x is M x K, w is K x N, one scale a column of w.

See the ONNX operators Gemm, MatMul, QLinearMatMul.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from qglow.core.types import Array, Quantization
from qglow.numerics.conv import exact_float, finish
from qglow.numerics.quantize import INT8_MAX, INT8_MIN, parameters


def gemm_float(x: Array, w: Array, bias: Array | None = None) -> Array:
    """float32 `x @ w + bias`. The order of additions is numpy's; compiled code keeps a tolerance."""
    result: Array = np.matmul(np.asarray(x, np.float32), np.asarray(w, np.float32))
    return result if bias is None else result + np.asarray(bias, np.float32)


def product_in_order(a: Array, b: Array) -> Array:
    """float32 `np.matmul(a, b)` by sums in float64 in the order of the axis that is summed over.

    numpy's own order depends on the processor and on the number of threads, and the last bits on the order.
    """
    left = np.asarray(a, np.float64)[None, :] if a.ndim == 1 else np.asarray(a, np.float64)
    right = np.asarray(b, np.float64)[:, None] if b.ndim == 1 else np.asarray(b, np.float64)
    stacks = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    total = np.zeros((*stacks, left.shape[-2], right.shape[-1]))
    for k in range(left.shape[-1]):
        total += left[..., :, k, None] * right[..., k, None, :]
    total = total[..., 0] if b.ndim == 1 else total
    if a.ndim == 1:
        total = total[..., 0] if b.ndim == 1 else total[..., 0, :]
    return total.astype(np.float32)


def gemm_accumulate(x: Array, zero_x: int, w: Array, zero_w: Any = 0, bias: Array | None = None) -> Array:
    """Exact sums of `(x - zero_x) * (w - zero_w)` plus the int32 bias, as int64 M x N.

    x is int8, or int16 with zero point 0. `zero_w` is a scalar or one value a column. Leading axes of
    both are stacks, which broadcast.
    """
    centred_x = np.asarray(x, np.int16) - np.int16(zero_x)
    centred_w = np.asarray(w, np.int16) - np.asarray(zero_w, np.int16)
    dtype = exact_float(centred_x, centred_w.swapaxes(-1, -2))
    result: Array = np.matmul(centred_x.astype(dtype), centred_w.astype(dtype)).astype(np.int64)
    return result if bias is None else result + np.asarray(bias, np.int64)


def gemm_int8(
    x: Array,
    x_quant: Quantization,
    w: Array,
    w_quant: Quantization,
    bias: Array | None,
    y_quant: Quantization | None,
    lo: float = -math.inf,
    hi: float = math.inf,
) -> Array:
    """int8 matrix product with parameters of `w` per tensor or along axis 1; int32 `bias`.

    With `y_quant` the result is int8 and `lo`, `hi` narrow its int8 bounds; without it the
    result is `float32(acc) * float32(s_x * s_w)` and `lo`, `hi` are real.
    """
    scales, zeros = parameters(w_quant)
    acc = gemm_accumulate(x, x_quant.zero_point, w, zeros, bias)
    return finish(acc, x_quant.scale, scales, y_quant, lo, hi)


def matmul_int8(
    a: Array,
    a_quant: Quantization,
    b: Array,
    b_quant: Quantization,
    y_quant: Quantization | None,
) -> Array:
    """Product of two int8 activations, shapes as numpy.matmul has them, one scale each.

    With `y_quant` the result is int8, without it `float32(acc) * float32(s_a * s_b)`.
    """
    rows = a if a.ndim > 1 else a[None, :]
    columns = b if b.ndim > 1 else b[:, None]
    result = gemm_int8(rows, a_quant, columns, b_quant, None, y_quant)
    if b.ndim == 1:
        result = result[..., 0]
    return result if a.ndim > 1 else result[..., 0, :] if b.ndim > 1 else result[..., 0]


def worst_product(depth: int, zero_a: int, zero_b: int) -> int:
    """Largest magnitude of a sum of `depth` products `(a - zero_a) * (b - zero_b)` of int8 values."""
    return depth * _farthest(zero_a) * _farthest(zero_b)


def _farthest(zero_point: int) -> int:
    return max(INT8_MAX - zero_point, zero_point - INT8_MIN)

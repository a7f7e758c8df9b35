"""2-D convolution (cross-correlation) of NCHW images with OIHW filters, float and int8.

See the ONNX operators Conv, QLinearConv. I is the number of input channels of one group.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from qglow.core.types import Array, Quantization, Shape
from qglow.numerics.elementwise import clip
from qglow.numerics.quantize import parameters
from qglow.numerics.requantize import multiplier, requantize
from qglow.numerics.weights import bias_scales
from qglow.numerics.windows import Pads, Pair, output_extents, pad_for_windows, taps

FLOAT32_EXACT = 2**24
"""Integers up to this magnitude are exact in float32, and so are sums that stay below it."""


def output_shape(
    x_shape: Shape,
    w_shape: Shape,
    strides: Pair = (1, 1),
    pads: Pads = (0, 0, 0, 0),
    dilations: Pair = (1, 1),
    group: int = 1,
) -> Shape:
    """N x O x OH x OW. Raises ValueError when the shapes do not go together."""
    if len(x_shape) != 4 or len(w_shape) != 4:
        raise ValueError(f"a 2-D convolution takes NCHW and OIHW, not {x_shape} and {w_shape}")
    if x_shape[1] != w_shape[1] * group or w_shape[0] % group:
        raise ValueError(f"filters {w_shape} in {group} groups do not fit input {x_shape}")
    height, width = output_extents(_pair(x_shape), _pair(w_shape), strides, pads, dilations)
    return (x_shape[0], w_shape[0], height, width)


def conv_float(
    x: Array,
    w: Array,
    bias: Array | None = None,
    strides: Pair = (1, 1),
    pads: Pads = (0, 0, 0, 0),
    dilations: Pair = (1, 1),
    group: int = 1,
) -> Array:
    """float32 convolution. The order of additions is numpy's; compiled code keeps a tolerance."""
    x, w = np.asarray(x, np.float32), np.asarray(w, np.float32)
    result = _correlate(x, w, strides, pads, dilations, group)
    if bias is not None:
        result = result + np.asarray(bias, np.float32).reshape(-1, 1, 1)
    return result


def conv_accumulate(
    x: Array,
    zero_x: int,
    w: Array,
    zero_w: Any = 0,
    bias: Array | None = None,
    strides: Pair = (1, 1),
    pads: Pads = (0, 0, 0, 0),
    dilations: Pair = (1, 1),
    group: int = 1,
) -> Array:
    """Exact sums of `(x - zero_x) * (w - zero_w)` plus the int32 bias, as int64.

    x is int8, or int16 with zero point 0. `zero_w` is a scalar or one value an output channel. Padding
    holds `zero_x`, so it adds nothing.
    """
    zeros = np.asarray(zero_w, np.int16).reshape(-1, 1, 1, 1)
    centred_x = np.asarray(x, np.int16) - np.int16(zero_x)
    centred_w = np.asarray(w, np.int16) - zeros
    dtype = exact_float(centred_x, centred_w.reshape(centred_w.shape[0], -1))
    sums = _correlate(centred_x.astype(dtype), centred_w.astype(dtype), strides, pads, dilations, group)
    result = sums.astype(np.int64)
    if bias is not None:
        result += np.asarray(bias, np.int64).reshape(-1, 1, 1)
    return result


def conv_int8(
    x: Array,
    x_quant: Quantization,
    w: Array,
    w_quant: Quantization,
    bias: Array | None,
    y_quant: Quantization | None,
    strides: Pair = (1, 1),
    pads: Pads = (0, 0, 0, 0),
    dilations: Pair = (1, 1),
    group: int = 1,
    lo: float = -math.inf,
    hi: float = math.inf,
) -> Array:
    """int8 convolution with parameters of `w` per tensor or along axis 0; int32 `bias`.

    With `y_quant` the result is int8 and `lo`, `hi` narrow its int8 bounds; without it the
    result is `float32(acc) * float32(s_x * s_w)` and `lo`, `hi` are real.
    """
    scales, zeros = parameters(w_quant)
    acc = conv_accumulate(x, x_quant.zero_point, w, zeros, bias, strides, pads, dilations, group)
    return finish(acc, x_quant.scale, scales.reshape(-1, 1, 1), y_quant, lo, hi)


def finish(
    acc: Array, scale_x: float, scales_w: Array, y_quant: Quantization | None, lo: float, hi: float
) -> Array:
    """Sums to integers of `y_quant`, or to float32 without it; bounds in the unit of the result."""
    if y_quant is None:
        return clip(acc.astype(np.float32) * bias_scales(scale_x, scales_w), lo, hi)
    bounds = int(max(lo, y_quant.smallest)), int(min(hi, y_quant.largest))
    return requantize(acc, multiplier(scale_x, scales_w, y_quant.scale), y_quant, *bounds)


def exact_float(x: Array, rows: Array) -> type[np.float32] | type[np.float64]:
    """The faster float type in which sums of products of `x` with each row (last axis) are exact.

    Every partial sum, in any order, is at most max|x| times the sum of |w|.
    """
    largest = max(int(np.max(x, initial=0)), -int(np.min(x, initial=0)))
    total = int(np.max(np.sum(np.abs(rows), axis=-1, dtype=np.int64), initial=0))
    return np.float32 if largest * total <= FLOAT32_EXACT else np.float64


def _correlate(x: Array, w: Array, strides: Pair, pads: Pads, dilations: Pair, group: int) -> Array:
    """Convolution in the float type of `x` and `w`, zeros as padding."""
    batch, outputs, height, width = output_shape(x.shape, w.shape, strides, pads, dilations, group)
    kernel, extents = _pair(w.shape), (height, width)
    padded = pad_for_windows(x, kernel, strides, pads, dilations, extents, 0)
    compute = _depthwise if w.shape[1] == 1 and group > 1 else _matrix_product
    filters = w.reshape(group, outputs // group, -1)
    result = np.empty((batch, outputs, height, width), w.dtype)
    for image in range(batch):
        # One image at a time: the columns are kernel times as large as the image.
        views = list(taps(padded[image : image + 1], kernel, strides, dilations, extents))
        result[image] = compute(views, filters).reshape(outputs, height, width)
    return result


def _matrix_product(views: list[Array], filters: Array) -> Array:
    """Image to columns, and one matrix product a group: group x O/group x pixels."""
    columns = np.stack(views, axis=2).reshape(filters.shape[0], filters.shape[2], -1)
    return np.asarray(np.matmul(filters, columns))


def _depthwise(views: list[Array], filters: Array) -> Array:
    """One input channel a group: a multiplication and an addition for every tap."""
    result = np.zeros((*filters.shape[:2], *views[0].shape[2:]), filters.dtype)
    for tap, view in enumerate(views):
        result += view[0, :, None] * filters[:, :, tap, None, None]
    return result


def _pair(shape: Shape) -> Pair:
    return int(shape[2]), int(shape[3])

"""Max and average pooling of NCHW images, float and int8.

See the ONNX operators MaxPool, AveragePool. A global pool is a kernel of the image's size.
"""

from __future__ import annotations

import numpy as np

from qglow.core.types import Array, Quantization, Shape
from qglow.numerics.reductions import interleaved_sum
from qglow.numerics.requantize import finite, requantize
from qglow.numerics.windows import Pads, Pair, output_extents, pad_for_windows, taps

NO_PADS: Pads = (0, 0, 0, 0)
NO_DILATION: Pair = (1, 1)
MOST_WIDE_TAPS = 65535
"""Elements of int16 whose sum int32 holds."""


def pool_output_shape(
    x_shape: Shape,
    kernel: Pair,
    strides: Pair = (1, 1),
    pads: Pads = NO_PADS,
    dilations: Pair = NO_DILATION,
    ceil_mode: bool = False,
) -> Shape:
    """N x C x OH x OW. Raises ValueError when no window fits or the input is not 4-D."""
    if len(x_shape) != 4:
        raise ValueError(f"2-D pooling takes NCHW, not {x_shape}")
    size = int(x_shape[2]), int(x_shape[3])
    return (*x_shape[:2], *output_extents(size, kernel, strides, pads, dilations, ceil_mode))


def max_pool(
    x: Array,
    kernel: Pair,
    strides: Pair = (1, 1),
    pads: Pads = NO_PADS,
    dilations: Pair = NO_DILATION,
    ceil_mode: bool = False,
) -> Array:
    """Largest element of every window, float32 or integers; padding never wins, NaN does."""
    lowest = np.float32(-np.inf) if x.dtype == np.float32 else np.iinfo(x.dtype).min
    shape = pool_output_shape(x.shape, kernel, strides, pads, dilations, ceil_mode)
    extents = shape[2], shape[3]
    padded = pad_for_windows(x, kernel, strides, pads, dilations, extents, lowest)
    result = np.full(shape, lowest, x.dtype)
    for view in taps(padded, kernel, strides, dilations, extents):
        np.maximum(result, view, out=result)
    return result


def average_pool_float(
    x: Array,
    kernel: Pair,
    strides: Pair = (1, 1),
    pads: Pads = NO_PADS,
    ceil_mode: bool = False,
    count_include_pad: bool = False,
    dilations: Pair = NO_DILATION,
) -> Array:
    """Mean of every window: `interleaved_sum / float32(count)`.

    Element (i, j) of the window has index i * KW + j in the sum, inside the image or not;
    the count is `window_counts`.
    """
    x = np.asarray(x, np.float32)
    views = _views(x, kernel, strides, pads, ceil_mode, dilations)
    windows = np.stack(views, axis=-1)
    counts = window_counts(x.shape, kernel, strides, pads, ceil_mode, count_include_pad, dilations)
    return np.asarray(interleaved_sum(windows) / counts.astype(np.float32))


def average_pool_int8(
    x: Array,
    x_quant: Quantization,
    y_quant: Quantization,
    kernel: Pair,
    strides: Pair = (1, 1),
    pads: Pads = NO_PADS,
    ceil_mode: bool = False,
    count_include_pad: bool = False,
    lo: int | None = None,
    hi: int | None = None,
    dilations: Pair = NO_DILATION,
) -> Array:
    """The exact sum of `q - zp` of every window times `s_x / (s_y * count)`, rounded to the type of y."""
    centred = np.asarray(x).astype(np.int32) - x_quant.zero_point
    views = _views(centred, kernel, strides, pads, ceil_mode, dilations)
    acc = np.zeros(views[0].shape, np.int32)
    for view in views:
        acc += view
    counts = window_counts(x.shape, kernel, strides, pads, ceil_mode, count_include_pad, dilations)
    return requantize(acc, average_multiplier(x_quant, y_quant, counts), y_quant, lo, hi)


def average_multiplier(x_quant: Quantization, y_quant: Quantization, counts: Array) -> Array:
    """`s_x / (s_y * count)` in float32 for every count."""
    with np.errstate(all="ignore"):
        divisor = np.float32(y_quant.scale) * np.asarray(counts).astype(np.float32)
        result = np.asarray(np.float32(x_quant.scale) / divisor)
    return finite(result, f"{x_quant.scale} / ({y_quant.scale} * count)")


def window_counts(
    x_shape: Shape,
    kernel: Pair,
    strides: Pair,
    pads: Pads,
    ceil_mode: bool = False,
    count_include_pad: bool = False,
    dilations: Pair = NO_DILATION,
) -> Array:
    """int64 OH x OW: how many positions of every window count.

    Those inside the image; with `count_include_pad` those inside image and padding (what
    hangs over in ceil mode never counts).
    """
    extents = pool_output_shape(x_shape, kernel, strides, pads, dilations, ceil_mode)[2:]
    along_axes = []
    for i in range(2):
        first, last = 0, x_shape[2 + i]
        if count_include_pad:
            first, last = -pads[i], last + pads[2 + i]
        start = np.arange(extents[i]) * strides[i] - pads[i]
        below, beyond = (np.clip(-((start - at) // dilations[i]), 0, kernel[i]) for at in (first, last))
        along_axes.append(beyond - below)
    return np.asarray(along_axes[0][:, None] * along_axes[1])


def _views(
    x: Array, kernel: Pair, strides: Pair, pads: Pads, ceil_mode: bool, dilations: Pair
) -> list[Array]:
    shape = pool_output_shape(x.shape, kernel, strides, pads, dilations, ceil_mode)
    extents = shape[2], shape[3]
    padded = pad_for_windows(x, kernel, strides, pads, dilations, extents, 0)
    return list(taps(padded, kernel, strides, dilations, extents))

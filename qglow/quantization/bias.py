"""Correction of biases for the mean error that rounding the weights adds to the result.

Rounded weights shift the mean of each output channel by the rounding error times the mean of the
input. The profile knows those means per channel, so the shift is known and is subtracted before
the bias becomes an integer. After M. Nagel et al., "Data-free quantization through weight
equalization and bias correction" (ICCV 2019).
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from qglow.core.types import Array, Shape
from qglow.graph.graph import Graph, Node, Value
from qglow.graph.traits import Filters, SlidingWindow
from qglow.profiling.histogram import ChannelProfile
from qglow.quantization.weights import FloatWeights, rounding_error


def channel_means(channels: ChannelProfile, elements: int, samples: int, graph: Graph, value: Value) -> Array:
    """Return the mean of each channel of a value over all elements of `samples` samples, float64[C].

    A value may have several rows per sample along its first axis, such as the tokens that a Gemm takes
    one by one; each of them was counted, and samples may have had different numbers of them. elements: how
    many were counted; 0 where nobody knows, and the value's own shape tells.
    """
    shape, count = value.type.shape, len(channels.low)
    if elements and math.prod(shape[1:]) == count:
        # Rows of one element a channel tell how many they were, whatever the shapes of the samples.
        rows = elements / count / max(samples, 1)
    else:
        batch = graph.inputs[0].type.shape[:1] if graph.inputs else ()
        rows = shape[0] / batch[0] if batch and batch[0] else 1.0
    return channels.means(samples) / max(rows, 1.0)


def corrected(
    node: Node, source: FloatWeights, scale_x: float, means: Array, per_tensor: bool, shape_x: Shape
) -> FloatWeights:
    """Return the weights with a bias that restores the float mean of every output channel.

    means: float64[C], the mean of each channel of the input. shape_x: shape of the input. Zeros that
    taps of a convolution read in the padding are taken into account. A shift that is not finite is
    dropped, and means of an axis that had another extent when it was profiled correct nothing.
    """
    error = rounding_error(source, scale_x, per_tensor)
    window, filters = node.operator.window(node.input_types()), node.operator.filters
    if len(means) != (len(error) if window is None or filters is None else shape_x[1]):
        return source
    with np.errstate(invalid="ignore"):
        if window is None or filters is None:
            shift = means @ error
        else:
            shift = _window_shift(window, filters, error, means, shape_x, node.output.type.shape)
    if not np.all(np.isfinite(shift)):
        return source
    return replace(source, bias=(source.bias.astype(np.float64) + shift).astype(np.float32))


def _window_shift(
    window: SlidingWindow, filters: Filters, error: Array, means: Array, shape_x: Shape, shape_y: Shape
) -> Array:
    """Sum error times mean over taps and input channels, each tap weighted by its share inside the image."""
    rows = _coverage(window, shape_x[2], shape_y[2], 0)
    columns = _coverage(window, shape_x[3], shape_y[3], 1)
    a_channel = np.einsum("ochw,h,w->oc", error, rows, columns)
    grouped = a_channel.reshape(filters.groups, -1, a_channel.shape[1])
    return np.asarray(np.einsum("goc,gc->go", grouped, means.reshape(filters.groups, -1)).reshape(-1))


def _coverage(window: SlidingWindow, size: int, extent: int, axis: int) -> Array:
    """float64[kernel]: the share of windows along an axis in which the tap lies inside the image."""
    starts = np.arange(extent)[:, None] * window.strides[axis] - window.pads[axis]
    positions = starts + np.arange(window.kernel[axis]) * window.dilations[axis]
    return np.asarray(np.mean((positions >= 0) & (positions < size), axis=0))

"""Take out of a bias what rounding the weights adds to the result on average.

Rounded weights shift the mean of each output channel by the rounding error times the mean of the
input. The profile knows those means per channel, so the shift is known and is subtracted before
the bias becomes an integer. After M. Nagel et al., "Data-free quantization through weight
equalization and bias correction" (ICCV 2019).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from qglow.core.types import Array, Shape
from qglow.graph.graph import Graph, Node, Value
from qglow.graph.ops.conv import Conv
from qglow.profiling.histogram import ChannelProfile
from qglow.quantization.weights import FloatWeights, rounding_error


def channel_means(channels: ChannelProfile, samples: int, graph: Graph, value: Value) -> Array:
    """float64[C]: mean of each channel of a value over all its elements, of `samples` samples.

    A value may have several rows a sample along its first axis, such as the tokens that a Gemm takes
    one by one; each of them was counted.
    """
    batch = graph.inputs[0].type.shape[:1] if graph.inputs else ()
    rows = value.type.shape[0] / batch[0] if batch and batch[0] else 1.0
    return channels.means(samples) / max(rows, 1.0)


def corrected(
    node: Node, source: FloatWeights, scale_x: float, means: Array, per_tensor: bool, shape_x: Shape
) -> FloatWeights:
    """The weights with a bias that restores the float mean of every output channel.

    `means` is float64[C], the mean of each channel of the input; `shape_x` its shape. Taps of a
    convolution that lie in the padding see zeros, which counts.
    """
    error = rounding_error(source, scale_x, per_tensor)
    with np.errstate(invalid="ignore"):
        if isinstance(node.operator, Conv):
            shift = _conv_shift(node.operator, error, means, shape_x, node.output.type.shape)
        else:
            shift = means @ error
    if not np.all(np.isfinite(shift)):
        return source
    return replace(source, bias=(source.bias.astype(np.float64) + shift).astype(np.float32))


def _conv_shift(operator: Conv, error: Array, means: Array, shape_x: Shape, shape_y: Shape) -> Array:
    """Sum over taps and input channels of error times mean, each tap as often as it sees the image."""
    rows = _coverage(error.shape[2], shape_x[2], shape_y[2], operator, 0)
    columns = _coverage(error.shape[3], shape_x[3], shape_y[3], operator, 1)
    a_channel = np.einsum("ochw,h,w->oc", error, rows, columns)
    grouped = a_channel.reshape(operator.group, -1, a_channel.shape[1])
    return np.asarray(np.einsum("goc,gc->go", grouped, means.reshape(operator.group, -1)).reshape(-1))


def _coverage(kernel: int, size: int, extent: int, operator: Conv, axis: int) -> Array:
    """float64[kernel]: the share of windows along an axis in which the tap lies inside the image."""
    starts = np.arange(extent)[:, None] * operator.strides[axis] - operator.pads[axis]
    positions = starts + np.arange(kernel) * operator.dilations[axis]
    return np.asarray(np.mean((positions >= 0) & (positions < size), axis=0))

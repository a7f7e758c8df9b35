"""Windows over three spatial dimensions, [N, C, D, H, W], as windows over images.

A convolution has the depth of its window among the channels, so that its sums stay one sum of integers.
Pools take the image first and then the depth: a largest element or a mean is found axis by axis.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from qglow.core.memory import require_more_memory
from qglow.graph.graph import Value
from qglow.graph.operator import Operator
from qglow.graph.ops.movement import Gather, Pad
from qglow.graph.ops.shape import Reshape, Transpose
from qglow.graph.traits import SlidingWindow
from qglow.importer.node import ImportNode
from qglow.importer.windows import as_pads, as_pair, convolved, read_axes

RANK = 5


def emit_convolution_over_volume(
    node: ImportNode,
    x: Value,
    w: Value,
    axes: Sequence[tuple[int, ...]],
    group: int,
) -> None:
    """Add a convolution of volumes as one of images.

    w: the weights, made of the node's second input. axes: strides, dilations and pads over three dimensions.
    """
    strides, dilations, pads = axes
    node.require(len(w.type.shape) == RANK, f"weights are {w.type}; five dimensions are needed")
    kernel = w.type.shape[2:]
    before, after = pads[0], pads[3]
    if before or after:
        amounts = (0, 0, before, 0, 0, 0, 0, after, 0, 0)
        x = node.emit(Pad(pads=amounts), x, part="deeper")
    batch, channels, depth, height, width = x.type.shape
    reach = dilations[0] * (kernel[0] - 1) + 1
    node.require(reach <= depth, f"the window is {reach} deep, the padded input {depth}")
    starts = np.arange(0, depth - reach + 1, strides[0])
    places = np.add.outer(np.arange(kernel[0]) * dilations[0], starts)
    require_more_memory(4 * batch * channels * places.size * height * width, f"node '{node.name}'")
    x = node.emit(Gather(axis=2), x, node.part_constant("places", places), part="layers")
    x = node.emit(Transpose(perm=(0, 3, 1, 2, 4, 5)), x, part="windows")
    layers = len(starts)
    x = node.emit(Reshape(shape=(batch * layers, channels * kernel[0], height, width)), x, part="images")
    filters = w.type.shape[0]
    w = node.emit(Reshape(shape=(filters, w.type.shape[1] * kernel[0], *kernel[1:])), w, part="filters")
    window = SlidingWindow(
        as_pair(kernel[1:]), as_pair(strides[1:]), as_pads((*pads[1:3], *pads[4:])), as_pair(dilations[1:])
    )
    result = convolved(node, window, group, x, w, part="image")
    shape = (batch, layers, filters, *result.type.shape[2:])
    result = node.emit(Reshape(shape=shape), result, part="layers_apart")
    node.emit(Transpose(perm=(0, 2, 1, 3, 4)), result)


def emit_pool_over_volume(
    node: ImportNode, x: Value, kernel: tuple[int, ...], make: Callable[[SlidingWindow], Operator], part: str
) -> Value:
    """Add a pool of volumes; `make` gives that of images with a window."""
    strides, dilations, pads = read_axes(node, kernel)
    batch, channels, depth, height, width = x.type.shape
    flat = node.emit(Reshape(shape=(batch, channels * depth, height, width)), x, part="images")
    window = SlidingWindow(
        as_pair(kernel[1:]), as_pair(strides[1:]), as_pads((*pads[1:3], *pads[4:])), as_pair(dilations[1:])
    )
    flat = node.emit(make(window), flat, part="pooled_images")
    height, width = flat.type.shape[2:]
    deep = node.emit(Reshape(shape=(batch, channels, depth, height * width)), flat, part="columns")
    window = SlidingWindow((kernel[0], 1), (strides[0], 1), (pads[0], 0, pads[3], 0), (dilations[0], 1))
    deep = node.emit(make(window), deep, part="pooled_depth")
    return node.emit(Reshape(shape=(batch, channels, deep.type.shape[2], height, width)), deep, part=part)

"""Places of maxima: where in the image the largest element of every window of a pool is."""

from __future__ import annotations

import math

import numpy as np

from qglow.core.memory import require_more_memory
from qglow.core.types import Array
from qglow.graph.ops.elementwise import Add, Mul
from qglow.graph.ops.movement import Gather
from qglow.graph.ops.ranking import ArgMax
from qglow.graph.ops.shape import Reshape
from qglow.importer.node import ImportNode
from qglow.importer.windows import read_axes

INDEX_BYTES = 8


def emit_max_places(node: ImportNode, kernel: tuple[int, ...], counts: tuple[int, ...]) -> None:
    """Add the second output of a pool of maxima with so many windows along each spatial axis.

    Elements are numbered through the whole tensor; of equal ones the first of a window counts. With
    `storage_order` 1 those of an image are numbered column by column.
    """
    shape = node.kind().shape
    sizes, planes, windows = shape[2:], math.prod(shape[:2]), math.prod(counts)
    require_more_memory(INDEX_BYTES * planes * windows * math.prod(kernel), f"node '{node.name}'")
    strides, dilations, pads = read_axes(node, kernel)
    pixels = [
        (np.arange(k) * dilation)[:, None] + np.arange(count) * stride - before
        for k, count, stride, dilation, before in zip(
            kernel, counts, strides, dilations, pads[: len(sizes)], strict=True
        )
    ]
    inside = _combined([(p >= 0) & (p < size) for p, size in zip(pixels, sizes, strict=True)], np.logical_and)
    node.require(bool(inside.any(0).all()), "a window that lies in the padding has no place of a maximum")
    steps = [math.prod(sizes[axis + 1 :]) for axis in range(len(sizes))]
    rows = _inside_only(_numbers(pixels, steps), inside)
    by_column = node.integer("storage_order", 0) != 0
    columns = [math.prod(sizes[:axis]) for axis in range(len(sizes))]
    numbers = _inside_only(_numbers(pixels, columns), inside) if by_column else rows

    image = node.emit(Reshape(shape=(planes, math.prod(sizes))), node.value(0), part="planes")
    elements = node.emit(Gather(axis=1), image, node.part_constant("windows", rows), part="elements")
    best = node.emit(ArgMax(1, False), elements, part="best")
    width = node.part_constant("count", np.array(windows, np.int64))
    row = node.emit(Mul(), best, width, part="row")
    place = node.emit(Add(), row, node.part_constant("window", np.arange(windows)), part="place")
    number = node.emit(
        Gather(axis=0), node.part_constant("numbers", numbers.reshape(-1)), place, part="number"
    )
    starts = node.part_constant("starts", (np.arange(planes) * math.prod(sizes))[:, None])
    total = node.emit(Add(), number, starts, part="through")
    node.emit(Reshape(shape=(*shape[:2], *counts)), total, output=1)


def _numbers(pixels: list[Array], steps: list[int]) -> Array:
    return _combined([pixel * step for pixel, step in zip(pixels, steps, strict=True)], np.add)


def _combined(axes: list[Array], combine: np.ufunc) -> Array:
    """One array [elements of a window, windows] of one [elements, windows] for each axis."""
    total = axes[0]
    for along in axes[1:]:
        elements, windows = total.shape[0] * along.shape[0], total.shape[1] * along.shape[1]
        total = combine(total[:, None, :, None], along[None, :, None, :]).reshape(elements, windows)
    return total


def _inside_only(numbers: Array, inside: Array) -> Array:
    """Numbers of elements; in the place of padding that of the window's first element."""
    first = np.take_along_axis(numbers, inside.argmax(0)[None], 0)
    return np.where(inside, numbers, first)

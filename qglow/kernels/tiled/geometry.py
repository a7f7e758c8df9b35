"""Geometry of a convolution or fully connected layer as an implicit matrix product, in bytes.

An output pixel is one row of the product. Its window consists of `runs`, contiguous pieces of memory whose
distances from the start of the window are the same for all pixels. So windows are read in place, and no
im2col matrix is made. Runs are read in ascending (kh, kw, c), four bytes a step.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

from qglow.core.types import Shape
from qglow.instructions.ops.conv import Convolution
from qglow.instructions.ops.linear import FullyConnected
from qglow.instructions.program import NO_PADDING, Instruction, Padding
from qglow.kernels.emit.operand import readable_padding

STEP = 4
"""Bytes of a pixel that one step of a tile multiplies: four int8 or one float32."""


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis of output pixels; strides are bytes from one pixel to the next."""

    count: int
    src_stride: int
    dest_stride: int


NO_AXIS = Axis(1, 0, 0)
"""Axis of one pixel."""


@dataclass(frozen=True, slots=True)
class Runs:
    """Contiguous pieces of a window: `rows` x `columns` runs of `length` bytes; strides are in bytes.

    A micro-kernel multiplies `step` bytes of a run at a time.
    """

    rows: int
    row_stride: int
    columns: int
    column_stride: int
    length: int
    step: int = STEP

    @property
    def steps(self) -> int:
        """Steps in one run; the last may reach past the run, by less than a step."""
        return -(-self.length // self.step)

    @property
    def total_steps(self) -> int:
        """Steps of all runs of one pixel."""
        return self.rows * self.columns * self.steps


@dataclass(frozen=True, slots=True)
class Geometry:
    """An implicit matrix product, or `groups` of them side by side.

    axes: axes of output pixels, outermost first. runs: bytes that one pixel reads.
    filters: output channels of one group. channels: input channels of all groups.
    reach: pixels that windows read beyond the image (top, left, bottom, right).
    copied: whether images (axis 0) go one by one through a copy that has this border.
    """

    axes: tuple[Axis, ...]
    runs: Runs
    groups: int
    filters: int
    channels: int
    reach: Padding
    copied: bool

    @property
    def walked_axes(self) -> tuple[Axis, ...]:
        """Axes that the loops of the product cover: without the images where these are copied one by one."""
        return self.axes[1:] if self.copied else self.axes

    @property
    def pixels(self) -> int:
        """Pixels that the loops of the product cover."""
        return math.prod(axis.count for axis in self.walked_axes)

    def with_step(self, step: int) -> Geometry:
        """The same product in steps of another size."""
        return replace(self, runs=replace(self.runs, step=step))

    def with_results(self, own: int, stored: int) -> Geometry:
        """The same product, whose results of `own` bytes are stored as `stored` bytes each."""
        axes = (replace(axis, dest_stride=axis.dest_stride // own * stored) for axis in self.axes)
        return replace(self, axes=tuple(axes))


def border_reach(instruction: Instruction) -> Padding:
    """Padding of `src`, in pixels, that the windows of a convolution read (top, left, bottom, right).

    At the bottom and right it may be less than the operation's pads: strides may leave out the last pixels.
    """
    operation = instruction.operation
    assert isinstance(operation, Convolution)
    src, dest, filters = (instruction.operand(n).type.shape for n in ("src", "dest", "filter"))
    return _reach(operation, src, dest, filters)


@lru_cache(maxsize=1024)
def _reach(operation: Convolution, src: Shape, dest: Shape, filters: Shape) -> Padding:
    ends = []
    for axis in (0, 1):
        span = (dest[1 + axis] - 1) * operation.strides[axis]
        span += (filters[1 + axis] - 1) * operation.dilations[axis] + 1
        ends.append(max(0, span - operation.pads[axis] - src[1 + axis]))
    top, left = operation.pads[:2]
    return (top, left, ends[0], ends[1])


def covers(available: Padding, wanted: Padding) -> bool:
    """Whether the available padding is at least the wanted one on every side."""
    return all(have >= want for have, want in zip(available, wanted, strict=True))


def convolution_geometry(instruction: Instruction) -> Geometry:
    """Geometry of a convolution, with the padding that the buffer of `src` has now."""
    operation = instruction.operation
    assert isinstance(operation, Convolution)
    src, dest = instruction.operand("src"), instruction.operand("dest")
    size = src.type.element.size
    reach = border_reach(instruction)
    copied = not covers(readable_padding(src), reach)
    strides = copied_strides(instruction) if copied else tuple(n * size for n in src.layout.strides[:3])
    outputs = tuple(
        (count, stride * dest.type.element.size)
        for count, stride in zip(dest.type.shape, dest.layout.strides, strict=True)
    )
    filters, channels = instruction.operand("filter").type.shape, src.type.shape[3]
    return _geometry(operation, strides, outputs, filters, channels, size, reach, copied)


@lru_cache(maxsize=1024)
def _geometry(
    operation: Convolution,
    strides: tuple[int, ...],
    outputs: tuple[tuple[int, int], ...],
    filters: Shape,
    channels: int,
    size: int,
    reach: Padding,
    copied: bool,
) -> Geometry:
    """Geometry from strides of `src` in bytes, counts and strides of `dest`, and the size of an element."""
    batch, row, pixel = strides
    steps = (batch, row * operation.strides[0], pixel * operation.strides[1])
    axes = tuple(Axis(outputs[i][0], steps[i], outputs[i][1]) for i in range(3))
    runs = _runs(filters, operation.dilations, row, pixel, size)
    group_filters = outputs[3][0] // operation.group
    return Geometry(axes, runs, operation.group, group_filters, channels, reach, copied)


def copied_strides(instruction: Instruction) -> tuple[int, int, int]:
    """Strides (image, row, pixel) in bytes of the bordered copy; 0 for images, as they share one copy."""
    src = instruction.operand("src").type
    _, left, _, right = border_reach(instruction)
    pixel = src.shape[3] * src.element.size
    return 0, (src.shape[2] + left + right) * pixel, pixel


def copied_bytes(instruction: Instruction) -> int:
    """Bytes of the bordered copy of one image."""
    top, _, bottom, _ = border_reach(instruction)
    _, row, _ = copied_strides(instruction)
    return (instruction.operand("src").type.shape[1] + top + bottom) * row


def _runs(filters: tuple[int, ...], dilations: tuple[int, ...], row: int, pixel: int, size: int) -> Runs:
    """Longest runs of a window whose pixels adjoin in memory: all of it, else its rows, else its pixels."""
    _, height, width, depth = filters
    row_stride, column_stride = row * dilations[0], pixel * dilations[1]
    if width > 1 and column_stride != depth * size:
        return Runs(height, row_stride, width, column_stride, depth * size)
    length = width * depth * size
    if height == 1 or row_stride == length:
        return Runs(1, 0, 1, 0, height * length)
    return Runs(height, row_stride, 1, 0, length)


def linear_geometry(instruction: Instruction) -> Geometry:
    """Geometry of a fully connected layer: every row of `src` is a pixel, read as one run."""
    assert isinstance(instruction.operation, FullyConnected)
    src, dest = instruction.operand("src"), instruction.operand("dest")
    rows, depth = src.type.shape
    size = src.type.element.size
    axis = Axis(rows, src.layout.strides[0] * size, dest.layout.strides[0] * dest.type.element.size)
    runs = Runs(1, 0, 1, 0, depth * size)
    return Geometry((axis,), runs, 1, dest.type.shape[1], depth, NO_PADDING, False)


def apart(geometry: Geometry, images: int) -> tuple[Axis, Geometry]:
    """Split a product over `images` images into the axis of images and the product of one image.

    Where images go through a copy, the product is that of one image already, and the axis has one element.
    """
    if geometry.copied:
        return NO_AXIS, geometry
    outer, *rest = geometry.axes
    rows = outer.count // images
    image = Axis(images, rows * outer.src_stride, rows * outer.dest_stride)
    return image, replace(geometry, axes=(replace(outer, count=rows), *rest))


def collapse(axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
    """Merge axes: drop those of one pixel, join neighbours that one stride can walk in `src` and `dest`."""
    result: list[Axis] = []
    for axis in axes:
        if axis.count == 1:
            continue
        if result and _regular(result[-1], axis):
            outer = result.pop()
            axis = Axis(outer.count * axis.count, axis.src_stride, axis.dest_stride)
        result.append(axis)
    return tuple(result) or (NO_AXIS,)


def _regular(outer: Axis, inner: Axis) -> bool:
    """Whether one step of the outer axis is as far as all steps of the inner one, in `src` and in `dest`."""
    by_src = outer.src_stride == inner.count * inner.src_stride
    return by_src and outer.dest_stride == inner.count * inner.dest_stride

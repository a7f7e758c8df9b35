"""Where a depthwise convolution reads and writes: chunks of channels, taps, tiles of pixels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from qglow.instructions.ops.conv import Convolution
from qglow.instructions.program import Instruction
from qglow.kernels.builder import Emitter, Index, Value
from qglow.kernels.conv_blocking import divide
from qglow.kernels.conv_geometry import NO_AXIS, Axis, convolution_geometry, copied_strides
from qglow.kernels.kernel import Pool, Slice
from qglow.kernels.tile_output import PACKED


@dataclass(frozen=True, slots=True)
class DepthwiseGeometry:
    """A depthwise convolution in bytes.

    `axes` are output pixels, outermost first; without the batch where images are copied. One
    chunk is `width` channels, of `joined` neighbouring pixels where channels are few. The last
    chunk overlaps the one before it where channels do not divide by the width. `taps` are
    the distances of a window's elements from its first, in ascending (kh, kw).
    """

    axes: tuple[Axis, ...]
    channels: int
    width: int
    joined: int
    kernel: tuple[int, int]
    taps: tuple[int, ...]

    @property
    def chunks(self) -> int:
        """Number of chunks."""
        return -(-self.channels * self.joined // self.width)

    def chunk_channels(self) -> list[list[int]]:
        """The channel of every lane of every chunk; lanes beyond the last channel repeat it."""
        lanes = range(self.width)
        if self.joined > 1:
            return [[lane % self.channels for lane in lanes]]
        last = max(0, self.channels - self.width)
        starts = [min(chunk * self.width, last) for chunk in range(self.chunks)]
        return [[min(start + lane, self.channels - 1) for lane in lanes] for start in starts]

    @property
    def stored(self) -> int:
        """Elements of a chunk that are results."""
        return min(self.width, self.channels * self.joined)


def is_depthwise(instruction: Instruction) -> bool:
    """Whether every channel has one filter of its own, and only it."""
    operation = instruction.operation
    assert isinstance(operation, Convolution)
    filters, channels = instruction.operand("filter").type.shape, instruction.operand("src").type.shape[3]
    return channels > 1 and operation.group == channels == filters[0]


def depthwise_geometry(instruction: Instruction, width: int) -> DepthwiseGeometry:
    """The geometry for chunks of `width` elements, with the padding that `src` has now."""
    operation = instruction.operation
    assert isinstance(operation, Convolution)
    product = convolution_geometry(instruction)
    src = instruction.operand("src")
    size = src.type.element.size
    strides = tuple(stride * size for stride in src.layout.strides)
    row, pixel = copied_strides(instruction)[1:] if product.copied else strides[1:3]
    height, columns = instruction.operand("filter").type.shape[1:3]
    taps = tuple(
        y * operation.dilations[0] * row + x * operation.dilations[1] * pixel
        for y in range(height)
        for x in range(columns)
    )
    axes = product.walked_axes
    joined = joined_pixels(axes[-1], product.channels, width, size, instruction)
    inner = axes[-1]
    if joined > 1:
        inner = Axis(inner.count // joined, inner.src_stride * joined, inner.dest_stride * joined)
    return DepthwiseGeometry((*axes[:-1], inner), product.channels, width, joined, (height, columns), taps)


def joined_pixels(axis: Axis, channels: int, width: int, size: int, instruction: Instruction) -> int:
    """Pixels that share a chunk: where channels of neighbours adjoin in `src` and `dest` and fill it."""
    dest = instruction.operand("dest").type.element.size
    joined = width // channels
    adjoin = axis.src_stride == channels * size and axis.dest_stride == channels * dest
    fills = joined > 1 and width % channels == 0 and axis.count % joined == 0
    return joined if adjoin and fills else 1


TileEmitter = Callable[[Value, Value, Index, int], None]
"""Emits a tile: address of the first window, of the first result, chunk number, pixels."""


def emit_tiles(
    e: Emitter,
    geometry: DepthwiseGeometry,
    src: Value,
    dest: Value,
    sizes: tuple[int, int],
    most_pixels: int,
    emit: TileEmitter,
) -> None:
    """Loops over rows, chunks and tiles. `sizes` are the bytes of an element of src and dest.

    Threads share the longest of the outer axes, or the chunks where there are more of them.
    """
    *outer, _ = geometry.axes
    shares_rows = any(axis.count >= geometry.chunks for axis in outer)
    chunks = e.loop(*e.share(geometry.chunks, not shares_rows), name="chunk")
    with rows(e, outer, src, dest, shares_rows) as (src_row, dest_row), chunks as chunk:
        start = _first_channel(e, geometry, chunk)
        src_chunk = e.offset(src_row, e.scaled(start, sizes[0]))
        dest_chunk = e.offset(dest_row, e.scaled(start, sizes[1]))
        _emit_row(e, geometry, src_chunk, dest_chunk, chunk, most_pixels, emit)


def emit_pooled_tiles(
    e: Emitter,
    geometry: DepthwiseGeometry,
    src: Value,
    dest: Value,
    means: Value,
    most_pixels: int,
    emit: TileEmitter,
    pool: Pool,
) -> None:
    """Loops over chunks, images, rows and tiles of bytes, with the means of a chunk behind an image.

    Threads share chunks.
    """
    *images, outer, _ = geometry.axes
    image_axis = images[0] if images else NO_AXIS
    channels = min(geometry.width, geometry.channels)
    pooled = Slice(geometry.width // PACKED, PACKED, channels, geometry.joined)
    chunks = e.loop(*e.share(geometry.chunks), name="chunk")
    with chunks as chunk, e.loop(0, image_axis.count, name="image") as image:
        start = _first_channel(e, geometry, chunk)
        moves = (image_axis.src_stride, image_axis.dest_stride, pool.image_bytes)
        src_chunk, dest_chunk, means_chunk = (
            e.offset(pointer, e.plus(e.scaled(image, move), start))
            for pointer, move in zip((src, dest, means), moves, strict=True)
        )
        pool.start(e, pooled)
        with rows(e, [outer], src_chunk, dest_chunk, shared=False) as (src_row, dest_row):
            _emit_row(e, geometry, src_row, dest_row, chunk, most_pixels, emit)
        pool.finish(e, pooled, means_chunk)


def _first_channel(e: Emitter, geometry: DepthwiseGeometry, chunk: Index) -> Index:
    start = e.scaled(chunk, geometry.width)
    if geometry.channels % geometry.width:
        return e.minimum(start, max(0, geometry.channels - geometry.width))
    return start


def _emit_row(
    e: Emitter,
    geometry: DepthwiseGeometry,
    src: Value,
    dest: Value,
    chunk: Index,
    most_pixels: int,
    emit: TileEmitter,
) -> None:
    """Tiles of a row of a chunk."""
    inner = geometry.axes[-1]
    for piece in divide(inner.count, most_pixels):
        with e.loop(0, piece.count, name="tile") as tile:
            pixel = e.plus(e.scaled(tile, piece.size), piece.start)
            first = e.offset(src, e.scaled(pixel, inner.src_stride))
            result = e.offset(dest, e.scaled(pixel, inner.dest_stride))
            emit(first, result, chunk, piece.size)


@contextmanager
def rows(
    e: Emitter, axes: Sequence[Axis], src: Value, dest: Value, shared: bool
) -> Iterator[tuple[Value, Value]]:
    """A loop nest over the outer axes that moves both addresses; threads may share the longest."""
    longest = max(axes, key=lambda axis: axis.count) if shared else None
    with ExitStack() as stack:
        for axis in axes:
            share = e.share(axis.count, axis is longest)
            index = stack.enter_context(e.loop(*share, name="row"))
            src = e.offset(src, e.scaled(index, axis.src_stride))
            dest = e.offset(dest, e.scaled(index, axis.dest_stride))
        yield src, dest

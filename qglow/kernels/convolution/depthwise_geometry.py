"""Geometry of a depthwise convolution (chunks of channels, taps, tiles of pixels) and the loops over it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from qglow.instructions.ops.conv import Convolution
from qglow.instructions.program import Instruction
from qglow.kernels.emit.builder import Index, Value
from qglow.kernels.emit.emitter import Emitter
from qglow.kernels.emit.kernel import ChannelSlice, MeanSink
from qglow.kernels.tiled.blocking import divide
from qglow.kernels.tiled.geometry import NO_AXIS, Axis, convolution_geometry, copied_strides
from qglow.kernels.tiles.output import PACKED


@dataclass(frozen=True, slots=True)
class DepthwiseGeometry:
    """Shape of a depthwise convolution; strides and distances are in bytes.

    axes: axes of output pixels, outermost first, without the batch where images go through a bordered copy.
    channels: channels of the whole convolution. width: elements of a chunk, the unit of vector code.
    joined: neighbouring pixels whose channels make one chunk; 1 unless channels are few. Otherwise a chunk
        is neighbouring channels of one pixel; the last one overlaps the one before it where `width` does not
        divide `channels`.
    kernel: height and width of the window. taps: distance of each element of the window from its first, in
        ascending (kh, kw).
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
        """Channel of every lane of every chunk; lanes beyond the last channel repeat that one."""
        lanes = range(self.width)
        if self.joined > 1:
            return [[lane % self.channels for lane in lanes]]
        last = max(0, self.channels - self.width)
        starts = [min(chunk * self.width, last) for chunk in range(self.chunks)]
        return [[min(start + lane, self.channels - 1) for lane in lanes] for start in starts]

    @property
    def row_results(self) -> int:
        """Results in a row of pixels."""
        return self.axes[-1].count * self.joined * self.channels

    @property
    def stored(self) -> int:
        """Results in a chunk; lanes beyond them are computed and dropped."""
        return min(self.width, self.channels * self.joined)


def is_depthwise(instruction: Instruction) -> bool:
    """Whether a convolution of several channels has one filter for each, which reads only that channel."""
    operation = instruction.operation
    assert isinstance(operation, Convolution)
    filters, channels = instruction.operand("filter").type.shape, instruction.operand("src").type.shape[3]
    return channels > 1 and operation.group == channels == filters[0]


def depthwise_geometry(instruction: Instruction, width: int) -> DepthwiseGeometry:
    """Geometry for chunks of `width` elements, with the padding that the buffer of `src` has now."""
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
    """Neighbouring pixels in one chunk of `width` elements, 1 if they cannot share one.

    They can where their channels adjoin in both `src` and `dest` and whole pixels fill whole chunks.
    `size`: bytes of an element of `src`.
    """
    dest = instruction.operand("dest").type.element.size
    joined = width // channels
    adjoin = axis.src_stride == channels * size and axis.dest_stride == channels * dest
    fills = joined > 1 and width % channels == 0 and axis.count % joined == 0
    return joined if adjoin and fills else 1


TileEmitter = Callable[[Value, Value, Index, int], None]
"""Emits a tile; gets the addresses of the first window and the first result, chunk number and pixels."""


def emit_tiles(
    e: Emitter,
    geometry: DepthwiseGeometry,
    src: Value,
    dest: Value,
    sizes: tuple[int, int],
    most_pixels: int,
    emit: TileEmitter,
) -> None:
    """Emit loops over rows, in these over chunks, and in these over tiles.

    Chunks are outside of tiles, so that all tiles of a row use the same weights one after the other. Threads
    share the longest of the outer axes, or the chunks where there are more of them.
    `sizes`: bytes of an element of `src` and of `dest`.
    """
    *outer, _ = geometry.axes
    shares_rows = any(axis.count >= geometry.chunks for axis in outer)
    chunks = e.loop(*e.share(geometry.chunks, not shares_rows), name="chunk")
    around = rows(e, outer, src, dest, geometry.row_results, shares_rows)
    with around as (src_row, dest_row), chunks as chunk:
        start = _first_channel(e, geometry, chunk)
        src_chunk = e.offset(src_row, e.scaled(start, sizes[0]))
        dest_chunk = e.offset(dest_row, e.scaled(start, sizes[1]))
        _emit_row(e, geometry, src_chunk, dest_chunk, chunk, most_pixels, emit)


def emit_averaged_tiles(
    e: Emitter,
    geometry: DepthwiseGeometry,
    src: Value,
    dest: Value,
    means: Value,
    most_pixels: int,
    emit: TileEmitter,
    mean_sink: MeanSink,
) -> None:
    """Emit loops over chunks, images, rows and tiles of int8, where means are stored instead of results.

    The means of a chunk are stored after each image. Chunks are the outer loop, and the one that threads
    share: a mean needs the results of a whole image, which thus all come from one thread.
    """
    *images, outer, _ = geometry.axes
    image_axis = images[0] if images else NO_AXIS
    channels = min(geometry.width, geometry.channels)
    averaged = ChannelSlice(geometry.width // PACKED, PACKED, channels, geometry.joined)
    chunks = e.loop(*e.share(geometry.chunks), name="chunk")
    (live,) = e.live_axes([image_axis.count], outer.count * geometry.row_results)
    with chunks as chunk, e.loop(0, live, name="image") as image:
        start = _first_channel(e, geometry, chunk)
        moves = (image_axis.src_stride, image_axis.dest_stride, mean_sink.image_bytes)
        src_chunk, dest_chunk, means_chunk = (
            e.offset(pointer, e.plus(e.scaled(image, move), start))
            for pointer, move in zip((src, dest, means), moves, strict=True)
        )
        mean_sink.start(e, averaged)
        around = rows(e, [outer], src_chunk, dest_chunk, geometry.row_results, shared=False)
        with around as (src_row, dest_row):
            _emit_row(e, geometry, src_row, dest_row, chunk, most_pixels, emit)
        mean_sink.finish(e, averaged, means_chunk)


def _first_channel(e: Emitter, geometry: DepthwiseGeometry, chunk: Index) -> Index:
    start = e.scaled(chunk, geometry.width)
    if geometry.channels % geometry.width:
        # The last chunk begins early and computes some channels twice, so that all chunks are whole vectors.
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
    """Emit the tiles of one row of pixels and one chunk."""
    inner = geometry.axes[-1]
    for piece in divide(inner.count, most_pixels):
        with e.loop(0, piece.count, name="tile") as tile:
            pixel = e.plus(e.scaled(tile, piece.size), piece.start)
            first = e.offset(src, e.scaled(pixel, inner.src_stride))
            result = e.offset(dest, e.scaled(pixel, inner.dest_stride))
            emit(first, result, chunk, piece.size)


@contextmanager
def rows(
    e: Emitter, axes: Sequence[Axis], src: Value, dest: Value, inside: int, shared: bool
) -> Iterator[tuple[Value, Value]]:
    """Emit nested loops over `axes` that move both addresses; if `shared`, threads share the longest axis.

    inside: results in a turn of the innermost one.
    """
    live = e.live_axes([axis.count for axis in axes], inside)
    longest = max(axes, key=lambda axis: axis.count) if shared else None
    with ExitStack() as stack:
        for axis, count in zip(axes, live, strict=True):
            first, end = e.share(axis.count, axis is longest)
            index = stack.enter_context(e.loop(first, e.minimum(end, count), name="row"))
            src = e.offset(src, e.scaled(index, axis.src_stride))
            dest = e.offset(dest, e.scaled(index, axis.dest_stride))
        yield src, dest

"""Loops of an implicit matrix product, outermost first: groups, blocks of channels, rows of pixels.

Blocks of channels are outside of pixels, so that the weights of a block stay in the cache for all pixels. A
product whose weights all fit may have the rows of pixels outside instead.

Threads share one of these loops. If they share pixels, each thread reads all weights. If they share blocks of
channels, each thread reads all pixels, some of which another thread has just written; the next product mostly
shares pixels, so it too reads results of other threads. Such bytes move from the cache of one core to that of
another, which takes longer than reading constants.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

from qglow.kernels.emit.builder import F32, Index, Value
from qglow.kernels.emit.emitter import Emitter
from qglow.kernels.emit.kernel import ChannelSlice
from qglow.kernels.tiled.blocking import Piece, divide
from qglow.kernels.tiled.geometry import Axis, Geometry
from qglow.kernels.tiles.output import OutputStage
from qglow.kernels.tiles.tile import PackedTile

SCALE_BYTES = 4


@dataclass(frozen=True)
class Pointers:
    """Addresses where a part of the product starts.

    `multiplier`: None where sums are not rescaled. `ahead`: bytes from the weights in use to those that are
    prefetched. `means`: where means are stored, if results are averaged instead of stored. `row_scales`: of
    pixels, if they have their own. `addend`: what is added to the scaled sums of a channel.
    """

    src: Value
    dest: Value
    weights: Value
    bias: Value
    multiplier: Value | None
    ahead: Index = 0
    means: Value | None = None
    row_scales: Value | None = None
    addend: Value | None = None

    def moved(
        self,
        e: Emitter,
        src: Index = 0,
        dest: Index = 0,
        weights: Index = 0,
        sums: Index = 0,
        ahead: Index = 0,
        means: Index = 0,
        pixels: Index = 0,
    ) -> Pointers:
        """Addresses moved by these numbers of bytes; `sums` moves all that has one element a channel.

        pixels: how many pixels later those of `src` and `dest` are, where these have scales of their own.
        """

        def also(pointer: Value | None, bytes_: Index) -> Value | None:
            return None if pointer is None else e.offset(pointer, bytes_)

        return Pointers(
            e.offset(self.src, src),
            e.offset(self.dest, dest),
            e.offset(self.weights, weights),
            e.offset(self.bias, sums),
            also(self.multiplier, sums),
            e.plus(self.ahead, ahead),
            also(self.means, means),
            None if self.row_scales is None else e.offset(self.row_scales, e.scaled(pixels, SCALE_BYTES)),
            also(self.addend, sums),
        )

    def pixel_scales(self, e: Emitter, pixels: Sequence[Index]) -> list[Value]:
        """Load the scales of some pixels from here on; none where they have none of their own."""
        if self.row_scales is None:
            return []
        return [e.load(e.offset(self.row_scales, e.scaled(p, SCALE_BYTES)), F32) for p in pixels]

    def channel_terms(self, e: Emitter, vectors: int, kind: Value) -> tuple[list[Value], list[Value]]:
        """Load multipliers and addends of some vectors of channels; none where there are none."""
        size = SCALE_BYTES * kind.count

        def loaded(start: Value | None) -> list[Value]:
            places = [] if start is None else [e.offset(start, v * size) for v in range(vectors)]
            return [e.load(place, kind, align=size) for place in places]

        return loaded(self.multiplier), loaded(self.addend)


@dataclass(frozen=True)
class Block:
    """Adjacent blocks of channels that share code: `piece` in vectors, `channels` that each block stores.

    Only the last block of a product may end in a partial vector.
    """

    piece: Piece
    channels: int


FEW_THREADS = (2, 4)
"""Numbers of threads over which estimates are averaged; the real number is only known at run time."""


class Shared(Enum):
    """The loop that threads share."""

    GROUPS = "groups"
    BLOCKS = "blocks"
    PIXELS = "pixels"


@dataclass(frozen=True)
class ProductLoops(ABC):
    """Loops of one implicit matrix product in blocks of at most `most_vectors` vectors.

    Where results are averaged over an image, `geometry` is that of one image, and the loop over `images` lies
    inside of that over blocks of channels: there is room for the sums of one block at a time.
    """

    e: Emitter
    geometry: Geometry
    tile: PackedTile
    output: OutputStage
    most_vectors: int
    images: Axis

    def emit(self, pointers: Pointers) -> None:
        """Emit a loop over groups around the loops of one group."""
        geometry, e = self.geometry, self.e
        vectors = -(-geometry.filters // self.tile.lanes)
        with e.loop(*self.share(Shared.GROUPS, geometry.groups), name="group") as group:
            depth = geometry.channels // geometry.groups
            src = e.scaled(group, depth * self._src_bytes)
            channels = e.scaled(group, geometry.filters * self.output.element_bytes)
            moved = pointers.moved(
                e,
                src=src,
                dest=channels,
                means=channels,
                weights=e.scaled(group, vectors * self.vector_stride),
                sums=e.scaled(group, vectors * self.tile.accumulator_bytes),
            )
            self.emit_group(moved)

    @property
    def each(self) -> int:
        """Results of a pixel."""
        return self.geometry.groups * self.geometry.filters

    @property
    def _src_bytes(self) -> int:
        return 4 if self.tile.is_float else 1

    @property
    def _vector_weights(self) -> int:
        """Packed bytes of one vector of channels."""
        return self.tile.weight_bytes * self.geometry.runs.total_steps

    @property
    def vector_stride(self) -> int:
        """Bytes from the weights of one vector of channels to those of the next."""
        return self._vector_weights

    @abstractmethod
    def emit_group(self, pointers: Pointers) -> None:
        """Emit the product of one group."""

    @property
    @abstractmethod
    def pixel_units(self) -> int:
        """Number of equal pieces that the loop over pixels has for threads to share."""

    def share(self, loop: Shared, units: int) -> tuple[Index, Index]:
        """Range of a loop of `units` that one thread runs: its share of the shared loop, all of others."""
        return self.e.share(units, loop is self.shared)

    @cached_property
    def shared(self) -> Shared:
        """Loop for threads to share: the one of least estimated time, averaged over `FEW_THREADS`.

        The time is that of the thread with most work, and of reading what the module's docstring describes:
        all weights if pixels are shared, else activations from the caches of other cores.
        """
        groups, runs, model = self.geometry.groups, self.geometry.runs, self.e.target.model
        vectors = -(-self.geometry.filters // self.tile.lanes)
        pixels = self.geometry.pixels
        work = groups * pixels * vectors * runs.total_steps / 2
        blocks = sum(block.piece.count for block in self.blocks())
        results = groups * self.geometry.filters * self.output.element_bytes
        moved = pixels * (self.geometry.channels * self._src_bytes + results)
        choices = {
            Shared.PIXELS: (
                self.pixel_units,
                groups * vectors * self._vector_weights / model.constant_bytes_a_cycle,
            ),
            Shared.GROUPS: (groups, moved / model.moved_bytes_a_cycle),
            Shared.BLOCKS: (blocks, moved / model.moved_bytes_a_cycle),
        }

        def cost(loop: Shared) -> float:
            units, reading = choices[loop]
            uneven = sum(-(-units // n) * n / units for n in FEW_THREADS) / len(FEW_THREADS)
            return work * uneven + reading

        # A mean needs the results of all pixels, so one thread has to compute them.
        whole = self.output.mean_sink is not None
        return min((loop for loop in choices if not (whole and loop is Shared.PIXELS)), key=cost)

    def blocks(self) -> list[Block]:
        """Blocks of channels, grouped by equal code; the last is alone where its last vector is partial."""
        lanes = self.tile.lanes
        total = -(-self.geometry.filters // lanes)
        blocks = []
        for piece in divide(total, self.most_vectors):
            end = piece.start + piece.size * piece.count
            whole, partial = piece, None
            # How many channels a block stores is a constant in its code, so a partial block has code of its
            # own.
            if end * lanes > self.geometry.filters:
                whole = Piece(piece.start, piece.size, piece.count - 1)
                partial = Piece(end - piece.size, piece.size, 1)
            if whole.count:
                blocks.append(Block(whole, piece.size * lanes))
            if partial:
                blocks.append(Block(partial, self.geometry.filters - partial.start * lanes))
        return blocks

    @contextmanager
    def block_loop(self, block: Block, pointers: Pointers) -> Iterator[Pointers]:
        """Emit a loop over adjacent blocks that share code; yields the addresses of a block."""
        e, piece = self.e, block.piece
        every = self.blocks()
        share = self.share(Shared.BLOCKS, sum(b.piece.count for b in every))
        first = sum(b.piece.count for b in every[: every.index(block)])
        with e.shared_loop(share, first, piece.count, name="block") as index:
            vector = e.plus(e.scaled(index, piece.size), piece.start)
            channels = e.scaled(vector, self.tile.lanes * self.output.element_bytes)
            yield pointers.moved(
                e,
                dest=channels,
                means=channels,
                weights=e.scaled(vector, self.vector_stride),
                sums=e.scaled(vector, self.tile.accumulator_bytes),
            )

    @contextmanager
    def averaged_images(self, block: Block, pointers: Pointers) -> Iterator[Pointers]:
        """Emit a loop over images that stores the means of a block after each; yields an image's addresses.

        Without means there is no loop, and `pointers` are yielded as they are.
        """
        sink, e = self.output.mean_sink, self.e
        if sink is None:
            yield pointers
            return
        channels = ChannelSlice(self.tile.lanes, block.piece.size, block.channels)
        pixels = math.prod(axis.count for axis in self.geometry.axes)
        (count,) = e.live_axes([self.images.count], pixels * self.each)
        with e.loop(0, count, name="image") as image:
            moved = pointers.moved(
                e,
                src=e.scaled(image, self.images.src_stride),
                dest=e.scaled(image, self.images.dest_stride),
                means=e.scaled(image, sink.image_bytes),
            )
            sink.start(e, channels)
            yield moved
            sink.finish(e, channels, moved.means)

    @contextmanager
    def row_loops(
        self, axes: Sequence[Axis], pointers: Pointers, pixels: int, ahead: int = 0, shared: bool = True
    ) -> Iterator[Pointers]:
        """Emit nested loops over `axes`; yields the addresses of a row of so many pixels.

        `ahead`: bytes by which the prefetched place advances from row to row. `shared`: where threads share
        pixels, they share the longest of these axes.
        """
        e = self.e
        longest = max(axes, key=lambda axis: axis.count, default=None) if shared else None
        live = e.live_axes([axis.count for axis in axes], pixels * self.each)
        with ExitStack() as stack:
            for number, axis in enumerate(axes):
                step = ahead * math.prod(inner.count for inner in axes[number + 1 :])
                first, end = e.share(axis.count, axis is longest and self.shared is Shared.PIXELS)
                index = stack.enter_context(e.loop(first, e.minimum(end, live[number]), name="row"))
                src, dest = (e.scaled(index, s) for s in (axis.src_stride, axis.dest_stride))
                pointers = pointers.moved(e, src=src, dest=dest, ahead=e.scaled(index, step))
            yield pointers

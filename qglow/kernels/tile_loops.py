"""The loops of an implicit matrix product: groups, blocks of channels, rows of pixels.

Threads share one of these loops. Those that share pixels all read the weights. Those that share
blocks of channels all read the pixels, half of which another thread wrote, and leave results to
readers who mostly share pixels: bytes on their way from one core's cache to another's, which takes
longer than to read constants.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

from qglow.kernels.builder import Emitter, Index, Value
from qglow.kernels.conv_blocking import Piece, divide
from qglow.kernels.conv_geometry import Axis, Geometry
from qglow.kernels.kernel import Slice
from qglow.kernels.tile import PackedTile
from qglow.kernels.tile_output import OutputStage


@dataclass(frozen=True)
class Pointers:
    """Addresses that a stretch of the product starts from; no multiplier where sums are results.

    `ahead` is the distance from weights to those that are to be fetched early. Means of results that are
    added up are stored at `means`.
    """

    src: Value
    dest: Value
    weights: Value
    bias: Value
    multiplier: Value | None
    ahead: Index = 0
    means: Value | None = None

    def moved(
        self,
        e: Emitter,
        src: Index = 0,
        dest: Index = 0,
        weights: Index = 0,
        sums: Index = 0,
        ahead: Index = 0,
        means: Index = 0,
    ) -> Pointers:
        """The same, further on by these bytes; `sums` moves bias and multiplier."""
        multiplier = None if self.multiplier is None else e.offset(self.multiplier, sums)
        return Pointers(
            e.offset(self.src, src),
            e.offset(self.dest, dest),
            e.offset(self.weights, weights),
            e.offset(self.bias, sums),
            multiplier,
            e.plus(self.ahead, ahead),
            None if self.means is None else e.offset(self.means, means),
        )


@dataclass(frozen=True)
class Block:
    """Adjacent blocks of `vectors` vectors; only the last block of all may end in part of a vector."""

    piece: Piece
    channels: int


CONSTANT_BYTES_A_CYCLE, MOVED_BYTES_A_CYCLE = 16.0, 4.0
"""How fast a thread reads constants, and what another thread has written [measured]."""
FEW_THREADS = (2, 4)
"""Numbers of threads for which loops are compared."""


class Shared(Enum):
    """The loop that threads share."""

    GROUPS = "groups"
    BLOCKS = "blocks"
    PIXELS = "pixels"


@dataclass(frozen=True)
class ProductLoops(ABC):
    """Loops of one implicit matrix product in blocks of at most `most_vectors` vectors.

    Where results are added up, `geometry` is that of one image, and blocks of channels are the outer loop.
    """

    e: Emitter
    geometry: Geometry
    tile: PackedTile
    output: OutputStage
    most_vectors: int
    images: Axis

    def emit(self, pointers: Pointers) -> None:
        """A loop over groups."""
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
    def _src_bytes(self) -> int:
        return 4 if self.tile.is_float else 1

    @property
    def _vector_weights(self) -> int:
        """Packed bytes of one vector of channels."""
        return self.tile.weight_bytes * self.geometry.runs.total_steps

    @property
    def vector_stride(self) -> int:
        """Bytes from where the weights of a vector are found to where those of the next are."""
        return self._vector_weights

    @abstractmethod
    def emit_group(self, pointers: Pointers) -> None:
        """The product of one group."""

    @property
    @abstractmethod
    def pixel_units(self) -> int:
        """Pieces of work in the loop over pixels that threads may share."""

    def share(self, loop: Shared, units: int) -> tuple[Index, Index]:
        """What a thread does of a loop: its share where this is the shared loop, else everything."""
        return self.e.share(units, loop is self.shared)

    @cached_property
    def shared(self) -> Shared:
        """The loop whose sharing costs least time for few threads."""
        groups, runs = self.geometry.groups, self.geometry.runs
        vectors = -(-self.geometry.filters // self.tile.lanes)
        pixels = math.prod(axis.count for axis in self.geometry.walked_axes)
        work = groups * pixels * vectors * runs.total_steps / 2
        blocks = sum(block.piece.count for block in self.blocks())
        results = groups * self.geometry.filters * self.output.element_bytes
        moved = pixels * (self.geometry.channels * self._src_bytes + results)
        choices = {
            Shared.PIXELS: (
                self.pixel_units,
                groups * vectors * self._vector_weights / CONSTANT_BYTES_A_CYCLE,
            ),
            Shared.GROUPS: (groups, moved / MOVED_BYTES_A_CYCLE),
            Shared.BLOCKS: (blocks, moved / MOVED_BYTES_A_CYCLE),
        }

        def cost(loop: Shared) -> float:
            units, reading = choices[loop]
            uneven = sum(-(-units // n) * n / units for n in FEW_THREADS) / len(FEW_THREADS)
            return work * uneven + reading

        # Who adds up results needs those of all pixels.
        return min((loop for loop in choices if not (self.output.pool and loop is Shared.PIXELS)), key=cost)

    def blocks(self) -> list[Block]:
        """Blocks of channels; the last one stands alone where its last vector is partial."""
        lanes = self.tile.lanes
        total = -(-self.geometry.filters // lanes)
        blocks = []
        for piece in divide(total, self.most_vectors):
            end = piece.start + piece.size * piece.count
            whole, partial = piece, None
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
        """A loop over the blocks of one kind."""
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
    def pooled_images(self, block: Block, pointers: Pointers) -> Iterator[Pointers]:
        """A loop over images with the means of a block behind each; without a pool what there is."""
        pool, e = self.output.pool, self.e
        if pool is None:
            yield pointers
            return
        channels = Slice(self.tile.lanes, block.piece.size, block.channels)
        with e.loop(0, self.images.count, name="image") as image:
            moved = pointers.moved(
                e,
                src=e.scaled(image, self.images.src_stride),
                dest=e.scaled(image, self.images.dest_stride),
                means=e.scaled(image, pool.image_bytes),
            )
            pool.start(e, channels)
            yield moved
            pool.finish(e, channels, moved.means)

    @contextmanager
    def row_loops(
        self, axes: Sequence[Axis], pointers: Pointers, ahead: int = 0, shared: bool = True
    ) -> Iterator[Pointers]:
        """A loop nest over all axes but the innermost; `ahead` moves by this much a row.

        `shared`: where threads share pixels, they share the longest of these axes.
        """
        e = self.e
        ahead *= math.prod(axis.count for axis in axes)
        longest = max(axes, key=lambda axis: axis.count, default=None) if shared else None
        with ExitStack() as stack:
            for axis in axes:
                ahead //= axis.count
                share = e.share(axis.count, axis is longest and self.shared is Shared.PIXELS)
                index = stack.enter_context(e.loop(*share, name="row"))
                src, dest = (e.scaled(index, s) for s in (axis.src_stride, axis.dest_stride))
                pointers = pointers.moved(e, src=src, dest=dest, ahead=e.scaled(index, ahead))
            yield pointers

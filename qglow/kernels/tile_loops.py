"""The loops of an implicit matrix product: groups, blocks of channels, rows of pixels."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from qglow.kernels.builder import Emitter, Index, Value
from qglow.kernels.conv_blocking import Piece, divide
from qglow.kernels.conv_geometry import Axis, Geometry
from qglow.kernels.tile import PackedTile
from qglow.kernels.tile_output import OutputStage


@dataclass(frozen=True)
class Pointers:
    """Addresses that a stretch of the product starts from; no multiplier for floats.

    `ahead` is the distance from weights to those that are to be fetched early.
    """

    src: Value
    dest: Value
    weights: Value
    bias: Value
    multiplier: Value | None
    ahead: Index = 0

    def moved(
        self,
        e: Emitter,
        src: Index = 0,
        dest: Index = 0,
        weights: Index = 0,
        sums: Index = 0,
        ahead: Index = 0,
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
        )


@dataclass(frozen=True)
class Block:
    """Adjacent blocks of `vectors` vectors; only the last block of all may end in part of a vector."""

    piece: Piece
    channels: int


@dataclass(frozen=True)
class ProductLoops(ABC):
    """Loops of one implicit matrix product in blocks of at most `most_vectors` vectors."""

    e: Emitter
    geometry: Geometry
    tile: PackedTile
    output: OutputStage
    most_vectors: int

    def emit(self, pointers: Pointers) -> None:
        """A loop over groups."""
        geometry, e = self.geometry, self.e
        vectors = -(-geometry.filters // self.tile.lanes)
        with e.loop(0, geometry.groups, name="group") as group:
            depth = geometry.channels // geometry.groups
            moved = pointers.moved(
                e,
                src=e.scaled(group, depth * self._src_bytes),
                dest=e.scaled(group, geometry.filters * self.output.element_bytes),
                weights=e.scaled(group, vectors * self._vector_weights),
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

    @abstractmethod
    def emit_group(self, pointers: Pointers) -> None:
        """The product of one group."""

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
        with e.loop(0, piece.count, name="block") as index:
            vector = e.plus(e.scaled(index, piece.size), piece.start)
            yield pointers.moved(
                e,
                dest=e.scaled(vector, self.tile.lanes * self.output.element_bytes),
                weights=e.scaled(vector, self._vector_weights),
                sums=e.scaled(vector, self.tile.accumulator_bytes),
            )

    @contextmanager
    def row_loops(self, axes: Sequence[Axis], pointers: Pointers, ahead: int = 0) -> Iterator[Pointers]:
        """A loop nest over all axes but the innermost; `ahead` moves by this much a row."""
        e = self.e
        ahead *= math.prod(axis.count for axis in axes)
        with ExitStack() as stack:
            for axis in axes:
                ahead //= axis.count
                index = stack.enter_context(e.loop(0, axis.count, name="row"))
                src, dest = (e.scaled(index, s) for s in (axis.src_stride, axis.dest_stride))
                pointers = pointers.moved(e, src=src, dest=dest, ahead=e.scaled(index, ahead))
            yield pointers

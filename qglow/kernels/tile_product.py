"""The loops of an implicit matrix product around its micro-kernel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from qglow.kernels.builder import F32, Emitter, Index, Value, vec
from qglow.kernels.conv_blocking import Blocking, Piece, divide, pixel_axes
from qglow.kernels.conv_geometry import STEP, Axis, Geometry, Runs
from qglow.kernels.tile import MicroTile
from qglow.kernels.tile_output import OutputStage

UNROLLED_STEPS = 8
"""A window of up to this many steps is unrolled whole."""
UNROLL_CHOICES = (4, 3, 5, 2)


@dataclass(frozen=True)
class Pointers:
    """Addresses that a stretch of the product starts from; no multiplier for floats."""

    src: Value
    dest: Value
    weights: Value
    bias: Value
    multiplier: Value | None

    def moved(
        self, e: Emitter, src: Index = 0, dest: Index = 0, weights: Index = 0, sums: Index = 0
    ) -> Pointers:
        """The same, further on by these bytes; `sums` moves bias and multiplier."""
        multiplier = None if self.multiplier is None else e.offset(self.multiplier, sums)
        return Pointers(
            e.offset(self.src, src),
            e.offset(self.dest, dest),
            e.offset(self.weights, weights),
            e.offset(self.bias, sums),
            multiplier,
        )


@dataclass(frozen=True)
class Block:
    """Adjacent blocks of `vectors` vectors; only the last block of all may end in part of a vector."""

    piece: Piece
    channels: int


@dataclass(frozen=True)
class Product:
    """One implicit matrix product, ready to be emitted."""

    e: Emitter
    geometry: Geometry
    tile: MicroTile
    blocking: Blocking
    output: OutputStage

    def emit(self, pointers: Pointers) -> None:
        """Loops over groups, then blocks of channels and rows of pixels in the chosen order."""
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
            self._emit_group(moved)

    @property
    def _src_bytes(self) -> int:
        return 4 if self.tile.is_float else 1

    @property
    def _vector_weights(self) -> int:
        """Packed bytes of one vector of channels."""
        return self.tile.weight_bytes * self.geometry.runs.total_steps

    def _emit_group(self, pointers: Pointers) -> None:
        axes = pixel_axes(self.geometry, self.blocking.by_rows)
        if self.blocking.by_rows:
            with self._rows(axes[:-1], pointers) as row:
                for block in self.blocks():
                    with self._block(block, row) as moved:
                        self._emit_row(axes[-1], block, moved)
            return
        for block in self.blocks():
            with self._block(block, pointers) as moved, self._rows(axes[:-1], moved) as row:
                self._emit_row(axes[-1], block, row)

    def blocks(self) -> list[Block]:
        """Blocks of channels; the last one stands alone where its last vector is partial."""
        lanes = self.tile.lanes
        total = -(-self.geometry.filters // lanes)
        blocks = []
        for piece in divide(total, self.blocking.vectors):
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
    def _block(self, block: Block, pointers: Pointers) -> Iterator[Pointers]:
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
    def _rows(self, axes: Sequence[Axis], pointers: Pointers) -> Iterator[Pointers]:
        """A loop nest over all axes but the innermost."""
        with ExitStack() as stack:
            for axis in axes:
                index = stack.enter_context(self.e.loop(0, axis.count, name="row"))
                src, dest = (self.e.scaled(index, s) for s in (axis.src_stride, axis.dest_stride))
                pointers = pointers.moved(self.e, src=src, dest=dest)
            yield pointers

    def _emit_row(self, axis: Axis, block: Block, pointers: Pointers) -> None:
        """Tiles along the innermost axis."""
        e = self.e
        for piece in divide(axis.count, self.blocking.pixels):
            with e.loop(0, piece.count, name="tile") as index:
                pixel = e.plus(e.scaled(index, piece.size), piece.start)
                src, dest = (e.scaled(pixel, s) for s in (axis.src_stride, axis.dest_stride))
                self._emit_tile(axis, piece.size, block, pointers.moved(e, src=src, dest=dest))

    def _emit_tile(self, axis: Axis, pixels: int, block: Block, pointers: Pointers) -> None:
        e, tile, size = self.e, self.tile, self.tile.accumulator_bytes
        vectors = range(block.piece.size)
        bias = [e.load(e.offset(pointers.bias, v * size), tile.accumulator, align=size) for v in vectors]
        sums = [bias[v] for _ in range(pixels) for v in vectors]
        sums = self._walk(sums, pointers, [p * axis.src_stride for p in range(pixels)], len(vectors))
        rows = [sums[p * len(vectors) : (p + 1) * len(vectors)] for p in range(pixels)]
        multipliers = []
        if pointers.multiplier is not None:
            kind = vec(F32, tile.lanes)
            multipliers = [e.load(e.offset(pointers.multiplier, v * size), kind, align=size) for v in vectors]
        dests = [e.offset(pointers.dest, p * axis.dest_stride) for p in range(pixels)]
        self.output.emit(e, rows, multipliers, dests, block.channels)

    def _walk(self, sums: list[Value], pointers: Pointers, pixels: list[int], vectors: int) -> list[Value]:
        """All steps of a tile: rows, columns and steps of the window, in ascending order."""
        e, runs = self.e, self.geometry.runs
        step_bytes = vectors * self.tile.weight_bytes
        row_bytes = runs.columns * runs.steps * step_bytes
        whole = runs.total_steps <= UNROLLED_STEPS
        plan = [
            (runs.rows, runs.row_stride, row_bytes, whole),
            (runs.columns, runs.column_stride, runs.steps * step_bytes, _columns_unroll(runs)),
        ]

        def walk(level: int, src: Value, weights: Value, sums: list[Value]) -> list[Value]:
            if level == len(plan):
                return self._run(sums, src, weights, pixels, vectors)
            count, src_stride, weight_stride, unroll = plan[level]
            if unroll or count == 1:
                for i in range(count):
                    sums = walk(
                        level + 1, e.offset(src, i * src_stride), e.offset(weights, i * weight_stride), sums
                    )
                return sums
            with e.carrying_loop(0, count, sums, name="window") as carry:
                inner_src = e.offset(src, e.scaled(carry.index, src_stride))
                inner_weights = e.offset(weights, e.scaled(carry.index, weight_stride))
                carry.next(walk(level + 1, inner_src, inner_weights, carry.values))
            return carry.values

        return walk(0, pointers.src, pointers.weights, sums)

    def _run(
        self, sums: list[Value], src: Value, weights: Value, pixels: list[int], vectors: int
    ) -> list[Value]:
        """The steps of one run: a loop of a few steps a turn, then the rest."""
        e, steps = self.e, self.geometry.runs.steps
        step_bytes = vectors * self.tile.weight_bytes
        done = 0
        if steps > UNROLLED_STEPS:
            unroll = next((u for u in UNROLL_CHOICES if steps % u == 0), UNROLL_CHOICES[0])
            turns = steps // unroll
            with e.carrying_loop(0, turns, sums, name="steps") as carry:
                inner_src = e.offset(src, e.scaled(carry.index, unroll * STEP))
                inner_weights = e.offset(weights, e.scaled(carry.index, unroll * step_bytes))
                inner = carry.values
                for step in range(unroll):
                    inner = self._step(inner, inner_src, inner_weights, step, pixels, vectors)
                carry.next(inner)
            sums, done = carry.values, turns * unroll
        for step in range(done, steps):
            sums = self._step(sums, src, weights, step, pixels, vectors)
        return sums

    def _step(
        self,
        sums: list[Value],
        src: Value,
        weights: Value,
        step: int,
        pixels: list[int],
        vectors: int,
    ) -> list[Value]:
        """One step of every pixel with every vector."""
        e, tile = self.e, self.tile
        first = step * vectors * tile.weight_bytes
        loaded = [
            tile.load_weights(e, e.offset(weights, first + v * tile.weight_bytes)) for v in range(vectors)
        ]
        result = []
        for number, offset in enumerate(pixels):
            activation = tile.load_activation(e, e.offset(src, offset + step * STEP))
            for v in range(vectors):
                result.append(tile.accumulate(e, sums[number * vectors + v], activation, loaded[v]))
        return result


def _columns_unroll(runs: Runs) -> bool:
    return runs.columns * runs.steps <= UNROLLED_STEPS

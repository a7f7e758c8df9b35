"""Implicit matrix products on vector registers: tiles of accumulators and their steps."""

from __future__ import annotations

from dataclasses import dataclass

from qglow.kernels.builder import F32, Value, vec
from qglow.kernels.conv_blocking import divide, pixel_axes
from qglow.kernels.conv_geometry import STEP, Axis, Runs
from qglow.kernels.tile import MicroTile
from qglow.kernels.tile_loops import Block, Pointers, ProductLoops

UNROLLED_STEPS = 8
"""A window of up to this many steps is unrolled whole."""
UNROLL_CHOICES = (4, 3, 5, 2)


@dataclass(frozen=True)
class VectorProduct(ProductLoops):
    """Tiles of at most `most_pixels` x `most_vectors` accumulators.

    `by_rows`: all weights pass over a row of pixels before the next row is begun.
    """

    tile: MicroTile
    most_pixels: int
    by_rows: bool

    def emit_group(self, pointers: Pointers) -> None:
        """Blocks of channels and rows of pixels in the chosen order."""
        axes = pixel_axes(self.geometry, self.by_rows)
        if self.by_rows:
            with self.row_loops(axes[:-1], pointers) as row:
                for block in self.blocks():
                    with self.block_loop(block, row) as moved:
                        self._emit_row(axes[-1], block, moved)
            return
        for block in self.blocks():
            with self.block_loop(block, pointers) as moved, self.row_loops(axes[:-1], moved) as row:
                self._emit_row(axes[-1], block, row)

    def _emit_row(self, axis: Axis, block: Block, pointers: Pointers) -> None:
        """Tiles along the innermost axis."""
        e = self.e
        for piece in divide(axis.count, self.most_pixels):
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

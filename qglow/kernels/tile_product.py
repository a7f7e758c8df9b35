"""Implicit matrix products on vector registers: tiles of accumulators and their steps."""

from __future__ import annotations

import math
from dataclasses import dataclass

from llvmlite import ir

from qglow.kernels.builder import F32, I32, VOID, Emitter, Index, Value, vec
from qglow.kernels.conv_blocking import divide, pixel_axes
from qglow.kernels.conv_geometry import STEP, Axis, Runs
from qglow.kernels.tile import MicroTile
from qglow.kernels.tile_loops import Block, Pointers, ProductLoops, Shared

UNROLLED_STEPS = 4
"""A window of up to this many steps is unrolled whole. More makes code, not speed [measured]."""
UNROLL_CHOICES = (2, 3)
LINE_BYTES = 64
EARLY_BYTES = 4 * 1024
"""Blocks of weights from this size on are fetched while the one before them is in use [measured]."""


@dataclass(frozen=True)
class VectorProduct(ProductLoops):
    """Tiles of at most `most_pixels` x `most_vectors` accumulators.

    `by_rows`: all weights pass over a row of pixels before the next row is begun.
    """

    tile: MicroTile
    most_pixels: int
    by_rows: bool

    @property
    def pixel_units(self) -> int:
        """Rows along the longest of the outer axes, else tiles of the one row."""
        *outer, inner = pixel_axes(self.geometry, self.by_rows)
        if outer:
            return max(axis.count for axis in outer)
        return sum(piece.count for piece in divide(inner.count, self.most_pixels))

    def emit_group(self, pointers: Pointers) -> None:
        """Blocks of channels and rows of pixels in the chosen order."""
        axes = pixel_axes(self.geometry, self.by_rows)
        if self.by_rows:
            with self.row_loops(axes[:-1], pointers) as row:
                for block in self.blocks():
                    with self.block_loop(block, row) as moved:
                        self._emit_row(axes[-1], block, moved)
            return
        tiles = sum(piece.count for piece in divide(axes[-1].count, self.most_pixels))
        rows = math.prod(axis.count for axis in axes[:-1])
        for block in self.blocks():
            lines = self._early_lines(block, rows * tiles)
            early = pointers.moved(self.e, ahead=self.next_block(block)) if lines else pointers
            row_ahead = tiles * lines * LINE_BYTES
            with (
                self.block_loop(block, early) as moved,
                self.pooled_images(block, moved) as image,
                self.row_loops(axes[:-1], image, row_ahead) as row,
            ):
                self._emit_row(axes[-1], block, row, lines)

    def next_block(self, block: Block) -> int:
        """Bytes from the weights of a block to those of the next."""
        return block.piece.size * self._vector_weights

    def turn_bytes(self, vectors: int) -> int:
        """Weights of a turn of the innermost loop."""
        return _unroll(self.geometry.runs.steps) * vectors * self.tile.weight_bytes

    def _early_lines(self, block: Block, tiles: int) -> int:
        """Cache lines that a tile fetches of the next block in every turn of its loop; 0 for none.

        All tiles together fetch the whole block, which lies behind this one, as the first block
        of the next layer lies behind the last of this.
        """
        runs = self.geometry.runs
        if (
            tiles == 1
            or self._vector_weights * block.piece.size < EARLY_BYTES
            or runs.steps <= UNROLLED_STEPS
        ):
            return 0
        return -(-(self.turn_bytes(block.piece.size) // LINE_BYTES) // tiles)

    def _emit_row(self, axis: Axis, block: Block, pointers: Pointers, lines: int = 0) -> None:
        """Tiles along the innermost axis."""
        e, first = self.e, 0
        pieces = divide(axis.count, self.most_pixels)
        alone = len(pixel_axes(self.geometry, self.by_rows)) == 1
        tiles = sum(piece.count for piece in pieces)
        share = e.share(tiles, alone and self.shared is Shared.PIXELS)
        for piece in pieces:
            with e.shared_loop(share, first, piece.count, name="tile") as index:
                pixel = e.plus(e.scaled(index, piece.size), piece.start)
                src, dest = (e.scaled(pixel, s) for s in (axis.src_stride, axis.dest_stride))
                ahead = e.scaled(e.plus(index, first), lines * LINE_BYTES)
                self._emit_tile(
                    axis, piece.size, block, pointers.moved(e, src=src, dest=dest, ahead=ahead), lines
                )
            first += piece.count

    def _emit_tile(self, axis: Axis, pixels: int, block: Block, pointers: Pointers, lines: int) -> None:
        e, tile, size = self.e, self.tile, self.tile.accumulator_bytes
        vectors = range(block.piece.size)
        bias = [e.load(e.offset(pointers.bias, v * size), tile.accumulator, align=size) for v in vectors]
        offsets = tuple(p * axis.src_stride for p in range(pixels))
        sums = self.add_products(pointers, offsets, [bias[v] for _ in offsets for v in vectors], lines)
        rows = [sums[p * len(vectors) : (p + 1) * len(vectors)] for p in range(pixels)]
        multipliers = []
        if pointers.multiplier is not None:
            kind = vec(F32, tile.lanes)
            multipliers = [e.load(e.offset(pointers.multiplier, v * size), kind, align=size) for v in vectors]
        dests = [e.offset(pointers.dest, p * axis.dest_stride) for p in range(pixels)]
        self.output.emit(e, rows, multipliers, dests, block.channels)

    def add_products(
        self, pointers: Pointers, offsets: tuple[int, ...], sums: list[Value], lines: int
    ) -> list[Value]:
        """Sums of the pixels at `offsets`, in their order and then in that of vectors, after all steps."""
        vectors = len(sums) // len(offsets)
        steps = _Steps(self.e, self.tile, self.geometry.runs, offsets, vectors, pointers.ahead, lines)
        return steps.window(pointers.src, pointers.weights, sums)


def add_step(
    e: Emitter, tile: MicroTile, src: Value, weights: Value, offsets: tuple[int, ...], sums: list[Value]
) -> list[Value]:
    """One step of the pixels at `offsets` from `src` with every vector at `weights`.

    Sums are in the order of pixels, then vectors.
    """
    vectors = range(len(sums) // len(offsets))
    loaded = [tile.load_weights(e, e.offset(weights, v * tile.weight_bytes)) for v in vectors]
    result = []
    for number, offset in enumerate(offsets):
        activation = tile.load_activation(e, e.offset(src, offset))
        for v in vectors:
            result.append(tile.accumulate(e, sums[number * len(vectors) + v], activation, loaded[v]))
    return result


@dataclass(frozen=True)
class _Steps:
    """The steps of one tile: pixels at `offsets` from its address, `vectors` of channels.

    Sums are in the order of pixels, then vectors. In every turn of the innermost loop `lines`
    cache lines are fetched, `ahead` bytes behind the weights in use.
    """

    e: Emitter
    tile: MicroTile
    runs: Runs
    offsets: tuple[int, ...]
    vectors: int
    ahead: Index
    lines: int

    @property
    def step_bytes(self) -> int:
        """Weights of one step."""
        return self.vectors * self.tile.weight_bytes

    def window(self, src: Value, weights: Value, sums: list[Value], level: int = 0) -> list[Value]:
        """Rows, columns and steps of the window, in ascending order."""
        e, runs = self.e, self.runs
        run_bytes = runs.steps * self.step_bytes
        levels = [
            (runs.rows, runs.row_stride, runs.columns * run_bytes, runs.total_steps),
            (runs.columns, runs.column_stride, run_bytes, runs.columns * runs.steps),
        ]
        if level == len(levels):
            return self._run(src, weights, sums)
        count, src_stride, weight_stride, steps = levels[level]
        if steps <= UNROLLED_STEPS:
            for i in range(count):
                inner = e.offset(src, i * src_stride), e.offset(weights, i * weight_stride)
                sums = self.window(*inner, sums, level + 1)
            return sums
        with e.carrying_loop(0, count, sums, name="window") as carry:
            inner_src = e.offset(src, e.scaled(carry.index, src_stride))
            inner_weights = e.offset(weights, e.scaled(carry.index, weight_stride))
            carry.next(self.window(inner_src, inner_weights, carry.values, level + 1))
        return carry.values

    def _run(self, src: Value, weights: Value, sums: list[Value]) -> list[Value]:
        """The steps of one run: a loop of a few steps a turn, then the rest."""
        e, steps = self.e, self.runs.steps
        done = 0
        if steps > UNROLLED_STEPS:
            unroll = _unroll(steps)
            turns = steps // unroll
            with e.carrying_loop(0, turns, sums, name="steps") as carry:
                inner_src = e.offset(src, e.scaled(carry.index, unroll * STEP))
                inner_weights = e.offset(weights, e.scaled(carry.index, unroll * self.step_bytes))
                fetch_early(e, inner_weights, self.ahead, self.lines)
                inner = carry.values
                for step in range(unroll):
                    inner = self._step(inner_src, inner_weights, inner, step)
                carry.next(inner)
            sums, done = carry.values, turns * unroll
        for step in range(done, steps):
            sums = self._step(src, weights, sums, step)
        return sums

    def _step(self, src: Value, weights: Value, sums: list[Value], step: int) -> list[Value]:
        """One step of every pixel with every vector."""
        e = self.e
        at = e.offset(src, step * STEP), e.offset(weights, step * self.step_bytes)
        return add_step(e, self.tile, *at, self.offsets, sums)


def fetch_early(e: Emitter, weights: Value, ahead: Index, lines: int) -> None:
    """Into the second-level cache; an address beyond all memory does no harm."""
    for line in range(lines):
        place = e.offset(weights, e.plus(ahead, line * LINE_BYTES))
        read, second_level, data = (ir.Constant(I32, value) for value in (0, 2, 1))
        e.call("llvm.prefetch.p0", VOID, [place, read, second_level, data])


def _unroll(steps: int) -> int:
    """Steps in a turn of the loop over a run, a divisor if there is one."""
    return next((u for u in UNROLL_CHOICES if steps % u == 0), UNROLL_CHOICES[0])

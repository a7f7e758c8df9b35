"""Implicit matrix products on the vector unit: order of the loops, tiles of accumulators and their steps."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from qglow.kernels.emit.builder import F32, Index, Value, vec
from qglow.kernels.emit.emitter import Emitter
from qglow.kernels.emit.prefetch import fetch_early
from qglow.kernels.tiled.blocking import divide, pixel_axes
from qglow.kernels.tiled.geometry import Axis, Runs
from qglow.kernels.tiled.loops import Block, Pointers, ProductLoops, Shared
from qglow.kernels.tiles.tile import MicroTile

UNROLLED_STEPS = 4
"""Loops of up to this many portions of steps are unrolled; more of them make code, not speed [measured]."""
COUNTED_TILES = 2
"""Tiles that prefetch the weights of the next block where a call says how many rows it has; it may be few."""
ALONE_AHEAD = 16384
"""Bytes that a tile fetches ahead for itself where it is the only one of its block."""
ALONE_PIXELS = 3
"""Least pixels of such a tile: with fewer the processor's own prefetching keeps up [measured]."""
UNROLL_CHOICES = (2, 3)


@dataclass(frozen=True)
class VectorProduct(ProductLoops):
    """Implicit matrix product in tiles of at most `most_pixels` x `most_vectors` accumulators.

    `by_rows`: loop over rows of pixels outside, over blocks of channels inside; else the other way round.
    """

    tile: MicroTile
    most_pixels: int
    by_rows: bool

    @property
    def pixel_units(self) -> int:
        """Number of rows along the longest of the outer axes, or of tiles if there is only one row."""
        *outer, inner = pixel_axes(self.geometry, self.by_rows)
        if outer:
            return max(axis.count for axis in outer)
        return sum(piece.count for piece in divide(inner.count, self.most_pixels))

    def emit_group(self, pointers: Pointers) -> None:
        """Emit loops over blocks of channels and over rows of pixels, in the order of `by_rows`."""
        axes = pixel_axes(self.geometry, self.by_rows)
        # Few weights: all of them stay in the cache while they pass over one row after another, so rows are
        # outside and each row of pixels comes from distant memory once.
        # Many weights would not stay: blocks are outside, and the weights of a block serve all pixels.
        if self.by_rows:
            with self.row_loops(axes[:-1], pointers, axes[-1].count) as row:
                for block in self.blocks():
                    with self.block_loop(block, row) as moved:
                        self._emit_row(axes[-1], block, moved)
            return
        tiles = sum(piece.count for piece in divide(axes[-1].count, self.most_pixels))
        rows = math.prod(axis.count for axis in axes[:-1])
        for block in self.blocks():
            lines = self.early_lines(block, rows * tiles)
            ahead = ALONE_AHEAD if rows * tiles == 1 else self.next_block(block)
            early = pointers.moved(self.e, ahead=ahead) if lines else pointers
            row_ahead = tiles * lines * self.e.target.model.line_bytes
            with (
                self.block_loop(block, early) as moved,
                self.averaged_images(block, moved) as image,
                self.row_loops(axes[:-1], image, axes[-1].count, row_ahead) as row,
            ):
                self._emit_row(axes[-1], block, row, lines)

    @property
    def _is_counted(self) -> bool:
        """Whether a call may run fewer pixels than there are, and all lie in one row."""
        return self.e.live_period is not None and len(pixel_axes(self.geometry, self.by_rows)) == 1

    def next_block(self, block: Block) -> int:
        """Bytes from the weights of a block to those of the next block."""
        return block.piece.size * self._vector_weights

    def turn_bytes(self, vectors: int) -> int:
        """Bytes of weights that one iteration of the innermost loop reads."""
        return _unroll(self.geometry.runs.steps, self.tile.portions) * vectors * self.tile.weight_bytes

    def early_lines(self, block: Block, tiles: int) -> int:
        """Cache lines that a tile prefetches in each iteration of its loop; 0 for none.

        All `tiles` of a block together prefetch the weights of the next one, which follow in memory; those of
        the next layer follow the last block. A tile that is alone prefetches what it reads itself. Short runs
        are unrolled and have no loop to prefetch in. A call of few rows has few of the tiles: the first ones
        do it all where rows are counted.
        """
        runs = self.geometry.runs
        tiles = min(tiles, COUNTED_TILES) if self._is_counted else tiles
        if (
            (tiles == 1 and self.geometry.pixels < ALONE_PIXELS)
            or self._vector_weights * block.piece.size < self.e.target.model.early_bytes
            or runs.steps * self.tile.portions <= UNROLLED_STEPS
        ):
            return 0
        return -(-(self.turn_bytes(block.piece.size) // self.e.target.model.line_bytes) // tiles)

    def _emit_row(self, axis: Axis, block: Block, pointers: Pointers, lines: int = 0) -> None:
        """Emit the tiles of one row for one block; threads may share them if there is only one row."""
        e, first = self.e, 0
        pieces = divide(axis.count, self.most_pixels)
        alone = len(pixel_axes(self.geometry, self.by_rows)) == 1
        tiles = sum(piece.count for piece in pieces)
        share = e.share(tiles, alone and self.shared is Shared.PIXELS)
        for piece in pieces:
            rows = piece.size * self.each, axis.count * self.each, piece.start * self.each
            count = e.live_pieces(piece.count, *rows)
            with e.shared_loop(share, first, count, name="tile") as index:
                pixel = e.plus(e.scaled(index, piece.size), piece.start)
                src, dest = (e.scaled(pixel, s) for s in (axis.src_stride, axis.dest_stride))
                moved = pointers.moved(e, src=src, dest=dest, pixels=pixel)
                ahead = self._ahead(pointers.ahead, e.plus(index, first), share[0], lines)
                self._emit_tile(axis, piece.size, block, replace(moved, ahead=ahead), lines)
            first += piece.count

    def _ahead(self, ahead: Index, tile: Index, begin: Index, lines: int) -> Index:
        """Bytes from the weights that a tile of a row reads to those that it prefetches.

        Where rows are counted, all but the first tiles of a share, which begins at tile `begin`, fetch what
        they read themselves: what is there already costs nothing, while other weights would come again.
        """
        e, bytes_ = self.e, lines * self.e.target.model.line_bytes
        if not self._is_counted or not lines:
            return e.plus(ahead, e.scaled(tile, bytes_))
        number = e.index(e.plus(tile, e.scaled(begin, -1)))
        own, other = e.index(0), e.index(e.plus(ahead, e.scaled(number, bytes_)))
        return e.b.select(e.b.icmp_signed("<", number, e.index(COUNTED_TILES)), other, own)

    def _emit_tile(self, axis: Axis, pixels: int, block: Block, pointers: Pointers, lines: int) -> None:
        """Emit a tile: sums from the bias over all steps, all of them in registers, then their output."""
        e, tile, size = self.e, self.tile, self.tile.accumulator_bytes
        vectors = range(block.piece.size)
        # Sums start from the bias, as rule 9 demands of float chains; for int8 that saves an addition.
        bias = [e.load(e.offset(pointers.bias, v * size), tile.accumulator, align=size) for v in vectors]
        offsets = tuple(p * axis.src_stride for p in range(pixels))
        sums = self.add_products(pointers, offsets, tile.start(e, bias, pixels), len(bias), lines)
        sums = tile.finish(e, sums, pixels)
        rows = [sums[p * len(vectors) : (p + 1) * len(vectors)] for p in range(pixels)]
        multipliers, addends = pointers.channel_terms(e, len(vectors), vec(F32, tile.lanes))
        dests = [e.offset(pointers.dest, p * axis.dest_stride) for p in range(pixels)]
        scales = pointers.pixel_scales(e, range(pixels))
        self.output.emit(e, rows, multipliers, dests, block.channels, scales, addends)

    def add_products(
        self, pointers: Pointers, offsets: tuple[int, ...], sums: list[Value], vectors: int, lines: int
    ) -> list[Value]:
        """Add the products of all steps to `sums` of the pixels at `offsets` and so many vectors."""
        steps = _Steps(self.e, self.tile, self.geometry.runs, offsets, vectors, pointers.ahead, lines)
        return steps.window(pointers.src, pointers.weights, sums)


@dataclass(frozen=True)
class _Steps:
    """Emitter of all steps of one tile: pixels at `offsets` bytes from its address, `vectors` of channels.

    Sums are in the order that the tile gives them. Each iteration of the innermost loop prefetches `lines`
    cache lines, `ahead` bytes after the weights in use.
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
        """Bytes of weights of one step."""
        return self.vectors * self.tile.weight_bytes

    def window(self, src: Value, weights: Value, sums: list[Value], level: int = 0) -> list[Value]:
        """Emit loops over rows (level 0) and columns (level 1) of runs, and over the steps of a run.

        The loops of few steps are unrolled.
        """
        e, runs = self.e, self.runs
        run_bytes = runs.steps * self.step_bytes
        # Loops ascend in (kh, kw, c), the order that rule 9 gives the chain of a float result.
        levels = [
            (runs.rows, runs.row_stride, runs.columns * run_bytes, runs.total_steps),
            (runs.columns, runs.column_stride, run_bytes, runs.columns * runs.steps),
        ]
        if level == len(levels):
            return self._run(src, weights, sums)
        count, src_stride, weight_stride, steps = levels[level]
        if steps * self.tile.portions <= UNROLLED_STEPS:
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
        """Emit the steps of one run: a loop of two or three an iteration, then the steps that are left."""
        e, runs = self.e, self.runs
        steps = runs.steps
        done = 0
        if steps * self.tile.portions > UNROLLED_STEPS and steps > 1:
            unroll = _unroll(steps, self.tile.portions)
            turns = steps // unroll
            with e.carrying_loop(0, turns, sums, name="steps") as carry:
                inner_src = e.offset(src, e.scaled(carry.index, unroll * runs.step))
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
        """Emit step number `step` from these addresses, for every pixel and every vector."""
        e = self.e
        at = e.offset(src, step * self.runs.step), e.offset(weights, step * self.step_bytes)
        return self.tile.add_step(e, *at, self.offsets, sums)


def _unroll(steps: int, portions: int) -> int:
    """Steps in an iteration of the loop over a run: if possible a divisor, so that none follow the loop."""
    if portions > 1:
        return 1
    return next((u for u in UNROLL_CHOICES if steps % u == 0), UNROLL_CHOICES[0])

"""Implicit matrix products on AMX: two tiles of pixels by two vectors of channels.

A tile of pixels is a stretch of the innermost axis, at most 16 long. The two of a pair are
neighbours on that axis, or lie on two rows where a row fits into one tile. Tiles that do not
divide an axis overlap, so that all have one size; what is computed twice has the same bits.

A block of 2 x 2 tiles of sums needs two loads of pixels and two of weights for four multiplications, one load
for each. The sums take four of the eight tile registers, the loaded tiles the other four.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from qglow.kernels.emit.builder import F32, I32, Index, Value, vec
from qglow.kernels.emit.prefetch import fetch_early
from qglow.kernels.tiled.geometry import Axis, Geometry, collapse
from qglow.kernels.tiled.loops import Block, Pointers, ProductLoops, Shared
from qglow.targets.x86.amx import REGISTERS, ROW_BYTES, TILE_BYTES, TILE_ROWS, Registers

PAIR = 2
UNSIGNED, SIGNED = 4, 6
"""First registers of pixels and of weights; sums are in registers 0 to 3."""
STORED_PIXELS = 4
"""Pixels whose results are finished together."""
EARLY_UNITS = 16
"""Most units of a block that prefetch the weights of the next: more of them hide how long these take."""
ALONE_AHEAD = 16 * 1024
"""Bytes that a unit fetches ahead for itself where it is the only one of its block."""
ALONE_ROWS = 8
"""Most pixels of such a unit: with 16 it takes as long as without [measured]."""


@dataclass(frozen=True, slots=True)
class Walk:
    """Cover of an image by units of one or two tiles of pixels.

    A tile is `rows` pixels along `along`. The `tiles` of a unit are `apart` elements of `over`
    from one another; `units` start `step` elements of `over` apart, the last at `last` at most.
    """

    outer: tuple[Axis, ...]
    along: Axis
    over: Axis
    rows: int
    tiles: int
    apart: int
    units: int
    step: int
    last: int

    @property
    def overlaps(self) -> bool:
        """Whether the last unit is moved back, so that it overlaps the one before."""
        return (self.units - 1) * self.step != self.last

    @property
    def pixels(self) -> int:
        """Pixels inside of the loops over the outer axes."""
        return self.over.count * (1 if self.over is self.along else self.along.count)

    @property
    def shares_rows(self) -> bool:
        """Whether threads that share pixels share rows of an outer axis, not units."""
        return any(axis.count > self.units for axis in self.outer)


def plan_walk(geometry: Geometry) -> Walk:
    """Plan pairs of tiles along the innermost axis if one tile cannot hold it, else on two rows."""
    axes = collapse(geometry.walked_axes)
    inner, outer = axes[-1], axes[:-1]
    if inner.count > TILE_ROWS:
        units = -(-inner.count // (PAIR * TILE_ROWS))
        rows = -(-inner.count // (PAIR * units))
        apart = min(rows, inner.count - rows)
        return Walk(outer, inner, inner, rows, PAIR, apart, units, PAIR * rows, inner.count - apart - rows)
    if outer:
        units = -(-outer[-1].count // PAIR)
        return Walk(outer[:-1], inner, outer[-1], inner.count, PAIR, 1, units, PAIR, outer[-1].count - PAIR)
    return Walk((), inner, inner, inner.count, 1, 0, 1, inner.count, 0)


@dataclass(frozen=True)
class AmxProduct(ProductLoops):
    """Emitter of a product; `store` is the address of four tiles of working memory.

    emulated: whether tile instructions are calls of functions that emulate them.
    fetches: whether weights are prefetched.
    """

    store: Value
    emulated: bool
    fetches: bool = False

    def emit_all(self, pointers: Pointers) -> None:
        """Configure tiles, emit the product, release them."""
        walk = plan_walk(self.geometry)
        registers = Registers(self.e, self.emulated)
        registers.configure([walk.rows] * SIGNED + [TILE_ROWS] * (REGISTERS - SIGNED))
        self.emit(pointers)
        registers.release()

    @property
    def pixel_units(self) -> int:
        """Rows along the longest of the outer axes, or units where there are more of them."""
        walk = plan_walk(self.geometry)
        return max([walk.units, *(axis.count for axis in walk.outer)])

    def emit_group(self, pointers: Pointers) -> None:
        """Emit loops over blocks of channels, then rows of the outer axes, then units of pixels.

        So all pixels use the weights of one block before those of the next are loaded.
        """
        walk = plan_walk(self.geometry)
        for block in self.blocks():
            lines, ahead = self._early_lines(walk, block)
            early = lines * self.e.target.model.line_bytes
            blocks = self.block_loop(block, pointers.moved(self.e, ahead=ahead))
            with (
                blocks as moved,
                self.averaged_images(block, moved) as image,
                self.row_loops(walk.outer, image, walk.pixels, walk.units * early, walk.shares_rows) as row,
                self._units(walk, row, early) as (unit, late),
            ):
                self._emit_unit(walk, block, unit, late, lines)

    def _early_lines(self, walk: Walk, block: Block) -> tuple[int, int]:
        """Cache lines of weights that a unit prefetches in each step, 0 for none, and how far ahead they are.

        All units of a block together prefetch the next block, one alone what it reads itself.
        """
        units, model = walk.units * math.prod(axis.count for axis in walk.outer), self.e.target.model
        whole, step = block.piece.size * self._vector_weights, block.piece.size * self.tile.weight_bytes
        if (
            not self.fetches
            or units > EARLY_UNITS
            or whole < model.early_bytes
            or (units == 1 and walk.pixels > ALONE_ROWS)
        ):
            return 0, 0
        return -(-step // (units * model.line_bytes)), whole if units > 1 else ALONE_AHEAD

    @contextmanager
    def _units(self, walk: Walk, pointers: Pointers, early: int) -> Iterator[tuple[Pointers, Index]]:
        """Emit a loop over units; for a mean also yields how many elements of `over` one is moved back.

        early: bytes from what one unit prefetches to what the next does.
        """
        e, late = self.e, 0
        first, end = e.share(walk.units, self.shared is Shared.PIXELS and not walk.shares_rows)
        each = walk.pixels // walk.over.count * self.each
        end = e.minimum(end, e.live_pieces(walk.units, walk.step * each, walk.over.count * each))
        with e.loop(first, end, name="unit") as number:
            start: Index = e.scaled(number, walk.step)
            if walk.overlaps:
                turn, start = start, e.minimum(start, walk.last)
                late = e.plus(turn, e.scaled(start, -1)) if self.output.mean_sink else 0
            src, dest = (e.scaled(start, s) for s in (walk.over.src_stride, walk.over.dest_stride))
            moved = pointers.moved(e, src=src, dest=dest, ahead=e.scaled(number, early), pixels=start)
            yield moved, late

    def _emit_unit(self, walk: Walk, block: Block, pointers: Pointers, late: Index, lines: int) -> None:
        """Emit one unit: sums start from the bias, add up all steps, and are finished through memory."""
        registers, vectors = Registers(self.e, self.emulated), block.piece.size
        sums = {(t, v): t * PAIR + v for t in range(walk.tiles) for v in range(vectors)}
        # A stride of 0 reads the biases of 16 channels into the row of every pixel.
        for (_, vector), register in sums.items():
            registers.load(register, self.e.offset(pointers.bias, vector * ROW_BYTES), 0)
        self._emit_steps(walk, vectors, sums, pointers, lines)
        # Tile registers have no arithmetic but products; sums reach vector registers through memory.
        for register in sums.values():
            registers.store(register, self.e.offset(self.store, register * TILE_BYTES), ROW_BYTES)
        for tile in range(walk.tiles):
            later = tile * walk.apart
            moved = pointers.moved(self.e, dest=later * walk.over.dest_stride, pixels=later)
            self._finish(walk, block, tile, moved, self._repeated(walk, tile, late))

    def _repeated(self, walk: Walk, tile: int, late: Index) -> Index:
        """Number of a tile's first pixels that are already added up; 0 if results are stored."""
        extent = walk.rows if walk.along is walk.over else 1
        repeated = self.e.maximum(self.e.plus(late, -tile * walk.apart), tile * (extent - walk.apart))
        return self.e.scaled(repeated, walk.rows // extent) if self.output.mean_sink else 0

    def _emit_steps(
        self, walk: Walk, vectors: int, sums: dict[tuple[int, int], int], pointers: Pointers, lines: int
    ) -> None:
        """Emit loops over rows and columns of the window and the steps of each run.

        A step loads its tiles once, and multiplies every tile of pixels by every one of weights. It
        prefetches `lines` cache lines of other weights.
        """
        e, runs = self.e, self.geometry.runs
        registers = Registers(e, self.emulated)
        step_bytes = vectors * self.tile.weight_bytes
        apart = walk.apart * walk.over.src_stride
        with e.loop(0, runs.rows, name="row") as row, e.loop(0, runs.columns, name="column") as column:
            run = e.plus(e.scaled(row, runs.columns), column)
            place = e.plus(e.scaled(row, runs.row_stride), e.scaled(column, runs.column_stride))
            with e.loop(0, runs.steps, name="step") as step:
                src = e.offset(pointers.src, e.plus(place, e.scaled(step, runs.step)))
                number = e.plus(e.scaled(run, runs.steps), step)
                weights = e.offset(pointers.weights, e.scaled(number, step_bytes))
                fetch_early(e, weights, pointers.ahead, lines)
                for vector in range(vectors):
                    registers.load(SIGNED + vector, e.offset(weights, vector * TILE_BYTES), ROW_BYTES)
                for tile in range(walk.tiles):
                    registers.load(UNSIGNED + tile, e.offset(src, tile * apart), walk.along.src_stride)
                for (tile, vector), register in sums.items():
                    registers.multiply(register, UNSIGNED + tile, SIGNED + vector)

    def _finish(self, walk: Walk, block: Block, tile: int, pointers: Pointers, repeated: Index) -> None:
        """Emit the results of a tile of pixels, a few at a time; one by one where the first are left out."""
        e = self.e
        terms = pointers.channel_terms(e, block.piece.size, vec(F32, self.tile.lanes))
        # Pixels that an overlap repeats must not be added up twice, so a loop starts behind them.
        if not isinstance(repeated, int) or repeated:
            with e.loop(repeated, walk.rows, name="pixel") as pixel:
                self._store_pixels(walk, block, tile, terms, pointers, pixel, 1)
            return
        whole = walk.rows - walk.rows % STORED_PIXELS
        if whole:
            with e.loop(0, whole, STORED_PIXELS, name="pixel") as first:
                self._store_pixels(walk, block, tile, terms, pointers, first, STORED_PIXELS)
        if whole < walk.rows:
            self._store_pixels(walk, block, tile, terms, pointers, whole, walk.rows - whole)

    def _store_pixels(
        self,
        walk: Walk,
        block: Block,
        tile: int,
        terms: tuple[Sequence[Value], Sequence[Value]],
        pointers: Pointers,
        first: Index,
        count: int,
    ) -> None:
        e, (multipliers, addends) = self.e, terms
        rows, results = [], []
        for pixel in range(count):
            number = e.plus(first, pixel)
            places = [(tile * PAIR + v) * TILE_BYTES for v in range(block.piece.size)]
            starts = [e.offset(self.store, e.plus(e.scaled(number, ROW_BYTES), place)) for place in places]
            rows.append([e.load(start, vec(I32, self.tile.lanes), align=ROW_BYTES) for start in starts])
            results.append(e.offset(pointers.dest, e.scaled(number, walk.along.dest_stride)))
        scales = pointers.pixel_scales(e, [e.plus(first, pixel) for pixel in range(count)])
        self.output.emit(e, rows, multipliers, results, block.channels, scales, addends)

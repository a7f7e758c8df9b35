"""Implicit matrix products on AMX: two tiles of pixels by two vectors of channels.

A block of 2 x 2 tiles of sums needs two loads of pixels and two of weights for four multiplications, one load
for each. The sums take four of the eight tile registers, the loaded tiles the other four.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from qglow.kernels.emit.builder import Index, Value
from qglow.kernels.emit.prefetch import fetch_early
from qglow.kernels.tiled.loops import Block, Pointers, ProductLoops, Shared
from qglow.targets.x86.amx import REGISTERS, ROW_BYTES, TILE_BYTES, TILE_ROWS, Registers
from qglow.targets.x86.amx_results import Results
from qglow.targets.x86.amx_walk import PAIR, Walk, plan_walk

UNSIGNED, SIGNED = 4, 6
"""First registers of pixels and of weights; sums are in registers 0 to 3."""
EARLY_UNITS = 16
"""Most units of a block that prefetch the weights of the next: more of them hide how long these take."""
ALONE_AHEAD = 16 * 1024
"""Bytes that a unit fetches ahead for itself where it is the only one of its block."""
ALONE_ROWS = 8
"""Most pixels of such a unit: with 16 it takes as long as without [measured]."""


@dataclass(frozen=True)
class AmxProduct(ProductLoops):
    """Emitter of a product; `store` is the address of working memory for sums (`STORE_BYTES`).

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
            steps = self.geometry.runs.total_steps
            given = (self.output, self.tile.lanes, block, self.store, pointers, steps)
            results = Results(self.e, walk, *given)
            results.begin()
            lines, ahead = self._early_lines(walk, block)
            early = lines * self.e.target.model.line_bytes
            blocks = self.block_loop(block, pointers.moved(self.e, ahead=ahead))
            with (
                blocks as moved,
                self.averaged_images(block, moved) as image,
                self.row_loops(walk.outer, image, walk.pixels, walk.units * early, walk.shares_rows) as row,
                self._units(walk, row, early) as (unit, late),
            ):
                self._emit_unit(walk, results, unit, late, lines)
            results.finish_pending()

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

    def _emit_unit(self, walk: Walk, results: Results, pointers: Pointers, late: Index, lines: int) -> None:
        """Emit one unit: sums start from the bias, and add up all steps.

        Meanwhile those of the unit before are finished, unless results go to a mean: then the unit's own are.
        """
        registers, vectors = Registers(self.e, self.emulated), results.vectors
        sums = {(t, v): t * PAIR + v for t in range(walk.tiles) for v in range(vectors)}
        # A stride of 0 reads the biases of 16 channels into the row of every pixel.
        for (_, vector), register in sums.items():
            registers.load(register, self.e.offset(pointers.bias, vector * ROW_BYTES), 0)
        self._emit_steps(walk, results, sums, pointers, lines)
        if len(self._work_places(results, sums)) * self.geometry.runs.total_steps < results.chunks:
            results.finish_pending()
        # Tile registers have no arithmetic but products; sums reach vector registers through memory.
        memory = results.next_sums()
        for (tile, vector), register in sums.items():
            registers.store(register, self.e.offset(memory, results.sums_place(tile, vector)), ROW_BYTES)
        results.hold(pointers, late)

    def _emit_steps(
        self,
        walk: Walk,
        results: Results,
        sums: dict[tuple[int, int], int],
        pointers: Pointers,
        lines: int,
    ) -> None:
        """Emit loops over rows and columns of the window and the steps of each run.

        A step loads its tiles once, and multiplies every tile of pixels by every one of weights. It
        prefetches `lines` cache lines of other weights. Behind each multiplication stands some of the work
        for the unit before, since vector registers are free while a tile is multiplied.
        """
        e, runs = self.e, self.geometry.runs
        registers, places = Registers(e, self.emulated), self._work_places(results, sums)
        step_bytes = results.vectors * self.tile.weight_bytes
        apart = walk.apart * walk.over.src_stride
        with e.loop(0, runs.rows, name="row") as row, e.loop(0, runs.columns, name="column") as column:
            run = e.plus(e.scaled(row, runs.columns), column)
            place = e.plus(e.scaled(row, runs.row_stride), e.scaled(column, runs.column_stride))
            with e.loop(0, runs.steps, name="step") as step:
                src = e.offset(pointers.src, e.plus(place, e.scaled(step, runs.step)))
                number = e.plus(e.scaled(run, runs.steps), step)
                weights = e.offset(pointers.weights, e.scaled(number, step_bytes))
                fetch_early(e, weights, pointers.ahead, lines)
                results.fetch_places(pointers, number)
                for (tile, vector), register in sums.items():
                    if tile == 0:
                        place_of = e.offset(weights, vector * TILE_BYTES)
                        registers.load(SIGNED + vector, place_of, ROW_BYTES)
                    if vector == 0:
                        place_of = e.offset(src, tile * apart)
                        registers.load(UNSIGNED + tile, place_of, walk.along.src_stride)
                    registers.multiply(register, UNSIGNED + tile, SIGNED + vector)
                    if register in places:
                        results.finish_some()

    def _work_places(self, results: Results, sums: dict[tuple[int, int], int]) -> list[int]:
        """Registers behind whose multiplications in each step pending results are finished, if there are any.

        As few as suffice, so that all steps have something to do beside them.
        """
        each = -(-results.chunks // self.geometry.runs.total_steps)
        registers = list(sums.values())
        return registers[-min(each, len(registers)) :]

"""Results of a product on AMX: sums reach vector registers through memory, where they are finished.

The sums of one unit are finished between the multiplications of the next: tiles are multiplied while vector
registers work. Where results are added up for a mean, a unit is finished at once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from qglow.kernels.emit.builder import F32, I32, I64, PTR, Index, Value, vec
from qglow.kernels.emit.emitter import Emitter
from qglow.kernels.tiled.loops import Block, Pointers
from qglow.kernels.tiles.output import PACKED, OutputStage
from qglow.targets.x86.amx import ROW_BYTES, TILE_BYTES
from qglow.targets.x86.amx_walk import PAIR, Walk

SUMS_BYTES = PAIR * PAIR * TILE_BYTES
"""Bytes of the sums of a unit."""
STORE_BYTES = 2 * SUMS_BYTES
"""Bytes of working memory: sums of a unit, and of the one before."""
EPILOGUE_VECTORS = 8
"""Vectors that pass through an epilogue together: each waits for itself, and fewer take longer [measured]."""
WORD = 8
POINTERS = ("dest", "multiplier", "addend", "row_scales")
NEXT, HALF = len(POINTERS), len(POINTERS) + 1
"""Words of the state of pending results: their addresses, the next row to finish, and which half of the
working memory is free."""


@dataclass(frozen=True)
class Results:
    """Emitter of the results of units in `block`, whose sums are in memory at `store`.

    A row is what a unit has of one pixel; rows of the second tile follow those of the first. given: addresses
    of the product. steps: of a unit.
    """

    e: Emitter
    walk: Walk
    output: OutputStage
    lanes: int
    block: Block
    store: Value
    given: Pointers
    steps: int

    @property
    def vectors(self) -> int:
        """Vectors of channels in a unit."""
        return self.block.piece.size

    @property
    def rows(self) -> int:
        """Rows of a unit."""
        return self.walk.tiles * self.walk.rows

    @property
    def together(self) -> int:
        """Rows that are finished together, a power of two."""
        most = EPILOGUE_VECTORS if self.output.epilogue else PACKED if self.output.to_bytes else PAIR
        wanted = min(max(1, most // self.vectors), self.rows)
        return 1 << (wanted.bit_length() - 1)

    @property
    def chunks(self) -> int:
        """Pieces in which the results of a unit are finished."""
        return -(-self.rows // self.together)

    @property
    def _kept(self) -> list[str]:
        """Addresses that pending results need, by name."""
        return [name for name in POINTERS if getattr(self.given, name) is not None]

    def sums_place(self, tile: int, vector: int) -> int:
        """Bytes from the start of a unit's sums to those of a tile and a vector."""
        return (vector * self.walk.tiles + tile) * self.walk.rows * ROW_BYTES

    def begin(self) -> None:
        """Emit the state before the first unit: nothing is to be finished."""
        self._set(NEXT, self.e.index(self.rows))
        self._set(HALF, self.e.index(0))

    def next_sums(self) -> Value:
        """Emit the address for the sums of a unit: memory that no pending results need."""
        return self.e.offset(self.store, self._get(HALF))

    def hold(self, pointers: Pointers, late: Index) -> None:
        """Emit what makes the results of a unit pending; with a mean, finish them at once.

        late: how many elements of `over` the unit was moved back, of which the mean has the results.
        """
        e = self.e
        if self.output.mean_sink is not None:
            self._finish_for_mean(pointers, late)
            return
        for number, name in enumerate(self._kept):
            self._set(number, getattr(pointers, name))
        self._set(NEXT, e.index(0))
        self._set(HALF, e.b.sub(e.index(SUMS_BYTES), self._get(HALF)))

    def fetch_places(self, pointers: Pointers, step: Index) -> None:
        """Emit prefetches of where a unit's results will be stored, a few in each of its steps.

        They are stored while the next unit is multiplied. Rows are too far apart for the processor to see
        what comes, so that memory which was not used for long would be waited for. Units of many steps take
        so long that it does not count [measured].
        """
        e, walk = self.e, self.walk
        if self.output.mean_sink is not None or self.steps >= self.rows:
            return
        each = -(-self.rows // self.steps)
        for number in range(each):
            row = e.minimum(e.plus(e.scaled(step, each), number), self.rows - 1)
            place = self._moved(row, walk.along.dest_stride, walk.apart * walk.over.dest_stride)
            self.output.fetch(e, e.offset(pointers.dest, place), self.block.channels)

    def finish_some(self) -> None:
        """Emit one piece of the pending results, if any are left."""
        if self.output.mean_sink is not None:
            return
        first = self._get(NEXT)
        with self.e.when(self.e.b.icmp_signed("<", first, self.e.index(self.rows))):
            self._finish_pending(first)
            self._set(NEXT, self.e.plus(first, self.together))

    def finish_pending(self) -> None:
        """Emit all pending results that are left."""
        if self.output.mean_sink is not None:
            return
        with self.e.loop(self._get(NEXT), self.rows, self.together, name="row") as first:
            self._finish_pending(first)
        self._set(NEXT, self.e.index(self.rows))

    def _finish_pending(self, first: Index) -> None:
        e = self.e
        sums = e.offset(self.store, e.b.sub(e.index(SUMS_BYTES), self._get(HALF)))
        found = {name: self._get(number, PTR) for number, name in enumerate(self._kept)}
        # The last piece is moved back: what is computed twice has the same bits.
        self._finish(
            sums, replace(self.given, **found), e.minimum(first, self.rows - self.together), self.together
        )

    def _finish_for_mean(self, pointers: Pointers, late: Index) -> None:
        """Emit rows one by one, without those that an overlap repeats: they must not be added up twice."""
        e, walk = self.e, self.walk
        extent = walk.rows if walk.along is walk.over else 1
        for tile in range(walk.tiles):
            repeated = e.maximum(e.plus(late, -tile * walk.apart), tile * (extent - walk.apart))
            first = e.scaled(repeated, walk.rows // extent)
            with e.loop(first, walk.rows, name="pixel") as pixel:
                self._finish(self.store, pointers, e.plus(pixel, tile * walk.rows), 1)

    def _finish(self, sums: Value, pointers: Pointers, first: Index, count: int) -> None:
        """Emit `count` rows from number `first` on."""
        e, walk, kind = self.e, self.walk, vec(I32, self.lanes)
        numbers = [e.plus(first, row) for row in range(count)]
        starts = [e.offset(sums, e.scaled(number, ROW_BYTES)) for number in numbers]
        places = [self.sums_place(0, v) for v in range(self.vectors)]
        rows = [[e.load(e.offset(start, p), kind, align=ROW_BYTES) for p in places] for start in starts]
        to = [self._moved(n, walk.along.dest_stride, walk.apart * walk.over.dest_stride) for n in numbers]
        dests = [e.offset(pointers.dest, place) for place in to]
        scales = pointers.pixel_scales(e, [self._moved(number, 1, walk.apart) for number in numbers])
        multipliers, addends = pointers.channel_terms(e, self.vectors, vec(F32, self.lanes))
        self.output.emit(e, rows, multipliers, dests, self.block.channels, scales, addends)

    def _moved(self, row: Index, each: int, apart: int) -> Index:
        """Distance from the first row to one, where those of a tile are `each` apart, and tiles `apart`."""
        e, jump = self.e, apart - self.walk.rows * each
        if self.walk.tiles == 1 or not jump:
            return e.scaled(row, each)
        second = e.b.icmp_signed(">=", e.index(row), e.index(self.walk.rows))
        return e.plus(e.scaled(row, each), e.b.select(second, e.index(jump), e.index(0)))

    def _state(self, number: int) -> Value:
        size = (HALF + 1) * WORD
        return self.e.offset(self.e.room("pending results", size, WORD), number * WORD)

    def _get(self, number: int, kind: Value = I64) -> Value:
        return self.e.load(self._state(number), kind, align=WORD)

    def _set(self, number: int, value: Value) -> None:
        self.e.store(value, self._state(number), align=WORD)

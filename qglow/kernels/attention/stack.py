"""The keys that some queries read: where they lie, how many take part, and their transposition."""

from __future__ import annotations

from dataclasses import dataclass

from qglow.instructions.ops.attention import Attention
from qglow.kernels.attention.extents import Extents
from qglow.kernels.emit.builder import F32, I8, I32, I64, Index, Value, constant_vector, scalar, vec
from qglow.kernels.emit.emitter import Emitter
from qglow.kernels.emit.kernel import Site
from qglow.kernels.movement.transpose import SQUARE, transpose_halves, transpose_square
from qglow.kernels.products.matmul import pieces
from qglow.kernels.products.packed_product import SIGN
from qglow.kernels.reduction.softmax import LANES, reduce_lanes

KEY_LINE = 4 * SQUARE
"""Bytes from a word of 16 transposed keys to the next: a float each, or four int8."""


@dataclass(frozen=True)
class KeyStack:
    """One stack of keys, for the queries that read it.

    vectors: of keys, or of columns of values, that a block of rows is multiplied with at once. count: keys
    that take part, a number or a value. places: addresses of operands.
    """

    site: Site
    vectors: int
    extents: Extents
    count: Index
    places: dict[str, Value]

    @property
    def e(self) -> Emitter:
        return self.site.e

    @property
    def operation(self) -> Attention:
        operation = self.site.instruction.operation
        assert isinstance(operation, Attention)
        return operation

    @property
    def lanes(self) -> int:
        return self.site.target.float_lanes

    @property
    def line_bytes(self) -> int:
        return 4 * self.extents.line

    @property
    def scores(self) -> Value:
        """Address of a block of scores, behind the transposed keys and their terms."""
        return self.e.offset(self.places["scratch"], self.extents.kept_bytes)

    def term(self, first: Index) -> Value:
        """Address of the terms of int8 keys from key `first` on, one each, behind the transposed keys."""
        terms = self.e.offset(self.places["scratch"], self.extents.words * self.line_bytes)
        return self.e.offset(terms, self.e.scaled(first, 4))

    @property
    def reach(self) -> Index:
        """Keys that are computed: those that take part, and others that fill up the last 16."""
        e = self.e
        if isinstance(self.count, int):
            return self.extents.line
        return e.b.and_(e.plus(self.count, LANES - 1), e.index(-LANES))

    def transposed(self, first: Index) -> Value:
        """Address of the first elements of whole vectors of keys, from key `first` on.

        16 keys lie together, with their words one behind another, so that a block reads them in order:
        lines as long as all keys would share few places of the caches.
        """
        e, lanes, panel = self.e, self.lanes, 4 * self.extents.words
        if lanes >= SQUARE:
            return e.offset(self.places["scratch"], e.scaled(first, panel))
        within = first % SQUARE if isinstance(first, int) else e.b.and_(first, e.index(SQUARE - 1))
        start = first - within if isinstance(first, int) else e.b.sub(first, within)
        return e.offset(self.places["scratch"], e.plus(e.scaled(start, panel), e.scaled(within, 4)))

    @property
    def vector_gap(self) -> int:
        """Bytes from a vector of transposed keys to the next."""
        return 4 * self.lanes * (1 if self.lanes < SQUARE else self.extents.words)

    def transpose_keys(self) -> None:
        """Emit the transposition of the keys that take part, in squares."""
        e, words = self.e, self.extents.words
        for start, stop, height in self.key_blocks():
            with e.loop(start, stop, SQUARE, "keys") as first:
                for low, high, width in self.word_blocks():
                    with e.loop(low, high, width, "words") as column:
                        place = e.plus(e.scaled(first, 4 * words), e.scaled(column, KEY_LINE))
                        to = e.offset(self.places["scratch"], place)
                        for number, vector in enumerate(self.square(first, height, column, width)):
                            e.store(vector, e.offset(to, number * KEY_LINE))

    def key_blocks(self) -> list[tuple[Index, Index, int]]:
        """Ranges of keys in steps of 16, each with how many of a step are there."""
        e, keys = self.e, self.extents.keys
        whole = keys // SQUARE * SQUARE
        found: list[tuple[Index, Index, int]] = []
        if whole:
            found.append((0, e.minimum(self.reach, whole), SQUARE))
        if keys > whole:
            found.append((whole, self.reach, keys - whole))
        return found

    def word_blocks(self) -> list[tuple[int, int, int]]:
        """Ranges of words of a key in steps of at most 16; a word that is there in part is on its own."""
        whole = self.extents.key_bytes // 4
        rest = [(whole, whole + 1, 1)] if whole < self.extents.words else []
        return [*pieces(whole, SQUARE), *rest]

    def square(self, first: Index, height: int, column: Index, width: int) -> list[Value]:
        """Emit `width` vectors of 16 keys, of which `height` are there: their words from `column` on."""
        e, size = self.e, self.extents.key_bytes
        start = e.offset(self.places["keys"], e.plus(e.scaled(first, size), e.scaled(column, 4)))
        if height == width == SQUARE and not self.extents.is_int8:
            left, right = (
                [e.load(e.offset(start, size * r + part), vec(F32, SQUARE // 2)) for r in range(SQUARE)]
                for part in (0, 2 * SQUARE)
            )
            return transpose_halves(e, left, right)
        rows = [self._words(e.offset(start, size * r), column, width) for r in range(height)]
        # Any vector will do for keys that are not there: their scores are never read.
        return transpose_square(e, rows + [rows[0]] * (SQUARE - height))[:width]

    def _words(self, place: Value, column: Index, width: int) -> Value:
        """Load words of a key from `column` on: floats, or four signed bytes, 0 beyond the key."""
        e, extents = self.e, self.extents
        if not extents.is_int8:
            return e.load_lanes(place, F32, SQUARE, width)
        partial = isinstance(column, int) and 4 * column + 4 > extents.depth
        count = extents.depth % 4 if partial else 4 * width
        loaded = e.load_lanes(place, I8, 4 * SQUARE, count)
        if e.target.activation_bias:  # flipping the top bit subtracts it
            signs = [SIGN if lane < count else 0 for lane in range(4 * SQUARE)]
            loaded = e.b.xor(loaded, constant_vector(I8, signs))
        return e.b.bitcast(loaded, vec(I32, SQUARE))


def live_count(e: Emitter, site: Site, keys: int) -> Index:
    """Keys that take part: all, or as many as the live places, which are the first ones."""
    if "live" not in site.operands:
        return keys
    start, whole = site["live"].pointer, keys // LANES * LANES
    total = scalar(vec(I32, LANES), 0)
    with e.carrying_loop(0, whole, [total], LANES, "live") as carry:
        carry.next([e.b.add(carry.values[0], _bytes_at(e, e.offset(start, carry.index), None))])
    total = carry.values[0]
    if keys > whole:
        total = e.b.add(total, _bytes_at(e, e.offset(start, whole), keys - whole))
    return e.b.zext(reduce_lanes(e, total, e.b.add), I64)


def _bytes_at(e: Emitter, place: Value, count: int | None) -> Value:
    """16 bytes, or the first of them, as integers."""
    return e.b.zext(e.load_lanes(place, I8, LANES, count), vec(I32, LANES))

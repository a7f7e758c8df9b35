"""Rows of queries: their scores, shares of them in working memory, and the mean of values.

A tile is the rows whose sums are in registers at once. A block is a few tiles, which read some keys or values
one after another: these come from the second-level cache once for the block, not for each tile.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from qglow.kernels.arithmetic.fused import add_product
from qglow.kernels.attention.byte_scores import ByteScores
from qglow.kernels.attention.stack import KEY_LINE, KeyStack
from qglow.kernels.emit.builder import F32, I8, I32, Index, Value, constant_vector, scalar, vec
from qglow.kernels.emit.emitter import Emitter
from qglow.kernels.emit.prefetch import fetch_early
from qglow.kernels.emit.target import CodeSize
from qglow.kernels.movement.transpose import SQUARE
from qglow.kernels.products.matmul import MatrixRows, add_products, pieces
from qglow.kernels.reduction.softmax import LANES, NEGATIVE_INFINITY, softmax_rows

KEYS_AHEAD = 2 * SQUARE
"""How many keys before they are needed few rows fetch them: a cache of keys comes from far memory."""
FEW_SUMS = 8
"""Sums of few rows that are computed at once: each waits for its last product, all read one row of values."""


NEAR_BYTES = 24 * 1024
"""Bytes of values that all tiles of a block read before the next ones: they stay in the first-level cache."""


@dataclass(frozen=True)
class QueryBlock:
    """Emitter of `tiles` tiles of `height` rows at `places`, which lie `steps` bytes apart."""

    stack: KeyStack
    places: dict[str, Value]
    steps: dict[str, int]
    height: int
    tiles: Index

    @property
    def e(self) -> Emitter:
        return self.stack.e

    @property
    def rows(self) -> Index:
        """Rows of all tiles."""
        return self.e.scaled(self.tiles, self.height)

    def tile(self, number: Index) -> QueryTile:
        """Emitter of one tile."""
        e, row = self.e, self.e.scaled(number, self.height)
        places = {n: e.offset(p, e.scaled(row, self.steps[n])) for n, p in self.places.items()}
        scores = e.offset(self.stack.scores, e.scaled(row, self.stack.line_bytes))
        return QueryTile(self.stack, places, self.steps, self.height, scores)

    def score_vectors(self) -> None:
        """Emit the scores of the block by the transposed keys, by whole vectors of them."""
        e = self.e
        if self.stack.extents.is_int8:  # a quarter as large: it is the sums of rows that are read once
            with e.loop(0, self.tiles, name="tile") as number:
                tile = self.tile(number)
                less = ByteScores(self.stack).sum_rows(tile.queries, self.height)
                for first, vectors, count in self._keys():
                    tile.score(first, vectors, count, less)
            return
        for first, vectors, count in self._keys():
            with e.loop(0, self.tiles, name="tile") as number:
                self.tile(number).score(first, vectors, count, [])

    def _keys(self) -> Iterator[tuple[Index, int, int | None]]:
        """Emit loops over keys: the first key, vectors of them, and the keys of one that is partial."""
        e, lanes, stack = self.e, self.stack.lanes, self.stack
        keys, most = stack.extents.keys, stack.vectors
        end = e.minimum(stack.reach, keys // lanes * lanes)
        for start, stop, vectors in self._spans(end, most):
            with e.loop(start, stop, lanes * vectors, "keys") as first:
                yield first, vectors, None
        if keys % lanes:
            with e.loop(keys // lanes * lanes, stack.reach, LANES, "last") as first:
                yield first, 1, keys % lanes

    def _spans(self, end: Index, most: int) -> Iterator[tuple[Index, Index, int]]:
        """Ranges of whole vectors of keys up to `end`, by `most` vectors and by what is left of them."""
        e, lanes = self.e, self.stack.lanes
        if isinstance(end, int):
            for first, stop, size in pieces(end, lanes * most, lanes):
                yield first, stop, size // lanes
            return
        start: Index = 0
        while most:
            stop = e.b.and_(end, e.index(-lanes * most))
            yield start, stop, most
            start, most = stop, most // 2

    def share(self) -> None:
        """Emit the shares of every row. Lanes of keys that take no part are minus infinity: shares of 0."""
        e, stack = self.e, self.stack
        if not isinstance(stack.count, int) or stack.count % LANES:
            last = e.maximum(e.plus(stack.reach, -LANES), 0)
            present = self._present(last)
            with e.loop(0, self.rows, name="row") as row:
                place = e.offset(stack.scores, e.plus(e.scaled(row, stack.line_bytes), e.scaled(last, 4)))
                scores = e.load(place, vec(F32, LANES))
                e.store(e.b.select(present, scores, scalar(scores.type, NEGATIVE_INFINITY)), place)
        masked = stack.operation.masked_to_zero
        softmax_rows(e, stack.scores, stack.line_bytes, self.rows, stack.reach, masked)

    def _present(self, first: Index) -> Value:
        """Whether keys from `first` on take part."""
        e, count = self.e, self.stack.count
        places = constant_vector(I32, range(LANES))
        left = e.index(e.plus(count, -first) if isinstance(first, int) else e.b.sub(e.index(count), first))
        return e.b.icmp_signed("<", places, e.splat(e.b.trunc(left, I32), LANES))

    def weigh(self) -> None:
        """Emit the products of shares and values."""
        e, keys = self.e, self.stack.count
        near = max(1, NEAR_BYTES // (4 * self.stack.extents.width))
        if self.tiles == 1 or (isinstance(keys, int) and keys <= near):
            self._weigh(0, keys)
            return
        self._weigh(0, e.minimum(keys, near))
        with e.loop(near, keys, near, "values") as first:
            self._weigh(first, e.minimum(e.plus(first, near), keys))

    def _weigh(self, first: Index, stop: Index) -> None:
        """Emit the part of the sums that some keys have; the first key of all begins them."""
        e, lanes, width = self.e, self.stack.lanes, self.stack.extents.width
        whole = width // lanes * lanes
        vectors = max(self.stack.vectors, FEW_SUMS // self.height)
        for start, stop_, size in pieces(whole, lanes * vectors, lanes):
            with e.loop(start, stop_, size, "columns") as column:
                self._weigh_columns(column, size // lanes, None, (first, stop))
        if whole < width:
            self._weigh_columns(whole, 1, width - whole, (first, stop))

    def _weigh_columns(
        self, column: Index, vectors: int, count: int | None, keys: tuple[Index, Index]
    ) -> None:
        with self.e.loop(0, self.tiles, name="tile") as number:
            self.tile(number).weigh(column, vectors, count, keys)


@dataclass(frozen=True)
class QueryTile:
    """Emitter of one tile: `height` rows at `places`, which lie `steps` bytes apart; rows of `scores` too."""

    stack: KeyStack
    places: dict[str, Value]
    steps: dict[str, int]
    height: int
    scores: Value

    @property
    def e(self) -> Emitter:
        return self.stack.e

    @property
    def queries(self) -> MatrixRows:
        """Rows of queries of the tile."""
        return MatrixRows(self.places["queries"], self.steps["queries"])

    def score(self, first: Index, vectors: int, count: int | None, less: list[Value]) -> None:
        """Emit the scores of some vectors of keys; `count`: how many of the one vector are there.

        less: what is subtracted from int8 sums of every row, if anything is.
        """
        e, stack, lanes = self.e, self.stack, self.stack.lanes
        if stack.extents.is_int8:
            totals = ByteScores(stack).scores(self.queries, self.height, first, vectors, less)
        else:
            keys = MatrixRows(stack.transposed(first), KEY_LINE)
            sums = [scalar(vec(F32, lanes), 0.0)] * (self.height * vectors)
            depth, gap = stack.extents.depth, stack.vector_gap
            totals = add_products(e, self.queries, keys, depth, sums, vectors, gap=gap)
        for number, total in enumerate(totals):
            row, vector = divmod(number, vectors)
            self._store_scores(total, row, e.plus(first, lanes * vector), count)

    def score_squares(self) -> None:
        """Emit the scores of the tile, with squares of keys that are transposed in registers."""
        e, stack = self.e, self.stack
        for start, stop, height in stack.key_blocks():
            with e.loop(start, stop, SQUARE, "keys") as first:
                self._fetch(first)
                sums = [scalar(vec(F32, SQUARE), 0.0)] * self.height
                for low, high, width in pieces(stack.extents.depth, SQUARE):
                    with e.carrying_loop(low, high, sums, width, "depth") as carry:
                        square = stack.square(first, height, carry.index, width)
                        carry.next(self._add_square(square, carry.index, carry.values))
                    sums = carry.values
                for row, total in enumerate(sums):
                    self._store_scores(total, row, first, None if height == SQUARE else height)

    def _fetch(self, first: Index) -> None:
        """Emit prefetches of keys that follow those from `first` on.

        Values are read in order later, which processors notice themselves.
        """
        e, size = self.e, 4 * self.stack.extents.depth
        if e.target.size is CodeSize.FAST:
            place = e.offset(self.stack.places["keys"], e.scaled(first, size))
            fetch_early(e, place, size * KEYS_AHEAD, -(-size * SQUARE // e.target.model.line_bytes))

    def _add_square(self, square: list[Value], column: Index, sums: list[Value]) -> list[Value]:
        """Add the products of all rows and of columns of queries from `column` on."""
        e, start = self.e, self.e.offset(self.places["queries"], self.e.scaled(column, 4))
        for number, keys in enumerate(square):
            factors = [
                e.load(e.offset(start, self.steps["queries"] * row + 4 * number), F32)
                for row in range(self.height)
            ]
            pairs = zip(factors, sums, strict=True)
            sums = [add_product(e, e.splat(factor, SQUARE), keys, total) for factor, total in pairs]
        return sums

    def _store_scores(self, scores: Value, row: int, first: Index, count: int | None) -> None:
        """Emit the steps that lead from products to scores; lanes beyond `count` are not read."""
        e, operation = self.e, self.stack.operation
        factor = scalar(scores.type, operation.factor)
        if operation.divides:
            scores = e.b.fdiv(scores, factor)
        elif operation.factor != 1.0:
            scores = e.b.fmul(scores, factor)
        for chooses in (operation.chooses_first, not operation.chooses_first):
            if chooses and "condition" in self.places:
                chosen = self._beside("condition", I8, row, first, scores.type.count, count)
                relation = "==" if operation.hides else "!="
                shown = e.b.icmp_unsigned(relation, chosen, scalar(chosen.type, 0))
                scores = e.b.select(shown, scores, scalar(scores.type, operation.otherwise))
            if not chooses and "addend" in self.places:
                scores = e.b.fadd(scores, self._beside("addend", F32, row, first, scores.type.count, count))
        e.store(scores, e.offset(self._row(row), e.scaled(first, 4)))

    def _beside(
        self, name: str, element: object, row: int, first: Index, lanes: int, count: int | None
    ) -> Value:
        """Load what belongs to scores of a row from key `first` on."""
        e, size = self.e, 1 if element is I8 else 4
        place = e.plus(e.scaled(first, size), self.steps[name] * row)
        return e.load_lanes(e.offset(self.places[name], place), element, lanes, count)

    def _row(self, row: int) -> Value:
        """Address of a row of scores."""
        return self.e.offset(self.scores, self.stack.line_bytes * row)

    def weigh(self, column: Index, vectors: int, count: int | None, keys: tuple[Index, Index]) -> None:
        """Add the products of shares and values of a range of keys to some vectors of results.

        The first key of all begins the sums. count: columns of the one vector if it is partial.
        """
        e, stack, lanes, (first, stop) = self.e, self.stack, self.stack.lanes, keys
        step = 4 * stack.extents.width
        values = e.offset(stack.places["values"], e.plus(e.scaled(column, 4), e.scaled(first, step)))
        shares = MatrixRows(e.offset(self.scores, e.scaled(first, 4)), stack.line_bytes)
        moves = [
            e.plus(e.scaled(column, 4), self.steps["dest"] * row + 4 * lanes * vector)
            for row in range(self.height)
            for vector in range(vectors)
        ]
        results = [e.offset(self.places["dest"], move) for move in moves]
        if isinstance(first, int) and first == 0:
            depth, sums = stop, [scalar(vec(F32, lanes), 0.0)] * len(results)
        else:
            depth = e.b.sub(e.index(stop), e.index(first))
            sums = [e.load_lanes(result, F32, lanes, count) for result in results]
        totals = add_products(e, shares, MatrixRows(values, step), depth, sums, vectors, count)
        for total, result in zip(totals, results, strict=True):
            e.store_lanes(total, result, count)

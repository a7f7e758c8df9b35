"""A block of rows of queries: their scores, shares of them in working memory, and the mean of values."""

from __future__ import annotations

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


@dataclass(frozen=True)
class QueryBlock:
    """Emitter of a block of `height` rows at `places`, which lie `steps` bytes apart."""

    stack: KeyStack
    places: dict[str, Value]
    steps: dict[str, int]
    height: int

    @property
    def e(self) -> Emitter:
        return self.stack.e

    def score_vectors(self) -> None:
        """Emit the scores of the block by the transposed keys, by whole vectors of them."""
        e, lanes, stack = self.e, self.stack.lanes, self.stack
        less = ByteScores(stack).sum_rows(self.queries, self.height) if stack.extents.is_int8 else []
        keys, most = stack.extents.keys, stack.vectors
        end, wide = e.minimum(stack.reach, keys // lanes * lanes), lanes * most
        blocked = end // wide * wide if isinstance(end, int) else e.b.and_(end, e.index(-wide))
        for start, stop, vectors in ((0, blocked, most), (blocked, end, 1)):
            if isinstance(end, int) and start == stop:
                continue
            with e.loop(start, stop, lanes * vectors, "keys") as first:
                self._score(first, vectors, None, less)
        if keys % lanes:
            with e.loop(keys // lanes * lanes, stack.reach, LANES, "last") as first:
                self._score(first, 1, keys % lanes, less)

    @property
    def queries(self) -> MatrixRows:
        """Rows of queries of the block."""
        return MatrixRows(self.places["queries"], self.steps["queries"])

    def _score(self, first: Index, vectors: int, count: int | None, less: list[Value]) -> None:
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
        """Emit the scores of the block, with squares of keys that are transposed in registers."""
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
        """Emit prefetches of keys that follow those from `first` on, and of the values of these."""
        if self.e.target.size is not CodeSize.FAST:
            return
        e, extents, line = self.e, self.stack.extents, self.e.target.model.line_bytes
        for name, size, ahead in (("keys", extents.depth, KEYS_AHEAD), ("values", extents.width, 0)):
            place = e.offset(self.stack.places[name], e.scaled(first, 4 * size))
            fetch_early(e, place, 4 * size * ahead, -(-4 * size * SQUARE // line))

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

    def _row(self, row: Index) -> Value:
        """Address of a row of scores."""
        return self.e.offset(self.stack.scores, self.e.scaled(row, self.stack.line_bytes))

    def share(self) -> None:
        """Emit the shares of every row. Lanes of keys that take no part are minus infinity: shares of 0."""
        e, stack = self.e, self.stack
        if not isinstance(stack.count, int) or stack.count % LANES:
            last = e.maximum(e.plus(stack.reach, -LANES), 0)
            present = self._present(last)
            with e.loop(0, self.height, name="row") as row:
                place = e.offset(self._row(row), e.scaled(last, 4))
                scores = e.load(place, vec(F32, LANES))
                e.store(e.b.select(present, scores, scalar(scores.type, NEGATIVE_INFINITY)), place)
        masked = stack.operation.masked_to_zero
        softmax_rows(e, stack.scores, stack.line_bytes, self.height, stack.reach, masked)

    def _present(self, first: Index) -> Value:
        """Whether keys from `first` on take part."""
        e, count = self.e, self.stack.count
        places = constant_vector(I32, range(LANES))
        left = e.index(e.plus(count, -first) if isinstance(first, int) else e.b.sub(e.index(count), first))
        return e.b.icmp_signed("<", places, e.splat(e.b.trunc(left, I32), LANES))

    def weigh(self) -> None:
        """Emit the products of shares and values."""
        e, stack = self.e, self.stack
        lanes, width = stack.lanes, stack.extents.width
        whole = width // lanes * lanes
        vectors = max(stack.vectors, FEW_SUMS // self.height)
        for start, stop, size in pieces(whole, lanes * vectors, lanes):
            with e.loop(start, stop, size, "columns") as column:
                self._weigh(column, size // lanes, None)
        if whole < width:
            self._weigh(whole, 1, width - whole)

    def _weigh(self, column: Index, vectors: int, count: int | None) -> None:
        """Emit some vectors of results; `count`: columns of the one vector if it is partial."""
        e, stack, lanes = self.e, self.stack, self.stack.lanes
        values = e.offset(stack.places["values"], e.scaled(column, 4))
        sums = [scalar(vec(F32, lanes), 0.0)] * (self.height * vectors)
        shares, columns = (
            MatrixRows(stack.scores, stack.line_bytes),
            MatrixRows(values, 4 * stack.extents.width),
        )
        for number, total in enumerate(add_products(e, shares, columns, stack.count, sums, vectors, count)):
            row, vector = divmod(number, vectors)
            place = e.plus(e.scaled(column, 4), self.steps["dest"] * row + 4 * lanes * vector)
            e.store_lanes(total, e.offset(self.places["dest"], place), count)

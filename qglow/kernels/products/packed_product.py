"""Product of two int8 matrices, neither of them constant; the right one is packed like weights at run time.

Memory holds activations as bytes a' = a + bias, with zero point za'. The right operand is packed
as signed bytes b with zero point zb. Sums run over K, and an element is

    sum((a' - za') * (b - zb))  =  sum(a' * b)  -  za' * sum(b)  +  K * za' * zb  -  zb * sum(a')

The second and third term together are one number for each column, computed while packing. The last term is
one number for each row, computed beside the products and left out where zb is 0. int32 arithmetic may wrap
around on the way; the element itself fits int32, so it is exact.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from qglow.core.types import TensorType
from qglow.kernels.emit.builder import F32, I8, I16, I32, Index, Number, PerCall, Value, scalar, vec
from qglow.kernels.emit.emitter import Emitter
from qglow.kernels.products.matmul import pieces
from qglow.kernels.tiles.output import OutputStage
from qglow.kernels.tiles.tile import DotTile, MicroTile

STEP = 4
"""Elements along K that one step of a tile multiplies."""
SIGN = 0x80


@dataclass(frozen=True)
class Blocks:
    """Division of the columns of a matrix into blocks of `vectors` x `lanes`; the last takes the rest."""

    columns: int
    lanes: int
    vectors: int

    @property
    def whole(self) -> int:
        """Number of full blocks."""
        return self.columns // (self.lanes * self.vectors)

    @property
    def rest(self) -> int:
        """Columns behind the full blocks."""
        return self.columns - self.whole * self.lanes * self.vectors

    @property
    def count(self) -> int:
        """Number of blocks, the partial one included."""
        return self.whole + (1 if self.rest else 0)

    def kinds(self) -> Iterator[tuple[int, int, int, int]]:
        """Groups of equal blocks, as (first block, number of blocks, vectors of each, columns of each)."""
        if self.whole:
            yield 0, self.whole, self.vectors, self.lanes * self.vectors
        if self.rest:
            yield self.whole, 1, -(-self.rest // self.lanes), self.rest


@dataclass(frozen=True)
class PackedProduct:
    """Product M x K x N by blocks of columns, each of which is packed once and then multiplied with all rows.

    rows, depth: M, K. zero_a: za' of the module's formula. zero_b: zb. most_rows: rows of a tile.
    zero_step: address of a step of za'. ones: address of weights of 1, of a whole step and of the last one.
    factor: address of the multiplier in all lanes. shared: whether threads share the blocks.
    """

    e: Emitter
    tile: MicroTile
    output: OutputStage
    rows: int
    depth: int
    blocks: Blocks
    zero_a: Number
    zero_b: Number
    most_rows: int
    zero_step: Value
    ones: Value
    factor: Value
    shared: bool

    @property
    def whole_steps(self) -> Index:
        """Whole steps along K with terms that matter; in others one of both factors is 0."""
        e, whole = self.e, self.depth // STEP
        terms = e.live_terms(self.depth)
        if isinstance(terms, int):
            return whole
        with e.at_entry():
            return e.minimum(e.b.sdiv(e.index(e.plus(terms, STEP - 1)), e.index(STEP)), whole)

    def _constant(self, whole: Index) -> Value:
        """The third term of the formula, K * za' * zb, over so many whole steps and the rest."""
        e, kind, zeros = self.e, self.tile.accumulator, self.zero_a * self.zero_b
        if isinstance(whole, int):
            return scalar(kind, wrapped(self.depth * zeros))
        terms = e.index(e.plus(e.scaled(whole, STEP), self.depth % STEP))
        return e.b.mul(e.splat(e.b.trunc(terms, I32), self.tile.lanes), scalar(kind, wrapped(zeros)))

    def emit(self, dest: Value, lhs: Value, rhs: Value, packed: Value) -> None:
        """Emit a loop over blocks, which threads may share; each has its own part of memory at `packed`."""
        e, blocks = self.e, self.blocks
        # The thread that multiplies a block also packs it, so threads need not wait for each other.
        share = e.share(blocks.count, self.shared)
        wide = blocks.lanes * blocks.vectors
        for first, count, vectors, columns in blocks.kinds():
            live = e.live_pieces(count, columns, blocks.columns, first * wide)
            with e.shared_loop(share, first, live, "block") as index:
                number = e.plus(index, first)
                room = e.offset(packed, e.scaled(number, block_bytes(self.tile, self.depth, blocks.vectors)))
                self._pack(e.offset(rhs, e.scaled(number, wide)), room, vectors)
                to = e.offset(dest, e.scaled(number, wide * self.output.element_bytes))
                self._multiply(to, lhs, room, vectors, columns)

    # The right operand

    def _pack(self, rhs: Value, room: Value, vectors: int) -> None:
        """Pack the columns of a block as weights of the tile.

        `room` gets a bias for each column, which is the second and third term of the formula, then the
        weights.
        """
        e, tile = self.e, self.tile
        start = e.offset(room, vectors * tile.accumulator_bytes)
        step_bytes = vectors * tile.weight_bytes
        last, rest = divmod(self.depth, STEP)
        whole = self.whole_steps
        constant = self._constant(whole)
        # With za' as the activation, the multiplication of a step adds up za' * sum(b), of weights that are
        # in registers already.
        weight = tile.load_activation(e, self.zero_step)
        for v in range(vectors):
            source, target = e.offset(rhs, v * tile.lanes), e.offset(start, v * tile.weight_bytes)
            total = scalar(tile.accumulator, 0)
            with e.carrying_loop(0, whole, [total], name="pack") as carry:
                place = e.offset(source, e.scaled(carry.index, STEP * self.blocks.columns))
                to = e.offset(target, e.scaled(carry.index, step_bytes))
                carry.next([self._pack_step(place, to, STEP, weight, carry.values[0])])
            total = carry.values[0] if last else total
            if rest:
                place = e.offset(source, last * STEP * self.blocks.columns)
                total = self._pack_step(place, e.offset(target, last * step_bytes), rest, weight, total)
            bias = e.b.sub(constant, total)
            e.store(bias, e.offset(room, v * tile.accumulator_bytes))

    def _pack_step(
        self, source: Value, target: Value, count: int, weight: tuple[Value, ...], total: Value
    ) -> Value:
        """Pack `count` rows of one vector of columns, and return `total` plus za' times their sum."""
        e, lanes = self.e, self.tile.lanes
        kind = vec(I8, lanes)
        rows = [scalar(kind, 0)] * STEP
        for i in range(count):
            stored = e.load(e.offset(source, i * self.blocks.columns), kind)
            # Weights are signed bytes: flipping the top bit subtracts the bias of 128.
            rows[i] = e.b.xor(stored, scalar(kind, SIGN)) if e.target.activation_bias else stored
        packed = _packed_step(e, self.tile, rows)
        size = self.tile.weight_bytes // len(packed)
        for number, part in enumerate(packed):
            e.store(part, e.offset(target, number * size))
        return self.tile.accumulate(e, total, weight, packed) if self.zero_a else total

    # The product

    def _multiply(self, dest: Value, lhs: Value, room: Value, vectors: int, columns: int) -> None:
        """Emit a loop over tiles of rows, all of which multiply the same packed block."""
        e = self.e
        wide = self.blocks.columns
        for start, stop, height in pieces(self.rows, self.most_rows):
            count = -(-(stop - start) // height)
            count = e.live_pieces(count, height * wide, self.rows * wide, start * wide)
            with e.loop(start, e.plus(e.scaled(count, height), start), height, "rows") as row:
                to = e.offset(dest, e.scaled(row, self.blocks.columns * self.output.element_bytes))
                source = e.offset(lhs, e.scaled(row, self.depth))
                self._tile(to, source, room, height, vectors, columns)

    def _tile(self, dest: Value, lhs: Value, room: Value, height: int, vectors: int, columns: int) -> None:
        """Emit a tile of `height` rows: its sums over K, less zb times the row sums, then the output."""
        e, tile = self.e, self.tile
        size = tile.accumulator_bytes
        bias = [e.load(e.offset(room, v * size), tile.accumulator) for v in range(vectors)]
        initial = bias * height
        if self.zero_b:
            initial += [scalar(tile.accumulator, 0)] * height
        sums = self._sums(lhs, e.offset(room, vectors * size), initial, height, vectors)
        rows = [sums[r * vectors : (r + 1) * vectors] for r in range(height)]
        if self.zero_b:
            zero = scalar(tile.accumulator, self.zero_b)
            less = [e.b.mul(total, zero) for total in sums[height * vectors :]]
            rows = [[e.b.sub(s, minus) for s in row] for row, minus in zip(rows, less, strict=True)]
        factor = e.load(self.factor, vec(F32, tile.lanes))
        pitch = self.blocks.columns * self.output.element_bytes
        places = [e.offset(dest, r * pitch) for r in range(height)]
        self.output.emit(e, rows, [factor] * vectors, places, columns)

    def _sums(
        self, lhs: Value, packed: Value, initial: list[Value], height: int, vectors: int
    ) -> list[Value]:
        """Emit all steps along K; returns sums [row][vector], then one sum for each row if zb is not 0."""
        e, whole = self.e, self.depth // STEP
        step_bytes = vectors * self.tile.weight_bytes
        sums = initial
        with e.carrying_loop(0, self.whole_steps, sums, name="steps") as carry:
            at = e.offset(lhs, e.scaled(carry.index, STEP))
            weights = e.offset(packed, e.scaled(carry.index, step_bytes))
            carry.next(self._step(at, weights, carry.values, height, vectors, self.ones))
        sums = carry.values if whole else sums
        if self.depth % STEP:
            rest = e.offset(self.ones, self.tile.weight_bytes)
            at, weights = e.offset(lhs, whole * STEP), e.offset(packed, whole * step_bytes)
            sums = self._step(at, weights, sums, height, vectors, rest)
        return sums

    def _step(
        self, lhs: Value, packed: Value, sums: list[Value], height: int, vectors: int, ones: Value
    ) -> list[Value]:
        e, tile = self.e, self.tile
        loaded = [tile.load_weights(e, e.offset(packed, v * tile.weight_bytes)) for v in range(vectors)]
        # Row sums are products with weights of 1: the activation is in a register anyway.
        counted = tile.load_weights(e, ones) if self.zero_b else ()
        products, row_sums = [], []
        for r in range(height):
            activation = tile.load_activation(e, e.offset(lhs, r * self.depth))
            for v in range(vectors):
                products.append(tile.accumulate(e, sums[r * vectors + v], activation, loaded[v]))
            if self.zero_b:
                row_sums.append(tile.accumulate(e, sums[height * vectors + r], activation, counted))
        return products + row_sums


def _packed_step(e: Emitter, tile: MicroTile, rows: list[Value]) -> tuple[Value, ...]:
    """Arrange four rows of signed bytes, one a column, as the tile's `load_weights` returns them."""
    lanes = tile.lanes
    if isinstance(tile, DotTile):
        words = vec(I16, lanes)
        pairs = [e.b.bitcast(_interleaved(e, rows[i], rows[i + 1]), words) for i in (0, 2)]
        return (e.b.bitcast(_interleaved(e, *pairs), vec(I8, 4 * lanes)),)
    # PairTile multiplies the pair of bytes 0 and 2, then the pair of bytes 1 and 3.
    wide = [e.b.sext(row, vec(I16, lanes)) for row in rows]
    return tuple(_interleaved(e, wide[i], wide[i + 2]) for i in (0, 1))


def _interleaved(e: Emitter, left: Value, right: Value) -> Value:
    """Interleave the lanes of two vectors: left 0, right 0, left 1, right 1 and so on."""
    lanes = left.type.count
    return e.shuffle(left, right, [n for i in range(lanes) for n in (i, lanes + i)])


def block_bytes(tile: MicroTile, depth: int, vectors: int) -> int:
    """Bytes that a packed block of columns takes: biases, then the weights of all steps."""
    steps = -(-depth // STEP)
    return vectors * (tile.accumulator_bytes + steps * tile.weight_bytes)


def is_centred(kind: TensorType) -> bool:
    """Whether the zero point of int8 activations is 0, without the bias."""
    assert kind.quantization is not None
    return kind.quantization.zero_point == 0


def wrapped(value: Number) -> Number:
    """Number in the range of int32 that is equal modulo 2^32; numbers of the code wrap by themselves."""
    return value if isinstance(value, PerCall) else (value + 2**31) % 2**32 - 2**31

"""Scores of int8 queries and keys: exact int32 sums, rescaled to float32.

Memory holds queries as bytes q' = q + bias, with zero point zq'. Keys are signed bytes k with zero point zk,
four of them a word, transposed word by word. Sums run over the elements of a key, D of them, and a score is

    sum((q' - zq') * (k - zk))  =  sum(q' * k)  -  zq' * sum(k)  +  D * zq' * zk  -  zk * sum(q')

times s_q * s_k. The second and third term together are one number for each key, computed once for all rows.
The last term is one number for each row, left out where zk is 0. int32 arithmetic may wrap around on the way.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qglow.core.types import Array
from qglow.instructions.program import Instruction
from qglow.kernels.attention.stack import KEY_LINE, KeyStack
from qglow.kernels.emit.builder import F32, Index, Number, Value, scalar, vec
from qglow.kernels.emit.emitter import Emitter
from qglow.kernels.emit.target import VectorTarget
from qglow.kernels.products.matmul import MatrixRows
from qglow.kernels.products.packed_product import STEP, is_centred, wrapped
from qglow.kernels.tiles.tile import MicroTile, select_tile


def score_constants(instruction: Instruction, target: VectorTarget) -> dict[str, Array]:
    """Return a step of zero points of queries, and weights of 1 that sum up a row.

    `ones` has the weights of a whole step, then those of the last step, which are 0 beyond the row.
    """
    tile = select_tile(target, False)
    queries = instruction.operand("queries").type
    assert queries.quantization is not None
    ones = np.ones((2, tile.lanes * STEP), np.int8)
    ones.reshape(2, tile.lanes, STEP)[1, :, queries.shape[-1] % STEP :] = 0
    zero = queries.quantization.zero_point + target.activation_bias
    return {"zero": np.full(STEP, zero % 256, np.uint8), "ones": ones}


@dataclass(frozen=True)
class ByteScores:
    """Emitter of scores by one stack of int8 keys."""

    stack: KeyStack

    @property
    def e(self) -> Emitter:
        return self.stack.e

    @property
    def tile(self) -> MicroTile:
        """Products of one step, a word of each key."""
        return select_tile(self.stack.site.target, False)

    @property
    def zero_keys(self) -> Number:
        """zk of the module's formula."""
        keys = self.stack.site["keys"]
        return 0 if is_centred(keys.type) else keys.zero_point - keys.bias

    def sum_keys(self) -> None:
        """Emit the second and third term of the formula for the keys that take part, once transposed."""
        e, stack, tile = self.e, self.stack, self.tile
        zero: Number = stack.site["queries"].zero_point
        constant = scalar(tile.accumulator, wrapped(stack.extents.depth * (zero * self.zero_keys)))
        weight = tile.load_activation(e, stack.site.constants["zero"])
        with e.loop(0, stack.reach, tile.lanes, "keys") as first:
            start = stack.transposed(first)
            with e.carrying_loop(0, stack.extents.words, [scalar(tile.accumulator, 0)], name="sum") as carry:
                words = tile.load_bytes(e, e.offset(start, e.scaled(carry.index, KEY_LINE)))
                carry.next([tile.accumulate(e, carry.values[0], weight, words)])
            e.store(e.b.sub(constant, carry.values[0]), stack.term(first))

    def sum_rows(self, queries: MatrixRows, height: int) -> list[Value]:
        """Emit the last term of the formula for each row; none where it is 0."""
        e, tile, ones = self.e, self.tile, self.stack.site.constants["ones"]
        if not self.zero_keys:
            return []
        whole, rest = divmod(self.stack.extents.depth, STEP)
        sums = [scalar(tile.accumulator, 0)] * height
        if whole:
            weights = tile.load_bytes(e, ones)
            with e.carrying_loop(0, whole, sums, name="sum") as carry:
                carry.next(self._add(queries, carry.index, carry.values, [weights]))
            sums = carry.values
        if rest:
            sums = self._add(queries, whole, sums, [tile.load_bytes(e, e.offset(ones, STEP * tile.lanes))])
        zero = scalar(tile.accumulator, self.zero_keys)
        return [e.b.mul(total, zero) for total in sums]

    def scores(
        self, queries: MatrixRows, height: int, first: Index, vectors: int, less: list[Value]
    ) -> list[Value]:
        """Emit float32 scores of rows by vectors of keys from `first` on, in the order [row][vector]."""
        e, stack, tile = self.e, self.stack, self.tile
        start, terms = stack.transposed(first), stack.term(first)
        sums = [e.load(e.offset(terms, v * tile.accumulator_bytes), tile.accumulator) for v in range(vectors)]
        with e.carrying_loop(0, stack.extents.words, sums * height, name="words") as carry:
            line = e.offset(start, e.scaled(carry.index, KEY_LINE))
            weights = [tile.load_bytes(e, e.offset(line, v * stack.vector_gap)) for v in range(vectors)]
            carry.next(self._add(queries, carry.index, carry.values, weights))
        factor = scalar(vec(F32, tile.lanes), stack.site["queries"].scale * stack.site["keys"].scale)
        found = []
        for number, total in enumerate(carry.values):
            total = e.b.sub(total, less[number // vectors]) if less else total
            found.append(e.b.fmul(e.b.sitofp(total, factor.type), factor))
        return found

    def _add(
        self, queries: MatrixRows, step: Index, sums: list[Value], weights: list[tuple[Value, ...]]
    ) -> list[Value]:
        """Emit one step: a word of each row, times all weights."""
        e, tile, vectors = self.e, self.tile, len(weights)
        start = e.offset(queries.start, e.scaled(step, STEP))
        result = []
        for row in range(len(sums) // vectors):
            activation = tile.load_activation(e, e.offset(start, queries.step * row))
            own = sums[row * vectors : (row + 1) * vectors]
            result += [tile.accumulate(e, s, activation, w) for s, w in zip(own, weights, strict=True)]
        return result

"""The tile of AVX2 that multiplies bytes in pairs, exact for weights that are small enough."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from qglow.kernels.emit.builder import Value
from qglow.kernels.emit.emitter import Emitter
from qglow.kernels.tiles.tile import ByteTile
from qglow.targets.x86.multiplications import add_word_pairs, byte_pairs

KEPT_WEIGHTS = 2
"""Least vectors of weights that stay in registers for all pixels where those of a turn have no room there.

Loads bound the steps that have masks: products of 128 rows by 2048 x 2048 take 0.94 of the time [measured].
"""


@dataclass(frozen=True)
class BytePairTile(ByteTile):
    """AVX2: vpmaddubsw, which adds two products of bytes in 16 bits, then vpmaddwd by 1.

    Only for weights whose pairs fit: see step_kinds.
    """

    most_vectors: ClassVar[int] = 3
    """The more vectors a block has, the fewer steps can be joined for all of them."""

    def most_pixels(self, vectors: int) -> int:
        """Most pixels with room in registers, beside some weights where there are several vectors."""
        kept = KEPT_WEIGHTS if vectors > 1 else 0
        return max(1, (self.spare_registers(0) - kept) // vectors)

    def spare_registers(self, sums: int) -> int:
        """Registers beside sums, two steps, a product, weights or a mask, and what widens sums."""
        return max(0, self.registers - 6 - sums)

    def step_cycles(self, pixels: int, vectors: int) -> float:
        """Cycles of a step, bound by two multiplications a vector."""
        return max(self.model.chain_cycles, self.model.pair_cycles * pixels * vectors)

    def accumulate(
        self, e: Emitter, total: Value, activation: tuple[Value, ...], weights: tuple[Value, ...]
    ) -> Value:
        """Add products of unsigned and signed bytes: first pairs in 16 bits, then pairs of these in 32."""
        return self.add_pairs(e, total, self.pairs(e, activation, weights))

    def pairs(self, e: Emitter, activation: tuple[Value, ...], weights: tuple[Value, ...]) -> Value:
        """Sums of two products each, int16."""
        return byte_pairs(e, activation[0], weights[0])

    def add_pairs(self, e: Emitter, total: Value, pairs: Value) -> Value:
        """Add both int16 sums of each channel to `total`."""
        return add_word_pairs(e, total, pairs)

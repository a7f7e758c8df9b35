"""Products of one row of integers with weights in blocks: codes are multiplied as they are, unsigned.

The sum of `a * (code - zero point)` over a block is that of `a * code` less the zero point times the sum of
`a`, which is the same for all columns. So nothing is subtracted from single weights, and one product serves
where bytes of activations with a bias would take a second one to correct it. For that the row is copied
once, as signed bytes; they and the sums over blocks lie in working memory.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from qglow.instructions.ops.blocks import BlockGemm
from qglow.instructions.program import Instruction
from qglow.kernels.emit.builder import I8, I16, I32, Index, Value, scalar, vec
from qglow.kernels.emit.kernel import Kernel, Site, candidates_for, kernel
from qglow.kernels.emit.packing import HIGHEST_BITS
from qglow.kernels.emit.target import VectorTarget
from qglow.kernels.products.block_packing import STEP
from qglow.kernels.products.blocks import BYTE_CODES, fetch_words
from qglow.kernels.products.integer_blocks import IntegerBlockProduct, has_known_weights, panel_vectors
from qglow.kernels.products.integer_panel import BYTES, UNROLLED, WORDS, SummedPanel
from qglow.kernels.products.row_sums import (
    copied_row,
    copied_row_bytes,
    load_row_sums,
    row_sum_bytes,
    sum_rows,
)
from qglow.kernels.tiles.tile import DotTile, MicroTile, PairTile, fastest_tile
from qglow.numerics.blocks import middle

HALF_BITS = 4
"""Most bits of codes whose products are added in 16 bits."""
JOINED_STEPS = 8
"""Steps whose neighbouring products are added in 16 bits: 16 of 4 bits by -128 are -30720."""


@kernel
@dataclass(frozen=True)
class OneRowBlockProduct(IntegerBlockProduct):
    """Panels of `vectors` vectors of columns."""

    name: ClassVar[str] = "onerowblockproduct"

    def scratch_bytes(self, instruction: Instruction) -> int:
        """Bytes of the sums of the row over blocks, and of the row."""
        return row_sum_bytes(instruction) + copied_row_bytes(instruction)

    def prepare(self, site: Site) -> None:
        """Emit the sums and the copy of the row."""
        sum_rows(site, copies=True)

    def emit_panel(self, site: Site, number: Index, used: int) -> None:
        """Emit one panel."""
        _OneRowPanel(site, 1, self.vectors, number, used).emit()


@dataclass(frozen=True)
class _OneRowPanel(SummedPanel):
    """Emitter of one panel."""

    @property
    def tile(self) -> MicroTile:
        return _tile(self.site.target)

    @property
    def shifts(self) -> tuple[int, ...]:
        """Lowest bits of the parts of a code that are multiplied apart."""
        return (0, HALF_BITS) if self.operation.bits == BYTE_CODES and self.tile.joins else (0,)

    def words(self, number: Index, row: Index, height: int, zeros: list[Value], length: int) -> list[Value]:
        """Emit the integer sums of one block."""
        e, operation = self.e, self.operation
        x = e.offset(copied_row(self.site), e.scaled(number, operation.block))
        first = e.scaled(number, operation.block // self.each)
        parts = [scalar(self.tile.accumulator, 0)] * (self.count * len(self.shifts))
        whole = length // self.each
        together = min(whole, UNROLLED)
        done = whole - whole % together if together else 0
        if done:
            with e.carrying_loop(0, done, parts, together, name="word") as carry:
                at, place = e.plus(first, carry.index), e.offset(x, e.scaled(carry.index, self.each))
                carry.next(self._add(at, place, carry.values, together * self.each))
            parts = carry.values
        left = length - done * self.each
        if left:
            parts = self._add(e.plus(first, done), e.offset(x, done * self.each), parts, left)
        return [self._total(parts[v :: self.count]) for v in range(self.count)]

    def row_sums(self, row: Index, block: Index, height: int) -> list[Value]:
        """Emit loads of the sums of the row over a block, in all lanes."""
        return [self.e.splat(total, self.lanes) for total in load_row_sums(self.site, row, block, height)]

    def zeros(self, number: Index, blocks: int) -> list[Value]:
        """Emit the zero points of a block, int32."""
        wide = vec(I32, self.lanes)
        if "zeros" not in self.site.constants:
            return [scalar(wide, middle(self.operation.bits))] * self.count
        return [self.e.b.zext(zero, wide) for zero in self.row("zeros", number, blocks, I8)]

    def _total(self, parts: list[Value]) -> Value:
        """Emit the sum of parts, each times its place."""
        e, total = self.e, parts[0]
        for part, shift in zip(parts[1:], self.shifts[1:], strict=True):
            total = e.b.add(total, e.b.shl(part, scalar(part.type, shift)))
        return total

    def _add(self, at: Index, x: Value, parts: list[Value], length: int) -> list[Value]:
        """Emit the products of `length` weights from word `at` on, added to the sums, [part][vector]."""
        e, rows = self.e, -(-self.depth // self.each)
        each, words = self.each // STEP, -(-length // self.each)
        loaded = []
        for word in range(words):
            fetch_words(self.site, (self.number, self.vectors), e.plus(at, word), rows)
            loaded.append(self.row("filter", e.plus(at, word), rows, I32))
        steps = -(-length // STEP)
        activations = [self.tile.load_activation(e, e.offset(x, STEP * step)) for step in range(steps)]
        found = []
        for number, total in enumerate(parts):
            part, v = divmod(number, self.count)
            codes = [
                self._codes(loaded[step // each][v], self.shifts[part] + self.operation.bits * (step % each))
                for step in range(steps)
            ]
            for first in range(0, steps, JOINED_STEPS):
                chunk = slice(first, first + JOINED_STEPS)
                # Codes are unsigned and activations signed bytes here.
                total = self.tile.accumulate_all(
                    e, total, [*zip(codes[chunk], activations[chunk], strict=True)]
                )
            found.append(total)
        return found

    def _codes(self, word: Value, shift: int) -> tuple[Value, ...]:
        """Emit the codes of a step, or parts of them, that begin at a bit of each byte of words."""
        e, bits = self.e, self.operation.bits
        largest = (1 << (HALF_BITS if len(self.shifts) > 1 else bits)) - 1
        if self.splits:
            word = e.b.xor(word, scalar(vec(I32, self.lanes), HIGHEST_BITS))
        if isinstance(self.tile, DotTile):
            return (e.b.bitcast(self.masked(word, shift, largest * BYTES), vec(I8, STEP * self.lanes)),)
        halves = (self.masked(word, shift + place, largest * WORDS) for place in (0, 8))
        return tuple(e.b.bitcast(half, vec(I16, 2 * self.lanes)) for half in halves)


def _tile(target: VectorTarget) -> MicroTile:
    """The tile of bytes of weights that are unsigned and activations that are signed."""
    tile = fastest_tile(target, False)
    return replace(tile, signed=True) if isinstance(tile, PairTile) else tile


@candidates_for(BlockGemm)
def one_row_products(instruction: Instruction, target: VectorTarget) -> list[Kernel]:
    """Return the kernel for one row where memory holds activations with a bias, none for others."""
    rows = instruction.operand("dest").type.shape[0]
    if rows != 1 or not target.activation_bias or not has_known_weights(instruction):
        return []
    return [OneRowBlockProduct(1, panel_vectors(instruction, target))]

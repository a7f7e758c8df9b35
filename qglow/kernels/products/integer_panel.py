"""Panels of products of integers with weights in blocks, for kernels of one row and of many."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from qglow.instructions.ops.experts import AnyBlockGemm
from qglow.kernels.arithmetic.fused import fused_multiply_add
from qglow.kernels.arithmetic.requantize import clamp_float
from qglow.kernels.emit.builder import F32, I8, I32, Index, Value, scalar, vec
from qglow.kernels.emit.target import VectorTarget
from qglow.kernels.products.blocks import BYTE_CODES, WORD_BITS, BlockSite, load_scales
from qglow.kernels.products.matmul import live_rows, pieces
from qglow.kernels.tiles.tile import DotTile, MicroTile, fastest_tile, select_tile
from qglow.numerics.blocks import block_count

BYTES = 0x01010101
"""The lowest bits of the bytes of 32 bits."""
WORDS = 0x00010001
"""The lowest bits of the halves of 32 bits."""
UNROLLED = 8
"""Most words of a column that one row multiplies without a loop.

Tiles of several rows loop over single words: LLVM would load the rows of all words first, and spill them.
"""


def tile_of(operation: AnyBlockGemm, target: VectorTarget) -> MicroTile:
    """The tile for codes of this width: those of fewer than 8 bits never saturate pairs of products."""
    return fastest_tile(target, False) if operation.bits < BYTE_CODES else select_tile(target, False)


def splits_zeros(operation: AnyBlockGemm, tile: MicroTile) -> bool:
    """Whether codes less their zero point are no operands of the tile, which takes bytes."""
    return operation.bits == BYTE_CODES and isinstance(tile, DotTile)


@dataclass(frozen=True)
class IntegerPanel(BlockSite):
    """Operands of one panel of `vectors` vectors, of which `used` columns are columns of the product."""

    rows: int
    vectors: int
    number: Index
    used: int

    @property
    def count(self) -> int:
        """Vectors of the panel that are used."""
        return -(-self.used // self.lanes)

    @property
    def splits(self) -> bool:
        """Whether weights are codes less 128, and the rest of zero points is multiplied with sums of rows."""
        return splits_zeros(self.operation, tile_of(self.operation, self.site.target))

    def masked(self, word: Value, shift: int, mask: int) -> Value:
        """Emit the codes under a mask, from bit `shift` of words on."""
        e, kind = self.e, vec(I32, self.lanes)
        word = e.b.lshr(word, scalar(kind, shift)) if shift else word
        return word if mask == (1 << WORD_BITS) - 1 else e.b.and_(word, scalar(kind, mask))

    def repeated_zeros(self, block: Index, times: int) -> list[Value]:
        """Emit the zero points of a block, bytes, each repeated in as many neighbouring lanes."""
        lanes = [lane for lane in range(self.lanes) for _ in range(times)]
        found = self.row("zeros", block, block_count(self.depth, self.operation.block), I8)
        return [self.e.shuffle(zero, None, lanes) for zero in found]

    def row(self, name: str, index: Index, rows: int, element: Any = F32) -> list[Value]:
        """Emit loads of the used vectors from a row of this panel; constants have `rows` rows a panel."""
        e, size = self.e, self.lanes * (4 if element is F32 else element.width // 8)
        line = size * self.vectors
        at = e.plus(e.scaled(self.number, rows * line), e.scaled(index, line))
        start = e.offset(self.site.constants[name], at)
        return [e.load(e.offset(start, size * v), vec(element, self.lanes)) for v in range(self.count)]


@dataclass(frozen=True)
class SummedPanel(IntegerPanel, ABC):
    """Emitter of one panel: the product of all rows, `rows` at a time, with its columns, by blocks."""

    def emit(self) -> None:
        """Emit loops over rows of src."""
        for start, stop, height in pieces(self.site["src"].shape[0], self.rows):
            with live_rows(self.site, start, stop, height) as row:
                self.emit_tile(row, height)

    def scales_of_rows(self, row: Index, height: int) -> list[Value]:
        """Addresses of the scales of `height` rows."""
        scales = self.e.offset(self.site["rows"].pointer, self.e.scaled(row, 4))
        return [self.e.offset(scales, 4 * r) for r in range(height)]

    def dest_rows(self, row: Index, height: int) -> list[Value]:
        """Addresses of this panel's columns in the results of `height` rows."""
        return self.panel_rows((self.number, self.vectors), row, height)

    def emit_tile(self, row: Index, height: int) -> None:
        """Emit the results of `height` rows."""
        e = self.e
        factors = [e.splat(e.load(place, F32), self.lanes) for place in self.scales_of_rows(row, height)]
        sums = [scalar(vec(F32, self.lanes), 0.0)] * (height * self.count)
        whole, rest = divmod(self.depth, self.operation.block)
        if whole:
            with e.carrying_loop(0, whole, sums, name="block") as carry:
                carry.next(self._block(carry.index, row, carry.values, factors, self.operation.block))
            sums = carry.values
        if rest:
            sums = self._block(whole, row, sums, factors, rest)
        bias = self.row("bias", 0, 1) if "bias" in self.site.constants else None
        rows = self.dest_rows(row, height)
        for number, total in enumerate(sums):
            r, v = divmod(number, self.count)
            total = total if bias is None else e.b.fadd(total, bias[v])
            result = clamp_float(e, total, self.operation.lo, self.operation.hi)
            place = e.offset(rows[r], 4 * self.lanes * v)
            e.store_lanes(result, place, min(self.lanes, self.used - self.lanes * v))

    def _block(
        self, number: Index, row: Index, sums: list[Value], factors: list[Value], length: int
    ) -> list[Value]:
        """Emit the sums of one block of `length` weights, and add them to `sums` with both scales.

        row: the first of as many as there are `factors`.
        """
        e, block, count = self.e, self.operation.block, self.count
        blocks = block_count(self.depth, block)
        zeros = self.zeros(number, blocks)
        found = self.words(number, row, len(factors), zeros, length)
        counts = self.row_sums(row, number, len(factors))
        scales = load_scales(self.site, self.number, number, (blocks, self.vectors), self.count)
        following = []
        for place, (product, total) in enumerate(zip(found, sums, strict=True)):
            r, v = divmod(place, count)
            if counts:
                product = e.b.sub(product, e.b.mul(counts[r], zeros[v]))
            real = e.b.sitofp(product, vec(F32, self.lanes))
            following.append(fused_multiply_add(e, real, e.b.fmul(factors[r], scales[v]), total))
        return following

    @abstractmethod
    def words(self, number: Index, row: Index, height: int, zeros: list[Value], length: int) -> list[Value]:
        """Emit the integer sums of one block of `length` weights, row by row."""

    @abstractmethod
    def row_sums(self, row: Index, block: Index, height: int) -> list[Value]:
        """Emit the sums of rows over a block, in all lanes, if zero points are multiplied with them."""

    @abstractmethod
    def zeros(self, number: Index, blocks: int) -> list[Value]:
        """Emit for each vector what weights are less, or what is multiplied with sums of rows."""

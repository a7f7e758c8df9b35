"""Products of integers with weights in blocks, whose rows have scales that are measured.

A shift and a mask of packed words leave the bytes of one step for the tiles of integer products, and the zero
point is subtracted from them once for all rows of a tile.

Memory holds activations as bytes a' = a + bias, so a block's sum is `sum(a' * w) - bias * sum(w)`. Many rows
begin with the second term, whose sums of weights are constants of their own. One row would have to read them
as well, and has a kernel of its own (one_row_blocks). Codes of 8 bits less their zero point are no bytes:
where the tile wants bytes they are held less 128, and the rest of the zero point is multiplied with the sum
of the row over the block, which is computed once for all columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from qglow.core.types import Array
from qglow.instructions.ops.blocks import BlockGemm
from qglow.instructions.ops.experts import AnyBlockGemm
from qglow.instructions.program import Instruction
from qglow.kernels.arithmetic.fused import EMULATED
from qglow.kernels.emit.builder import I8, I16, I32, Index, Value, scalar, vec
from qglow.kernels.emit.kernel import Kernel, Site, candidates_for, kernel
from qglow.kernels.emit.packing import HIGHEST_BITS, ColumnPacking, panels
from qglow.kernels.emit.target import VectorTarget
from qglow.kernels.products.block_packing import STEP, block_sums, integer_words, short_sums
from qglow.kernels.products.blocks import (
    BYTE_CODES,
    WORD_BITS,
    block_packings,
    fetch_words,
    stored_scales,
)
from qglow.kernels.products.integer_panel import (
    BYTES,
    UNROLLED,
    WORDS,
    SummedPanel,
    splits_zeros,
    tile_of,
)
from qglow.kernels.products.matmul import even_height
from qglow.kernels.products.row_sums import load_row_sums, row_sum_bytes, sum_rows
from qglow.kernels.tiles.tile import DotTile, MicroTile
from qglow.numerics.blocks import apart, block_count, middle, unpack

MOST_VECTORS = 2
"""Most vectors of columns that are summed at once, for one row and for many, which share packed weights."""
FEW_REGISTERS = 8
"""Vector registers of processors that sum one vector at once.

Where vectors are numbers in registers of their own, or groups of registers, sums of two and their unpacked
weights are kept in memory, for up to twice the instructions [counted by emulators].
"""
FEWEST_ROWS = 2
"""Rows of a tile, however few registers there are: weights are unpacked for all of them."""
JOINED_STEPS = 2
"""Steps of a word that are joined where a tile can, so that their weights fit the registers.

Codes of 4 bits are in every sum of neighbouring products `2 * 2 * 255 * 15` at most, those of 2 bits less.
"""
FINISHING = 4.0
"""Instructions that add a block's sums to a result."""
UNPACKING = 3.0
"""Instructions that unpack the weights of a step."""
JOINED_INSTRUCTIONS = 2.5
"""Instructions of the products of a step, where two are joined."""
PAIR_INSTRUCTIONS = 5.0
"""The same where pairs of 16 bits are multiplied, with what splits the activations of a step."""


@kernel
@dataclass(frozen=True)
class IntegerBlockProduct(Kernel):
    """Panels of `vectors` vectors of columns, each multiplied with `rows` rows at a time."""

    name: ClassVar[str] = "integerblockproduct"
    limits_live: ClassVar[bool] = True

    rows: int = 1
    vectors: int = 1

    def constants(self, instruction: Instruction, target: VectorTarget) -> dict[str, Array]:
        """Words, scales, zero points and bias in the order of panels; columns are filled up with zeros."""
        operation, depth = instruction.operation, instruction.operand("src").type.shape[1]
        assert isinstance(operation, BlockGemm)
        data = {s.name: b.data for s, b in instruction.operands() if b.data is not None}
        biased = self.rows > 1 and bool(target.activation_bias)
        return in_integer_panels(data, operation, depth, self.vectors, target, biased)

    def packings(self, instruction: Instruction, target: VectorTarget) -> dict[str, ColumnPacking]:
        """Codes in words as steps read them, where all are whole, and scales."""
        operation, depth = instruction.operation, instruction.operand("src").type.shape[1]
        assert isinstance(operation, BlockGemm)
        split = splits_zeros(operation, tile_of(operation, target))
        found = block_packings(instruction, self.vectors * target.float_lanes, split)
        if operation.bits < BYTE_CODES:
            found["filter"] = replace(found["filter"], bits=operation.bits)
        if depth * operation.bits % WORD_BITS:
            del found["filter"]
        return found

    def cost(self, instruction: Instruction, target: VectorTarget) -> float:
        """Cycles of products and of sums of blocks, and of unpacking once for each block of rows."""
        operation = instruction.operation
        assert isinstance(operation, AnyBlockGemm)
        rows, depth = instruction.operand("src").type.shape
        columns = instruction.operand("dest").type.shape[1]
        steps, blocks = -(-depth // STEP), block_count(depth, operation.block)
        finishing = FINISHING if target.has_fma else EMULATED
        products = steps * _step_instructions(tile_of(operation, target))
        each = rows * (products + blocks * finishing) + -(-rows // self.rows) * steps * UNPACKING
        return -(-columns // target.float_lanes) * each / target.model.products_a_cycle

    def scratch_bytes(self, instruction: Instruction) -> int:
        """Bytes of the sums of rows over blocks, where zero points of codes of 8 bits may need them."""
        operation = instruction.operation
        assert isinstance(operation, AnyBlockGemm)
        needed = operation.bits == BYTE_CODES and instruction.optional("zeros") is not None
        return row_sum_bytes(instruction) if needed else 0

    def emit(self, site: Site) -> None:
        """Emit a loop over panels, which threads share."""
        dest, columns = site["dest"], site["dest"].shape[1]
        if not dest.type.size:
            return
        self.prepare(site)
        width = self.vectors * site.target.float_lanes
        whole, rest = divmod(columns, width)
        share = site.e.share(whole + bool(rest))
        for first, count, used in ((0, whole, width), (whole, int(bool(rest)), rest)):
            if count:
                with site.e.shared_loop(share, first, count, "panel") as number:
                    self.emit_panel(site, site.e.plus(number, first), used)

    def prepare(self, site: Site) -> None:
        """Emit what is done once for all panels."""
        if needs_row_sums(site):
            sum_rows(site)

    def emit_panel(self, site: Site, number: Index, used: int) -> None:
        """Emit the product of all rows with `used` columns of one panel."""
        RowsPanel(site, self.rows, self.vectors, number, used).emit()


def in_integer_panels(
    data: Mapping[str, Array],
    operation: AnyBlockGemm,
    depth: int,
    vectors: int,
    target: VectorTarget,
    biased: bool,
) -> dict[str, Array]:
    """Words, scales, zero points and bias, by name, in panels of so many vectors.

    data: codes [K, N] and what belongs to them. biased: whether sums of weights are needed, since activations
    have a bias.
    """
    width = vectors * target.float_lanes
    codes = unpack(data["filter"], operation.bits, depth)
    zeros = data.get("zeros")
    zeros = None if zeros is None else apart(zeros, operation.bits, len(data["scales"]))
    centre = np.full(codes.shape[1], middle(operation.bits), np.uint8)
    split = splits_zeros(operation, tile_of(operation, target))
    last = centre if zeros is None or split or not len(zeros) else zeros[-1]
    words = integer_words(codes, operation.bits, last)
    if split:
        words ^= np.uint32(HIGHEST_BITS)
    found = {
        "filter": panels(words.view(np.int32), width),
        "scales": stored_scales(data["scales"], width),
    }
    if biased:
        subtracted = centre[None, :] if zeros is None or split else zeros
        sums = block_sums(codes, subtracted, operation.block)
        found["sums"] = panels(sums.astype(np.int16) if short_sums(operation, split) else sums, width)
    if zeros is not None:
        found["zeros"] = panels(zeros, width)
    if "bias" in data:
        found["bias"] = panels(data["bias"][None, :], width)
    return found


@dataclass(frozen=True)
class RowsPanel(SummedPanel):
    """Emitter of one panel for any number of rows."""

    @property
    def tile(self) -> MicroTile:
        return tile_of(self.operation, self.site.target)

    def words(self, number: Index, row: Index, height: int, zeros: list[Value], length: int) -> list[Value]:
        """Emit the integer sums of one block, row by row."""
        e = self.e
        source = e.offset(self.site["src"].pointer, e.scaled(row, self.depth))
        x = e.offset(source, e.scaled(number, self.operation.block))
        first = e.scaled(number, self.operation.block // self.each)
        sums = self._start(number, height)
        whole, rest = divmod(length, self.each)
        # A block has so many words, or a multiple of them.
        together = min(whole, UNROLLED if height == 1 else 1)
        done = whole - whole % together if together else 0
        if done:
            with e.carrying_loop(0, done, sums, together, name="word") as carry:
                moving = carry.values
                for word in range(together):
                    at = e.plus(carry.index, word)
                    place = e.offset(x, e.scaled(at, self.each))
                    moving = self._word(e.plus(first, at), place, moving, zeros, self.each)
                carry.next(moving)
            sums = carry.values
        for word in range(done, whole + bool(rest)):
            taken = rest if word == whole else self.each
            place = e.offset(x, self.each * word)
            sums = self._word(e.plus(first, word), place, sums, zeros, taken)
        return sums

    def row_sums(self, row: Index, block: Index, height: int) -> list[Value]:
        """Emit loads of the sums of some rows over a block, each in all lanes; none where none are needed."""
        if not needs_row_sums(self.site):
            return []
        return [self.e.splat(total, self.lanes) for total in load_row_sums(self.site, row, block, height)]

    def _start(self, number: Index, height: int) -> list[Value]:
        """Emit the sums before the first word of a block."""
        e, kind, bias = self.e, self.tile.accumulator, self.site.target.activation_bias
        if "sums" not in self.site.constants:
            return [scalar(kind, 0)] * (height * self.count)
        element = I16 if short_sums(self.operation, self.splits) else I32
        found = self.row("sums", number, block_count(self.depth, self.operation.block), element)
        wide = [e.b.sext(one, kind) if element is I16 else one for one in found]
        start = [e.b.mul(one, scalar(kind, -bias)) for one in wide]
        return start * height

    def _word(self, at: Index, x: Value, sums: list[Value], zeros: list[Value], length: int) -> list[Value]:
        """Emit the products of `length` weights of each column."""
        e, tile, count = self.e, self.tile, self.count
        rows = -(-self.depth // self.each)
        fetch_words(self.site, (self.number, self.vectors), at, rows)
        loaded = self.row("filter", at, rows, I32)
        steps = -(-length // STEP)
        together = JOINED_STEPS if tile.joins else 1
        for first in range(0, steps, together):
            part = range(first, min(first + together, steps))
            weights = [
                [self._weights(word, step, zero) for word, zero in zip(loaded, zeros, strict=True)]
                for step in part
            ]
            products = []
            for r in range(len(sums) // count):
                row = [tile.load_activation(e, e.offset(x, r * self.depth + step * STEP)) for step in part]
                for v in range(count):
                    own = [(one, w[v]) for one, w in zip(row, weights, strict=True)]
                    products.append(tile.accumulate_all(e, sums[r * count + v], own))
            sums = products
        return sums

    def _weights(self, word: Value, step: int, zero: Value) -> tuple[Value, ...]:
        """Emit `code - zero point` of a step of words, as operands of the tile."""
        e, bits = self.e, self.operation.bits
        largest = (1 << bits) - 1
        if isinstance(self.tile, DotTile):
            codes = e.b.bitcast(self.masked(word, bits * step, largest * BYTES), vec(I8, 4 * self.lanes))
            return (codes if self.splits else e.b.sub(codes, zero),)
        kind, places = vec(I16, 2 * self.lanes), (bits * step, bits * step + 8)
        halves = [e.b.bitcast(self.masked(word, place, largest * WORDS), kind) for place in places]
        return tuple(e.b.sub(half, zero) for half in halves)

    def zeros(self, number: Index, blocks: int) -> list[Value]:
        """Emit for each vector what `_weights` subtracts, or what is multiplied with sums of rows."""
        e, dot = self.e, isinstance(self.tile, DotTile)
        kind = vec(I8, 4 * self.lanes) if dot else vec(I16, 2 * self.lanes)
        if "zeros" not in self.site.constants:
            return [scalar(kind, middle(self.operation.bits))] * self.count
        if self.splits:
            found, wide = self.row("zeros", number, blocks, I8), vec(I32, self.lanes)
            return [e.b.sub(e.b.zext(zero, wide), scalar(wide, middle(BYTE_CODES))) for zero in found]
        spread = self.repeated_zeros(number, 4 if dot else 2)
        return spread if dot else [e.b.zext(zero, kind) for zero in spread]


def has_known_weights(instruction: Instruction) -> bool:
    """Whether rows are integers with scales, and weights are constants."""
    computed = ("dest", "src", "rows", "experts", "scratch")
    known = all(b.data is not None for s, b in instruction.operands() if s.name not in computed)
    return known and instruction.optional("rows") is not None


def panel_vectors(instruction: Instruction, target: VectorTarget) -> int:
    """Vectors of columns of a panel, which programs for one row and for many share."""
    columns = instruction.operand("dest").type.shape[1]
    most = MOST_VECTORS if target.registers > FEW_REGISTERS else 1
    return max(1, min(most, -(-columns // target.float_lanes)))


def most_rows(target: VectorTarget) -> int:
    """Rows of a tile: half of the registers are sums of a block; results are in memory meanwhile."""
    return max(target.registers // 2 // MOST_VECTORS, FEWEST_ROWS)


def needs_row_sums(site: Site) -> bool:
    """Whether zero points are multiplied with sums of rows."""
    return "zeros" in site.constants and splits_zeros(site.operation, tile_of(site.operation, site.target))


def _step_instructions(tile: MicroTile) -> float:
    """Instructions of the products of a step of one row and vector."""
    if isinstance(tile, DotTile):
        return JOINED_INSTRUCTIONS if tile.joins else 1.0
    return PAIR_INSTRUCTIONS


@candidates_for(BlockGemm)
def integer_block_products(instruction: Instruction, target: VectorTarget) -> list[Kernel]:
    """Return the kernel for rows with scales; none for weights that are computed.

    One row of bytes with a bias has another kernel.
    """
    rows = instruction.operand("dest").type.shape[0]
    if not has_known_weights(instruction) or (rows == 1 and target.activation_bias):
        return []
    return [IntegerBlockProduct(even_height(rows, most_rows(target)), panel_vectors(instruction, target))]

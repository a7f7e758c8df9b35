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

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from qglow.core.types import Array
from qglow.instructions.ops.blocks import BlockGemm
from qglow.instructions.program import Instruction
from qglow.kernels.arithmetic.fused import EMULATED, fused_multiply_add
from qglow.kernels.arithmetic.requantize import clamp_float
from qglow.kernels.emit.builder import F32, I8, I16, I32, Index, Value, scalar, vec
from qglow.kernels.emit.emitter import Emitter
from qglow.kernels.emit.kernel import Kernel, Site, candidates_for, kernel
from qglow.kernels.emit.packing import HIGHEST_BITS, ColumnPacking, panels
from qglow.kernels.emit.target import VectorTarget
from qglow.kernels.products.block_packing import STEP, block_sums, integer_words, short_sums
from qglow.kernels.products.blocks import (
    BYTE_CODES,
    WORD_BITS,
    block_packings,
    fetch_words,
    load_scales,
    stored_scales,
)
from qglow.kernels.products.matmul import even_height, live_rows, pieces
from qglow.kernels.products.row_sums import load_row_sums, row_sum_bytes, sum_rows
from qglow.kernels.tiles.tile import DotTile, MicroTile, fastest_tile, select_tile
from qglow.numerics.blocks import apart, block_count, middle, unpack

BYTES = 0x01010101
"""The lowest bits of the bytes of 32 bits."""
WORDS = 0x00010001
"""The lowest bits of the halves of 32 bits."""
MOST_VECTORS = 2
"""Most vectors of columns that are summed at once, for one row and for many, which share packed weights."""
UNROLLED = 8
"""Most words of a column that one row multiplies without a loop.

Tiles of several rows loop over single words: LLVM would load the rows of all words first, and spill them.
"""
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
        width = self.vectors * target.float_lanes
        data = {s.name: b.data for s, b in instruction.operands() if b.data is not None}
        codes = unpack(data["filter"], operation.bits, depth)
        zeros = data.get("zeros")
        zeros = None if zeros is None else apart(zeros, operation.bits, len(data["scales"]))
        centre = np.full(codes.shape[1], middle(operation.bits), np.uint8)
        split = _splits_zeros(operation, tile_of(operation, target))
        last = centre if zeros is None or split or not len(zeros) else zeros[-1]
        words = integer_words(codes, operation.bits, last)
        if split:
            words ^= np.uint32(HIGHEST_BITS)
        found = {
            "filter": panels(words.view(np.int32), width),
            "scales": stored_scales(data["scales"], width),
        }
        if self.rows > 1 and target.activation_bias:
            subtracted = centre[None, :] if zeros is None or split else zeros
            sums = block_sums(codes, subtracted, operation.block)
            found["sums"] = panels(sums.astype(np.int16) if short_sums(operation, split) else sums, width)
        if zeros is not None:
            found["zeros"] = panels(zeros, width)
        if "bias" in data:
            found["bias"] = panels(data["bias"][None, :], width)
        return found

    def packings(self, instruction: Instruction, target: VectorTarget) -> dict[str, ColumnPacking]:
        """Codes in words as steps read them, where all are whole, and scales."""
        operation, depth = instruction.operation, instruction.operand("src").type.shape[1]
        assert isinstance(operation, BlockGemm)
        split = _splits_zeros(operation, tile_of(operation, target))
        found = block_packings(instruction, self.vectors * target.float_lanes, split)
        if operation.bits < BYTE_CODES:
            found["filter"] = replace(found["filter"], bits=operation.bits)
        if depth * operation.bits % WORD_BITS:
            del found["filter"]
        return found

    def cost(self, instruction: Instruction, target: VectorTarget) -> float:
        """Cycles of products and of sums of blocks, and of unpacking once for each block of rows."""
        operation = instruction.operation
        assert isinstance(operation, BlockGemm)
        rows, depth = instruction.operand("src").type.shape
        columns = instruction.operand("scales").type.shape[1]
        steps, blocks = -(-depth // STEP), block_count(depth, operation.block)
        finishing = FINISHING if target.has_fma else EMULATED
        products = steps * _step_instructions(tile_of(operation, target))
        each = rows * (products + blocks * finishing) + -(-rows // self.rows) * steps * UNPACKING
        return -(-columns // target.float_lanes) * each / target.model.products_a_cycle

    def scratch_bytes(self, instruction: Instruction) -> int:
        """Bytes of the sums of rows over blocks, where zero points of codes of 8 bits may need them."""
        operation = instruction.operation
        assert isinstance(operation, BlockGemm)
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
        IntegerPanel(site, self, number, used).emit()


@dataclass(frozen=True)
class IntegerPanel:
    """Emitter of one panel, the product of all rows with `used` columns of panel `number`."""

    site: Site
    kernel: IntegerBlockProduct
    number: Index
    used: int

    @property
    def e(self) -> Emitter:
        return self.site.e

    @property
    def operation(self) -> BlockGemm:
        operation = self.site.instruction.operation
        assert isinstance(operation, BlockGemm)
        return operation

    @property
    def tile(self) -> MicroTile:
        return tile_of(self.operation, self.site.target)

    @property
    def lanes(self) -> int:
        return self.site.target.float_lanes

    @property
    def count(self) -> int:
        """Vectors of the panel that are used."""
        return -(-self.used // self.lanes)

    @property
    def each(self) -> int:
        """Codes in a word."""
        return WORD_BITS // self.operation.bits

    @property
    def depth(self) -> int:
        return self.site["src"].shape[1]

    @property
    def splits(self) -> bool:
        """Whether weights are codes less 128, and the rest of zero points is multiplied with sums of rows."""
        return _splits_zeros(self.operation, tile_of(self.operation, self.site.target))

    def emit(self) -> None:
        """Emit loops over rows of src."""
        for start, stop, height in pieces(self.site["src"].shape[0], self.kernel.rows):
            with live_rows(self.site, start, stop, height) as row:
                self._tile(row, height)

    def _tile(self, row: Index, height: int) -> None:
        """Emit the results of `height` rows."""
        e, columns = self.e, self.site["dest"].shape[1]
        scales = e.offset(self.site["rows"].pointer, e.scaled(row, 4))
        factors = [e.splat(e.load(e.offset(scales, 4 * r), F32), self.lanes) for r in range(height)]
        sums = [scalar(vec(F32, self.lanes), 0.0)] * (height * self.count)
        whole, rest = divmod(self.depth, self.operation.block)
        if whole:
            with e.carrying_loop(0, whole, sums, name="block") as carry:
                carry.next(self._block(carry.index, row, carry.values, factors, self.operation.block))
            sums = carry.values
        if rest:
            sums = self._block(whole, row, sums, factors, rest)
        bias = self.row("bias", 0, 1) if "bias" in self.site.constants else None
        start = e.plus(e.scaled(row, columns), e.scaled(self.number, self.lanes * self.kernel.vectors))
        dest = e.offset(self.site["dest"].pointer, e.scaled(start, 4))
        for number, total in enumerate(sums):
            r, v = divmod(number, self.count)
            total = total if bias is None else e.b.fadd(total, bias[v])
            result = clamp_float(e, total, self.operation.lo, self.operation.hi)
            place = e.offset(dest, 4 * (columns * r + self.lanes * v))
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
        scales = load_scales(self.site, self.number, number, (blocks, self.kernel.vectors), self.count)
        following = []
        for place, (product, total) in enumerate(zip(found, sums, strict=True)):
            r, v = divmod(place, count)
            if counts:
                product = e.b.sub(product, e.b.mul(counts[r], zeros[v]))
            real = e.b.sitofp(product, vec(F32, self.lanes))
            following.append(fused_multiply_add(e, real, e.b.fmul(factors[r], scales[v]), total))
        return following

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
        fetch_words(self.site, (self.number, self.kernel.vectors), at, rows)
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

    def masked(self, word: Value, shift: int, mask: int) -> Value:
        """Emit the codes under a mask, from bit `shift` of words on."""
        e, kind = self.e, vec(I32, self.lanes)
        word = e.b.lshr(word, scalar(kind, shift)) if shift else word
        return word if mask == (1 << WORD_BITS) - 1 else e.b.and_(word, scalar(kind, mask))

    def zeros(self, number: Index, blocks: int) -> list[Value]:
        """Emit for each vector what `_weights` subtracts, or what is multiplied with sums of rows."""
        e, dot = self.e, isinstance(self.tile, DotTile)
        kind = vec(I8, 4 * self.lanes) if dot else vec(I16, 2 * self.lanes)
        if "zeros" not in self.site.constants:
            return [scalar(kind, middle(self.operation.bits))] * self.count
        found = self.row("zeros", number, blocks, I8)
        if self.splits:
            wide = vec(I32, self.lanes)
            return [e.b.sub(e.b.zext(zero, wide), scalar(wide, middle(BYTE_CODES))) for zero in found]
        repeated = [lane for lane in range(self.lanes) for _ in range(4 if dot else 2)]
        spread = [e.shuffle(zero, None, repeated) for zero in found]
        return spread if dot else [e.b.zext(zero, kind) for zero in spread]

    def row(self, name: str, index: Index, rows: int, element: Any = F32) -> list[Value]:
        """Emit loads of the used vectors from a row of this panel; constants have `rows` rows a panel."""
        e, size = self.e, self.lanes * (4 if element is F32 else element.width // 8)
        line = size * self.kernel.vectors
        at = e.plus(e.scaled(self.number, rows * line), e.scaled(index, line))
        start = e.offset(self.site.constants[name], at)
        return [e.load(e.offset(start, size * v), vec(element, self.lanes)) for v in range(self.count)]


def has_known_weights(instruction: Instruction) -> bool:
    """Whether rows are integers with scales, and weights are constants."""
    computed = ("dest", "src", "rows", "scratch")
    known = all(b.data is not None for s, b in instruction.operands() if s.name not in computed)
    return known and instruction.optional("rows") is not None


def panel_vectors(instruction: Instruction, target: VectorTarget) -> int:
    """Vectors of columns of a panel, which programs for one row and for many share."""
    columns = instruction.operand("dest").type.shape[1]
    return max(1, min(MOST_VECTORS, -(-columns // target.float_lanes)))


def needs_row_sums(site: Site) -> bool:
    """Whether zero points are multiplied with sums of rows."""
    return "zeros" in site.constants and _splits_zeros(site.operation, tile_of(site.operation, site.target))


def tile_of(operation: BlockGemm, target: VectorTarget) -> MicroTile:
    """The tile for codes of this width: those of fewer than 8 bits never saturate pairs of products."""
    return fastest_tile(target, False) if operation.bits < BYTE_CODES else select_tile(target, False)


def _step_instructions(tile: MicroTile) -> float:
    """Instructions of the products of a step of one row and vector."""
    if isinstance(tile, DotTile):
        return JOINED_INSTRUCTIONS if tile.joins else 1.0
    return PAIR_INSTRUCTIONS


def _splits_zeros(operation: BlockGemm, tile: MicroTile) -> bool:
    """Whether codes less their zero point are no operands of the tile, which takes bytes."""
    return operation.bits == BYTE_CODES and isinstance(tile, DotTile)


@candidates_for(BlockGemm)
def integer_block_products(instruction: Instruction, target: VectorTarget) -> list[Kernel]:
    """Return the kernel for rows with scales; none for weights that are computed.

    One row of bytes with a bias has another kernel.
    """
    rows = instruction.operand("dest").type.shape[0]
    if not has_known_weights(instruction) or (rows == 1 and target.activation_bias):
        return []
    vectors = panel_vectors(instruction, target)
    # Half of the registers are sums of a block; results are in memory while it is multiplied.
    height = target.registers // 2 // MOST_VECTORS
    return [IntegerBlockProduct(even_height(rows, height), vectors)]

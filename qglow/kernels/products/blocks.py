"""Products with weights in blocks: codes are unpacked in registers, vectors run over output channels.

A vector of packed weights holds 32 bits of each of its columns, that is codes of 4, 8 or 16 consecutive k.
A code at bit p of a word, under the exponent of 2^(23 - p), is the float 2^(23 - p) + code, so that the
subtraction of 2^(23 - p) + zero point gives the exact float of their difference. Codes near the lowest bits
stay where they are, others are shifted there together. Without zero points the float is picked from 16 of
them, where one instruction does that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from qglow.core.types import Array, ElementType
from qglow.instructions.ops.blocks import BlockGemm
from qglow.instructions.ops.experts import AnyBlockGemm
from qglow.instructions.program import Instruction
from qglow.kernels.arithmetic.fused import EMULATED, fused_multiply_add
from qglow.kernels.arithmetic.half import load_widened
from qglow.kernels.arithmetic.requantize import clamp_float
from qglow.kernels.emit.builder import F32, I8, I32, Index, Value, scalar, vec
from qglow.kernels.emit.emitter import Emitter
from qglow.kernels.emit.kernel import Kernel, Site, candidates_for, kernel
from qglow.kernels.emit.packing import ColumnPacking, panels
from qglow.kernels.emit.prefetch import fetch_early
from qglow.kernels.emit.target import VectorTarget
from qglow.kernels.products.matmul import even_height, live_rows, pieces
from qglow.numerics.blocks import apart, middle, unpack

BYTE_CODES = 8
"""Bits of codes that fill a byte."""
WORD_BITS = 32
"""Bits of one column in a vector of packed weights."""
MANTISSA_BITS = 23
EXPONENT_BIAS = 127
PICKED_BITS = 4
"""Most bits of codes whose floats are picked from a register."""
UNSHIFTED_BITS = 8
"""Lowest bits of a word whose codes one row does not shift. Each place of a code takes registers."""
WORDS_AHEAD = 12 * 1024
"""Bytes of words that are on their way while others are multiplied: the processor's own prefetching stops at
the end of every page."""
FETCHED_FROM = 4 * WORDS_AHEAD
"""Least bytes of words of a product that prefetches."""
BLOCKS_TOGETHER = {32: 3}
"""Blocks of one row that are multiplied at once where there are so many registers, since each is a chain of
multiply-adds that wait.

Bytes are multiplied one block after the other: they come no faster.
"""
FEWEST_TOGETHER = 2
"""The same with fewer registers."""
MOST_VECTORS = 2
"""Most vectors of columns that are summed at once.

It does not depend on the number of rows, so that programs for one row and for many share packed weights.
Chains of one row overlap from block to block.
"""
UNPACKING = 3.0
"""Instructions that unpack a vector of weights, in those of its multiply-add."""


@kernel
@dataclass(frozen=True)
class BlockProduct(Kernel):
    """Panels of `vectors` vectors of columns, each multiplied with `rows` rows at a time.

    real_zeros: whether zero points are any floats, not integers that are subtracted beside the offset.
    """

    name: ClassVar[str] = "blockproduct"
    limits_live: ClassVar[bool] = True

    rows: int = 1
    vectors: int = 1
    real_zeros: bool = False

    def constants(self, instruction: Instruction, target: VectorTarget) -> dict[str, Array]:
        """Codes, scales, zero points and bias in the order of panels; columns are filled up with zeros."""
        operation, depth = instruction.operation, instruction.operand("src").type.shape[1]
        assert isinstance(operation, BlockGemm)
        data = {s.name: b.data for s, b in instruction.operands() if b.data is not None}
        return in_panels(data, operation.bits, depth, self.vectors * target.float_lanes)

    def packings(self, instruction: Instruction, target: VectorTarget) -> dict[str, ColumnPacking]:
        """Codes in whole words, and scales, in panels of all columns."""
        return block_packings(instruction, self.vectors * target.float_lanes)

    def cost(self, instruction: Instruction, target: VectorTarget) -> float:
        """Cycles of multiply-adds, and of unpacking once for each block of rows."""
        rows, depth = instruction.operand("src").type.shape
        columns = instruction.operand("scales").type.shape[1]
        vectors = -(-columns // target.float_lanes) * depth
        multiplying = rows * (1.0 if target.has_fma else EMULATED)
        return vectors * (multiplying + -(-rows // self.rows) * UNPACKING) / target.model.products_a_cycle

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
                    self.panel(site, site.e.plus(number, first), used).emit()

    def prepare(self, site: Site) -> None:
        """Emit what is done once for all panels."""

    def panel(self, site: Site, number: Index, used: int) -> BlockPanel:
        """Emitter of one panel."""
        return BlockPanel(site, self, number, used)


def in_panels(data: Mapping[str, Array], bits: int, depth: int, width: int) -> dict[str, Array]:
    """Codes [K, N], scales, zero points and bias, by name, in panels of so many columns."""
    codes = unpack(data["filter"], bits, depth)
    found = {
        "filter": panels(_words(codes, bits), width),
        "scales": stored_scales(data["scales"], width),
    }
    if "zeros" in data:
        found["zeros"] = panels(apart(data["zeros"], bits, len(data["scales"])), width)
    if "bias" in data:
        found["bias"] = panels(data["bias"][None, :], width)
    return found


@dataclass(frozen=True)
class BlockSite:
    """Operands of a product with weights in blocks, where it is emitted."""

    site: Site

    @property
    def e(self) -> Emitter:
        return self.site.e

    @property
    def operation(self) -> AnyBlockGemm:
        operation = self.site.instruction.operation
        assert isinstance(operation, AnyBlockGemm)
        return operation

    @property
    def lanes(self) -> int:
        return self.site.target.float_lanes

    @property
    def each(self) -> int:
        """Codes in a word."""
        return WORD_BITS // self.operation.bits

    @property
    def depth(self) -> int:
        return self.site["src"].shape[1]

    def panel_rows(self, panel: tuple[Index, int], row: Index, height: int) -> list[Value]:
        """Addresses of a panel's columns in the results of `height` rows; panel: its number and vectors."""
        e, columns = self.e, self.site["dest"].shape[1]
        start = e.plus(e.scaled(row, columns), e.scaled(panel[0], self.lanes * panel[1]))
        dest = e.offset(self.site["dest"].pointer, e.scaled(start, 4))
        return [e.offset(dest, 4 * columns * r) for r in range(height)]


@dataclass(frozen=True)
class BlockPanel(BlockSite):
    """Emitter of one panel, the product of all rows with `used` columns of panel `number`."""

    kernel: BlockProduct
    number: Index
    used: int

    def emit(self) -> None:
        """Emit loops over rows of src."""
        for start, stop, height in pieces(self.site["src"].shape[0], self.kernel.rows):
            with live_rows(self.site, start, stop, height) as row:
                self.emit_tile(row, height)

    def dest_rows(self, row: Index, height: int) -> list[Value]:
        """Addresses of this panel's columns in the results of `height` rows."""
        return self.panel_rows((self.number, self.kernel.vectors), row, height)

    def emit_tile(self, row: Index, height: int) -> None:
        """Emit the results of `height` rows."""
        e, count = self.e, -(-self.used // self.lanes)
        sums = [scalar(vec(F32, self.lanes), 0.0)] * (height * count)
        source = e.offset(self.site["src"].pointer, e.scaled(row, 4 * self.depth))
        whole, rest = divmod(self.depth, self.operation.block)
        several = BLOCKS_TOGETHER.get(self.site.target.registers, FEWEST_TOGETHER)
        most = several if height == 1 and self.operation.bits < BYTE_CODES else 1
        for first, end, together in pieces(whole, most):
            with e.carrying_loop(first, end, sums, together, name="block") as carry:
                numbers = [e.plus(carry.index, n) for n in range(together)]
                carry.next(self._blocks(numbers, source, carry.values, height, self.operation.block))
            sums = carry.values
        if rest:
            sums = self._blocks([whole], source, sums, height, rest)
        bias = self.row("bias", 0, 1, count) if "bias" in self.site.constants else None
        rows = self.dest_rows(row, height)
        for number, total in enumerate(sums):
            r, v = divmod(number, count)
            total = total if bias is None else e.b.fadd(total, bias[v])
            result = clamp_float(e, total, self.operation.lo, self.operation.hi)
            place = e.offset(rows[r], 4 * self.lanes * v)
            e.store_lanes(result, place, min(self.lanes, self.used - self.lanes * v))

    def _blocks(
        self, numbers: list[Index], source: Value, sums: list[Value], height: int, length: int
    ) -> list[Value]:
        """Emit the chains of blocks of `length` weights, and add them to `sums` one after the other."""
        e, count, block = self.e, len(sums) // height, self.operation.block
        offsets = [self.offsets(number, height, count) for number in numbers]
        x = [e.offset(source, e.scaled(number, 4 * block)) for number in numbers]
        first = [e.scaled(number, block // self.each) for number in numbers]
        each = height * count
        parts = [scalar(vec(F32, self.lanes), 0.0)] * (each * len(numbers))

        def add(word: Index, values: list[Value], length: int) -> list[Value]:
            following = []
            for n in range(len(numbers)):
                place = e.offset(x[n], e.scaled(word, 4 * self.each))
                own = values[n * each : (n + 1) * each]
                following += self._word(e.plus(first[n], word), place, own, offsets[n], length)
            return following

        whole, rest = divmod(length, self.each)
        if whole:
            with e.carrying_loop(0, whole, parts, name="word") as carry:
                carry.next(add(carry.index, carry.values, self.each))
            parts = carry.values
        if rest:
            parts = add(whole, parts, rest)
        line = -(-self.depth // block), self.kernel.vectors
        for n, number in enumerate(numbers):
            scales = load_scales(self.site, self.number, number, line, count) * height
            terms = zip(parts[n * each : (n + 1) * each], scales, sums, strict=True)
            sums = [fused_multiply_add(e, part, scale, total) for part, scale, total in terms]
        return sums

    def _word(
        self, at: Index, x: Value, parts: list[Value], offsets: list[list[Value]], length: int
    ) -> list[Value]:
        """Emit the multiply-adds of `length` weights of each column."""
        e, count = self.e, len(offsets)
        height = len(parts) // count
        rows = -(-self.depth // self.each)
        fetch_words(self.site, (self.number, self.kernel.vectors), at, rows)
        loaded = self.row("filter", at, rows, count, I32)
        columns = [self.weights(word, own, length) for word, own in zip(loaded, offsets, strict=True)]
        for j, weights in enumerate(zip(*columns, strict=True)):
            following = []
            for r in range(height):
                factor = e.splat(e.load(e.offset(x, 4 * (r * self.depth + j)), F32), self.lanes)
                own = parts[r * count : (r + 1) * count]
                terms = zip(weights, own, strict=True)
                following += [fused_multiply_add(e, factor, w, part) for w, part in terms]
            parts = following
        return parts

    def weights(self, word: Value, offsets: list[Value], length: int) -> list[Value]:
        """Emit `code - zero point` in float of the first `length` codes of words."""
        e, bits, kind = self.e, self.operation.bits, vec(I32, self.lanes)
        picked = self._picked(word, length)
        if picked is not None:
            return picked
        found, near = [], len(offsets)
        for place in range(length):
            if place % near == 0 and place:
                word = e.b.lshr(word, scalar(kind, bits * near))
            shift = bits * (place % near)
            code = e.b.and_(word, scalar(kind, ((1 << bits) - 1) << shift))
            real = e.b.bitcast(e.b.or_(code, scalar(kind, exponent(shift))), vec(F32, self.lanes))
            if self.kernel.real_zeros:
                real = e.b.fsub(real, scalar(vec(F32, self.lanes), power(shift)))
            found.append(e.b.fsub(real, offsets[place % near]))
        return found

    def _picked(self, word: Value, length: int) -> list[Value] | None:
        """Emit `code - middle` of codes as floats that are picked; None where they are not."""
        bits = self.operation.bits
        if bits > PICKED_BITS or "zeros" in self.site.constants:
            return None
        codes = (entry % (1 << bits) for entry in range(1 << PICKED_BITS))
        entries = [float(code - middle(bits)) for code in codes]
        found = []
        for place in range(length):
            index = self.e.b.lshr(word, scalar(word.type, bits * place))
            picked = self.site.target.pick_floats(self.e, index, entries)
            if picked is None:
                return None
            found.append(picked)
        return found

    def offsets(self, number: Index, height: int, count: int) -> list[list[Value]]:
        """Emit what is subtracted from codes of a block at each place, for each vector."""
        e, floats, words = self.e, vec(F32, self.lanes), vec(I32, self.lanes)
        blocks, bits = -(-self.depth // self.operation.block), self.operation.bits
        places = range(0, UNSHIFTED_BITS if height == 1 else bits, bits)
        if "zeros" not in self.site.constants:
            return [[scalar(floats, power(p) + middle(self.operation.bits)) for p in places]] * count
        if self.kernel.real_zeros:
            return [[zero] * len(places) for zero in self.row("zeros", number, blocks, count)]
        found = []
        for zero in self.row("zeros", number, blocks, count, I8):
            first = e.b.bitcast(e.b.or_(e.b.zext(zero, words), scalar(words, exponent(0))), floats)
            further = [e.b.fadd(first, scalar(floats, power(p) - power(0))) for p in places[1:]]
            found.append([first, *further])
        return found

    def row(self, name: str, index: Index, rows: int, count: int, element: Any = F32) -> list[Value]:
        """Emit loads of `count` vectors from a row of this panel; constants have `rows` rows a panel."""
        e, size = self.e, self.lanes * (4 if element is F32 else element.width // 8)
        line = size * self.kernel.vectors
        at = e.plus(e.scaled(self.number, rows * line), e.scaled(index, line))
        start = e.offset(self.site.constants[name], at)
        return [e.load(e.offset(start, size * v), vec(element, self.lanes)) for v in range(count)]


def fetch_words(site: Site, panel: tuple[Index, int], at: Index, rows: int) -> None:
    """Prefetch words `WORDS_AHEAD` bytes after row `at` of a panel, which has so many rows.

    panel: its number and vectors. Panels follow one another in memory. Where weights are few, those bytes are
    not of this product any more.
    """
    e, line = site.e, 4 * site.target.float_lanes * panel[1]
    columns = site.instruction.operand("scales").type.shape[1]
    if 4 * rows * columns < FETCHED_FROM:
        return
    start = e.plus(e.scaled(panel[0], rows * line), e.scaled(at, line))
    lines = -(-line // site.target.model.line_bytes)
    fetch_early(e, e.offset(site.constants["filter"], start), WORDS_AHEAD, lines, first_level=True)


def exponent(place: int) -> int:
    """Bits of the float whose bit `place` counts 1."""
    return (EXPONENT_BIAS + MANTISSA_BITS - place) << MANTISSA_BITS


def power(place: int) -> float:
    """The float whose bit `place` counts 1."""
    return float(1 << (MANTISSA_BITS - place))


def _words(codes: Array, bits: int) -> Array:
    """uint32 [ceil(K / codes a word), N] of codes [K, N], the lowest k in the lowest bits."""
    each = WORD_BITS // bits
    depth, columns = codes.shape
    filled = np.zeros((-(-depth // each) * each, columns), np.uint32)
    filled[:depth] = codes
    parts = filled.reshape(-1, each, columns)
    words = np.zeros((len(parts), columns), np.uint32)
    for number in range(each):
        words |= parts[:, number] << np.uint32(bits * number)
    return words.view(np.int32)


def block_packings(instruction: Instruction, width: int, flipped: bool = False) -> dict[str, ColumnPacking]:
    """Packings of codes in order, and of scales, in panels of this width; flipped as `ColumnPacking` is."""
    columns = instruction.operand("scales").type.shape[1]
    scales = ColumnPacking(width, -(-columns // width))
    return {"filter": replace(scales, flipped=flipped), "scales": scales}


def stored_scales(scales: Array, width: int) -> Array:
    """Scales [blocks, N] in panels; those of 16 bits as integers that hold them."""
    return panels(scales.view(np.int16) if scales.dtype == np.float16 else scales, width)


def load_scales(site: Site, panel: Index, block: Index, form: tuple[int, int], count: int) -> list[Value]:
    """Emit loads of `count` vectors of the scales of a block, and widen those of 16 bits.

    form: blocks of a panel, and the vectors that each has.
    """
    blocks, vectors = form
    e, lanes, element = site.e, site.target.float_lanes, site.instruction.operand("scales").type.element
    size = lanes * element.size
    at = e.plus(e.scaled(panel, blocks * vectors * size), e.scaled(block, vectors * size))
    start = e.offset(site.constants["scales"], at)
    places = [e.offset(start, size * v) for v in range(count)]
    if element is ElementType.FLOAT:
        return [e.load(place, vec(F32, lanes)) for place in places]
    return [load_widened(e, place, element, lanes) for place in places]


@candidates_for(BlockGemm)
def block_products(instruction: Instruction, target: VectorTarget) -> list[Kernel]:
    """Return the kernel with tiles that leave registers for weights; none for weights that are computed."""
    if instruction.optional("rows") is not None:
        return []
    if any(b.data is None for s, b in instruction.operands() if s.name not in ("dest", "src", "scratch")):
        return []
    rows, columns = instruction.operand("dest").type.shape
    vectors = max(1, min(MOST_VECTORS, -(-columns // target.float_lanes)))
    # Half of the registers are sums; the rest is for weights, offsets and what unpacking needs.
    height = target.registers // 2 // MOST_VECTORS if target.has_fma else 1
    zeros = instruction.optional("zeros")
    real_zeros = zeros is not None and zeros.type.is_float
    return [BlockProduct(even_height(rows, height), vectors, real_zeros)]

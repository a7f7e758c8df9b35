"""Products of integers with weights in blocks on AVX2, in sums of 16 bits.

vpmaddubsw multiplies unsigned bytes a' = a + 128 of activations with signed bytes w, and adds two products.
The sum of a * w over 16 products fits in 16 bits where w has 4 bits and a sign, so as many are added before
they are widened, modulo 2^16: they begin with -128 * sum(w), and what overflows on the way does no harm.
Codes of 4 bits and fewer, less their zero point, are such weights. Those of 8 bits are two of them: the
halves of a code less the halves of its zero point, of which the upper ones count 16 times.

Weights are unpacked to bytes once for all rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from qglow.core.types import Array
from qglow.instructions.ops.blocks import BlockGemm
from qglow.instructions.ops.experts import AnyBlockGemm
from qglow.instructions.program import Instruction
from qglow.kernels.arithmetic.fused import fused_multiply_add
from qglow.kernels.emit.builder import F32, I8, I16, I32, Index, Value, scalar, vec
from qglow.kernels.emit.kernel import Kernel, Site
from qglow.kernels.emit.packing import panels
from qglow.kernels.emit.target import VectorTarget
from qglow.kernels.products.block_packing import STEP
from qglow.kernels.products.blocks import BYTE_CODES, fetch_words, load_scales
from qglow.kernels.products.integer_blocks import FINISHING, IntegerBlockProduct, integer_block_products
from qglow.kernels.products.integer_panel import BYTES, IntegerPanel
from qglow.kernels.products.matmul import even_height
from qglow.kernels.products.one_row_blocks import HALF_BITS
from qglow.kernels.products.portions import BlockWork, PanelPortions, PanelTile
from qglow.numerics.blocks import apart, block_count, middle, unpack
from qglow.targets.x86.description import ACTIVATION_BIAS
from qglow.targets.x86.multiplications import add_word_pairs, byte_pairs

PAIR = 2
"""Products that vpmaddubsw adds."""
STEP_INSTRUCTIONS = 2.0
"""Instructions of a step: the products of pairs, and their addition."""
STORING = 3.0
"""Instructions that unpack and store the weights of a step."""
WIDENING = 1.0
"""Instructions that add short sums to those of a block."""
ROWS = 4
"""Most rows of a tile, for two sums each."""


@dataclass(frozen=True)
class ShortBlockProduct(IntegerBlockProduct):
    """Panels of `vectors` vectors of columns, unpacked some blocks at a time, by tiles of `rows` rows."""

    name: ClassVar[str] = "shortblockproduct"

    def constants(self, instruction: Instruction, target: VectorTarget) -> dict[str, Array]:
        """Constants of `IntegerBlockProduct`, but what short sums begin with in place of sums of weights."""
        found = super().constants(instruction, target)
        del found["sums"]
        data = {s.name: b.data for s, b in instruction.operands() if b.data is not None}
        operation, depth = instruction.operation, instruction.operand("src").type.shape[1]
        assert isinstance(operation, BlockGemm)
        codes = unpack(data["filter"], operation.bits, depth)
        zeros = data.get("zeros")
        zeros = None if zeros is None else apart(zeros, operation.bits, len(data["scales"]))
        width = self.vectors * target.float_lanes
        for number, shift in enumerate(_shifts(operation)):
            starts = _starts(codes, zeros, operation, shift)
            found[f"starts{number}"] = panels(starts, width)
        return found

    def cost(self, instruction: Instruction, target: VectorTarget) -> float:
        """Cycles of products and of sums of blocks, and of unpacking once."""
        operation = instruction.operation
        assert isinstance(operation, BlockGemm)
        rows, depth = instruction.operand("src").type.shape
        columns = instruction.operand("scales").type.shape[1]
        parts = len(_shifts(operation))
        steps, blocks = -(-depth // STEP) * parts, block_count(depth, operation.block)
        chunks = blocks * -(-operation.block // (STEP * chunk_steps(operation)))
        finishing = blocks * FINISHING + chunks * parts * WIDENING
        each = rows * (steps * STEP_INSTRUCTIONS + finishing) + steps * STORING
        return -(-columns // target.float_lanes) * each / target.model.products_a_cycle

    def scratch_bytes(self, instruction: Instruction) -> int:
        """No bytes: zero points are subtracted from weights."""
        return 0

    def emit_panel(self, site: Site, number: Index, used: int) -> None:
        """Emit one panel."""
        _ShortPanel(site, self.rows, self.vectors, number, used).emit()


@dataclass(frozen=True)
class _ShortPanel(IntegerPanel, BlockWork):
    """Emitter of one panel by portions of blocks."""

    @property
    def parts(self) -> int:
        """Weights that a code is multiplied as."""
        return len(_shifts(self.operation))

    @property
    def line(self) -> int:
        """Bytes of the unpacked weights of a step."""
        return STEP * self.lanes * self.count * self.parts

    @property
    def chunks(self) -> int:
        """Parts of a block whose sums fit in 16 bits."""
        return -(-self.operation.block // (STEP * chunk_steps(self.operation)))

    def emit(self) -> None:
        """Emit all portions."""
        width = self.lanes * self.vectors
        PanelPortions(self.site, self, self.rows, width, self.number, self.used).emit()

    def room_bytes(self, length: int) -> int:
        """Bytes of the weights of a block."""
        return -(-length // STEP) * self.line

    def bias(self) -> list[Value] | None:
        """Emit loads of the bias, if there is one."""
        return self.row("bias", 0, 1) if "bias" in self.site.constants else None

    def unpack(self, room: Value, block: Index, length: int) -> None:
        """Emit stores of the weights of a block as bytes, by step, vector and half."""
        e, steps, kind = self.e, self.each // STEP, vec(I8, STEP * self.lanes)
        mask = _part_mask(self.operation) * BYTES
        zeros = self._zero_parts(block)
        first = e.scaled(block, self.operation.block // self.each)
        words = -(-self.depth // self.each)

        def store(word: Index, count: int) -> None:
            at = e.plus(first, word)
            fetch_words(self.site, (self.number, self.vectors), at, words)
            to = e.offset(room, e.scaled(word, steps * self.line))
            for v, packed in enumerate(self.row("filter", at, words, I32)):
                for step in range(count):
                    for part, shift in enumerate(_shifts(self.operation)):
                        low = self.masked(packed, shift + self.operation.bits * step, mask)
                        weights = e.b.sub(e.b.bitcast(low, kind), zeros[v][part])
                        place = step * self.line + STEP * self.lanes * (v * self.parts + part)
                        e.store(weights, e.offset(to, place), align=STEP * self.lanes)

        whole, rest = divmod(length, self.each)
        with e.loop(0, whole, name="word") as word:
            store(word, steps)
        if rest:
            store(whole, -(-rest // STEP))

    def products(self, room: Value, block: Index, tile: PanelTile, length: int) -> list[Value]:
        """Emit the integer sums of a tile in a block, and add them to its sums with both scales."""
        e, depth = self.e, self.depth
        x = e.offset(self.site["src"].pointer, e.scaled(tile.row, depth))
        x = e.offset(x, e.scaled(block, self.operation.block))
        each = 1 if self.parts > 1 else self.count
        sums: list[Value] = [None] * len(tile.places)
        for first in range(0, self.count, each):
            found = self._sums(room, block, x, (first, each), tile.height, length)
            for number, total in enumerate(found):
                r, v = divmod(number, each)
                sums[r * self.count + first + v] = total
        blocks = block_count(depth, self.operation.block)
        scales = load_scales(self.site, self.number, block, (blocks, self.vectors), self.count)
        factors = e.offset(self.site["rows"].pointer, e.scaled(tile.row, 4))
        found = []
        for number, (total, (place, columns)) in enumerate(zip(sums, tile.places, strict=True)):
            r, v = divmod(number, self.count)
            factor = e.splat(e.load(e.offset(factors, 4 * r), F32), self.lanes)
            real = e.b.sitofp(total, vec(F32, self.lanes))
            before = e.load_lanes(place, F32, self.lanes, columns)
            found.append(fused_multiply_add(e, real, e.b.fmul(factor, scales[v]), before))
        return found

    def _sums(
        self, room: Value, block: Index, x: Value, vectors: tuple[int, int], height: int, length: int
    ) -> list[Value]:
        """Emit the int32 sums of a block, [row][vector], of some vectors: the first and how many."""
        e, most = self.e, chunk_steps(self.operation)
        steps = -(-length // STEP)
        totals = [scalar(vec(I32, self.lanes), 0)] * (height * vectors[1])
        whole, rest = divmod(steps, most)
        if whole:
            with e.carrying_loop(0, whole, totals, name="chunk") as carry:
                carry.next(self._chunk(room, (block, carry.index), x, vectors, most, carry.values))
            totals = carry.values
        if rest:
            totals = self._chunk(room, (block, whole), x, vectors, rest, totals)
        return totals

    def _chunk(
        self,
        room: Value,
        chunk: tuple[Index, Index],
        x: Value,
        vectors: tuple[int, int],
        steps: int,
        totals: list[Value],
    ) -> list[Value]:
        """Emit the sums of some steps in 16 bits, and add them to `totals`.

        chunk: its block, and its number in it.
        """
        e, (first, count), size = self.e, vectors, STEP * self.lanes
        done = e.scaled(chunk[1], chunk_steps(self.operation))
        room = e.offset(room, e.plus(e.scaled(done, self.line), size * first * self.parts))
        x = e.offset(x, e.scaled(done, STEP))
        height, each = len(totals) // count, count * self.parts
        shorts = self._chunk_starts(e.plus(e.scaled(chunk[0], self.chunks), chunk[1]), vectors) * height
        kind = vec(I8, STEP * self.lanes)
        with e.carrying_loop(0, steps, shorts, name="step") as carry:
            line = e.offset(room, e.scaled(carry.index, self.line))
            weights = [e.load(e.offset(line, size * n), kind, align=size) for n in range(each)]
            following = []
            for r in range(height):
                place = e.offset(x, e.plus(e.scaled(carry.index, STEP), r * self.depth))
                step = e.b.bitcast(e.splat(e.load(place, I32), self.lanes), kind)
                own = carry.values[r * each : (r + 1) * each]
                following += [
                    e.b.add(one, byte_pairs(e, step, w)) for one, w in zip(own, weights, strict=True)
                ]
            carry.next(following)
        shorts, found = carry.values, []
        for number, total in enumerate(totals):
            for part, shift in enumerate(_shifts(self.operation)):
                total = add_word_pairs(e, total, shorts[number * self.parts + part], 1 << shift)
            found.append(total)
        return found

    def _chunk_starts(self, chunk: Index, vectors: tuple[int, int]) -> list[Value]:
        """Emit loads of what the short sums of a chunk begin with, [vector][half]."""
        first, count = vectors
        rows = block_count(self.depth, self.operation.block) * self.chunks
        loaded = [self.row(f"starts{part}", chunk, rows, I32) for part in range(self.parts)]
        kind = vec(I16, PAIR * self.lanes)
        return [
            self.e.b.bitcast(loaded[part][v], kind)
            for v in range(first, first + count)
            for part in range(self.parts)
        ]

    def _zero_parts(self, block: Index) -> list[list[Value]]:
        """Emit zero points of a block for each byte, [vector][half]."""
        e, kind = self.e, vec(I8, STEP * self.lanes)
        most = scalar(kind, _part_mask(self.operation))
        if "zeros" not in self.site.constants:
            centre = scalar(kind, middle(self.operation.bits))
            found = [centre] * self.count
        else:
            found = self.repeated_zeros(block, STEP)
        return [
            [e.b.and_(e.b.lshr(zero, scalar(kind, shift)), most) for shift in _shifts(self.operation)]
            for zero in found
        ]


def chunk_steps(operation: AnyBlockGemm) -> int:
    """Most steps whose products add up to 16 bits: every one adds two products to a sum."""
    largest = _part_mask(operation)
    steps = ((1 << 15) - 1) // (PAIR * ACTIVATION_BIAS * largest)
    # Words have a power of two of steps.
    return 1 << (steps.bit_length() - 1)


def _part_mask(operation: AnyBlockGemm) -> int:
    """The largest code that is multiplied at once."""
    return (1 << min(operation.bits, HALF_BITS)) - 1


def _shifts(operation: AnyBlockGemm) -> tuple[int, ...]:
    """Lowest bits of the weights that a code is multiplied as."""
    return (0, HALF_BITS) if operation.bits == BYTE_CODES else (0,)


def _starts(codes: Array, zeros: Array | None, operation: AnyBlockGemm, shift: int) -> Array:
    """int32 [chunks, N]: two int16 each, what the sums over pairs of a chunk begin with.

    codes: [K, N]. zeros: [blocks, N] or None. shift: the lowest bit of the weights.
    """
    mask, blocks = np.uint8(_part_mask(operation)), block_count(len(codes), operation.block)
    sums = _pair_sums(codes >> np.uint8(shift) & mask, operation)
    lengths = _pair_sums(np.ones((len(codes), 1), np.uint8), operation)
    if zeros is None:
        zeros = np.full((blocks, 1), middle(operation.bits), np.uint8)
    points = np.repeat(zeros >> np.uint8(shift) & mask, len(sums) // blocks, axis=0)
    starts = (-ACTIVATION_BIAS * (sums - lengths * points[:, None])).astype(np.int16)
    return np.ascontiguousarray(starts.transpose(0, 2, 1)).view(np.int32)[..., 0]


def _pair_sums(codes: Array, operation: AnyBlockGemm) -> Array:
    """int32 [chunks, 2, N]: the sums over each chunk of codes [K, N] that vpmaddubsw adds in one place."""
    (depth, columns), block = codes.shape, operation.block
    most = STEP * chunk_steps(operation)
    # A block is filled up to whole chunks.
    filled = np.pad(codes, ((0, -depth % block), (0, 0))) if depth % block else codes
    filled = filled.reshape(-1, block, columns)
    filled = np.pad(filled, ((0, 0), (0, -block % most), (0, 0))) if block % most else filled
    steps = filled.reshape(-1, most // STEP, STEP // PAIR, PAIR, columns)
    return np.asarray(steps.sum(axis=(1, 3), dtype=np.int32))


def short_block_products(instruction: Instruction, target: VectorTarget) -> list[Kernel]:
    """Return the kernel for several rows with scales; none for weights that are computed."""
    rows = instruction.operand("dest").type.shape[0]
    return [
        ShortBlockProduct(even_height(rows, ROWS), found.vectors)
        for found in integer_block_products(instruction, target)
        if isinstance(found, IntegerBlockProduct) and rows > 1
    ]

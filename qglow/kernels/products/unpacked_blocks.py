"""Products of many rows with weights in blocks: codes are unpacked once for all rows, into near memory.

Where weights are unpacked in registers, each tile of rows does it again. Here the floats `code - zero point`
of some blocks of a panel, which are exact, are stored on the stack first, and then read by all tiles, which
are as large as those of float weights. Sums over blocks wait in the result from one block to the next. Each
element has the same chains as in a product whose weights stay in registers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from llvmlite import ir

from qglow.instructions.ops.blocks import BlockGemm
from qglow.instructions.program import Instruction
from qglow.kernels.arithmetic.fused import fused_multiply_add
from qglow.kernels.arithmetic.requantize import clamp_float
from qglow.kernels.emit.builder import F32, I8, I32, PTR, Index, Value, scalar, vec
from qglow.kernels.emit.kernel import Kernel, Site, candidates_for, kernel
from qglow.kernels.emit.target import CodeSize, VectorTarget
from qglow.kernels.products.blocks import (
    UNPACKING,
    BlockPanel,
    BlockProduct,
    block_products,
    fetch_words,
    load_scales,
)
from qglow.kernels.products.matmul import even_height, live_rows, pieces
from qglow.kernels.tiles.tile import select_tile

NEAR_BYTES = 16 * 1024
"""Most bytes of unpacked weights: about half of a first-level cache, and little beside a stack."""
STORING = 1.0
"""Instructions that store a vector of unpacked weights, in those of a multiply-add."""
ADDING = 3.0
"""Instructions that add a finished vector of a block to its sum, which is in memory."""
TOGETHER = 4
"""Steps along K in an iteration of the innermost loop."""
ROWS = 6
"""Most rows of a tile: with fewer, two multiply-adds a cycle wait for sums to be ready."""
CLASHING_ROWS = 4
"""Most rows of a tile where they are `CLASHING_BYTES` apart, or a multiple.

All of them share a set of the first-level cache then, which has eight lines on some processors, with unpacked
weights and sums in memory: there more rows took longer [measured].
"""
CLASHING_BYTES = 4096


@kernel
@dataclass(frozen=True)
class UnpackedBlockProduct(BlockProduct):
    """Panels of `vectors` vectors of columns, unpacked some blocks at a time, by tiles of `rows` rows."""

    name: ClassVar[str] = "unpackedblockproduct"

    def cost(self, instruction: Instruction, target: VectorTarget) -> float:
        """Cycles of multiply-adds, of unpacking once, and of adding up blocks."""
        rows, depth = instruction.operand("src").type.shape
        blocks, columns = instruction.operand("scales").type.shape
        vectors = -(-columns // target.float_lanes)
        steps = vectors * depth * (rows + UNPACKING + STORING) + vectors * blocks * rows * ADDING
        return steps / target.model.products_a_cycle

    def panel(self, site: Site, number: Index, used: int) -> BlockPanel:
        """Emitter of one panel."""
        return _UnpackedPanel(site, self, number, used)


@dataclass(frozen=True)
class _UnpackedPanel(BlockPanel):
    """Emitter of one panel by portions of blocks."""

    @property
    def count(self) -> int:
        """Vectors of columns that the panel has."""
        return -(-self.used // self.lanes)

    @property
    def line(self) -> int:
        """Bytes of unpacked weights of one k."""
        return 4 * self.lanes * self.count

    def emit(self) -> None:
        """Emit a loop over portions of blocks, around one that unpacks and one over rows of src."""
        block = self.operation.block
        whole, rest = divmod(self.depth, block)
        most = max(1, min(whole, NEAR_BYTES // (self.line * block)))
        room = self._room(most * min(block, self.depth))
        self._over_rows(self._clear)
        for first, end, size in pieces(whole, most):
            with self.e.loop(first, end, size, "portion") as number:
                self._portion(room, number, size, block)
        if rest:
            self._portion(room, whole, 1, rest)
        infinite = float("inf")
        bounded = (self.operation.lo, self.operation.hi) != (-infinite, infinite)
        if bounded or "bias" in self.site.constants:
            self._over_rows(self._finish)

    def _room(self, depth: int) -> Value:
        """Address of stack memory for the unpacked weights of so many k."""
        with self.e.at_entry():
            room = self.e.b.alloca(ir.ArrayType(I8, depth * self.line))
        room.align = 4 * self.lanes
        # llvmlite makes a typed pointer of it, which fits no opaque one.
        room.type = PTR
        return room

    def _over_rows(self, emit: Callable[[Index, int], None]) -> None:
        """Emit a loop over tiles of rows; `emit` takes the first row and how many there are."""
        for start, stop, height in pieces(self.site["src"].shape[0], self.kernel.rows):
            with live_rows(self.site, start, stop, height) as row:
                emit(row, height)

    def _places(self, row: Index, height: int) -> list[tuple[Value, int]]:
        """Addresses of vectors of the result, in the order [row][vector], and the columns of each."""
        e, columns = self.e, self.site["dest"].shape[1]
        start = e.plus(e.scaled(row, columns), e.scaled(self.number, self.lanes * self.kernel.vectors))
        dest = e.offset(self.site["dest"].pointer, e.scaled(start, 4))
        return [
            (
                e.offset(dest, 4 * (columns * r + self.lanes * v)),
                min(self.lanes, self.used - self.lanes * v),
            )
            for r in range(height)
            for v in range(self.count)
        ]

    def _clear(self, row: Index, height: int) -> None:
        for place, columns in self._places(row, height):
            self.e.store_lanes(scalar(vec(F32, self.lanes), 0.0), place, columns)

    def _finish(self, row: Index, height: int) -> None:
        """Emit the addition of the bias, and the bounds."""
        e = self.e
        bias = self.row("bias", 0, 1, self.count) if "bias" in self.site.constants else None
        for number, (place, columns) in enumerate(self._places(row, height)):
            total = e.load_lanes(place, F32, self.lanes, columns)
            total = total if bias is None else e.b.fadd(total, bias[number % self.count])
            e.store_lanes(clamp_float(e, total, self.operation.lo, self.operation.hi), place, columns)

    def _portion(self, room: Value, number: Index, size: int, length: int) -> None:
        """Emit the products of all rows with `size` blocks of `length` weights from block `number` on."""
        e, block_bytes = self.e, length * self.line
        with e.loop(0, size, name="unpacked") as n:
            self._unpack(e.offset(room, e.scaled(n, block_bytes)), e.plus(number, n), length)

        def tile(row: Index, height: int) -> None:
            source = e.offset(self.site["src"].pointer, e.scaled(row, 4 * self.depth))
            places = self._places(row, height)
            with e.loop(0, size, name="block") as n:
                block = e.plus(number, n)
                x = e.offset(source, e.scaled(block, 4 * self.operation.block))
                self._block(e.offset(room, e.scaled(n, block_bytes)), block, x, places, length)

        self._over_rows(tile)

    def _unpack(self, room: Value, block: Index, length: int) -> None:
        """Emit stores of the floats of a block, by k and vector."""
        e = self.e
        offsets = self.offsets(block, 1, self.count)
        first = e.scaled(block, self.operation.block // self.each)
        words = -(-self.depth // self.each)

        def store(word: Index, length: int) -> None:
            at = e.plus(first, word)
            fetch_words(self.site, (self.number, self.kernel.vectors), at, words)
            to = e.offset(room, e.scaled(word, self.each * self.line))
            loaded = self.row("filter", at, words, self.count, I32)
            for v, (packed, own) in enumerate(zip(loaded, offsets, strict=True)):
                for j, weights in enumerate(self.weights(packed, own, length)):
                    place = e.offset(to, j * self.line + 4 * self.lanes * v)
                    e.store(weights, place, align=4 * self.lanes)

        whole, rest = divmod(length, self.each)
        with e.loop(0, whole, name="word") as word:
            store(word, self.each)
        if rest:
            store(whole, rest)

    def _block(
        self, room: Value, block: Index, x: Value, places: list[tuple[Value, int]], length: int
    ) -> None:
        """Emit the chains of a tile in a block, and add them to the sums at `places`."""
        e = self.e
        parts = [scalar(vec(F32, self.lanes), 0.0)] * len(places)
        done = length // TOGETHER * TOGETHER
        if done:
            with e.carrying_loop(0, done, parts, TOGETHER, "k") as carry:
                inner = carry.values
                for j in range(TOGETHER):
                    inner = self._step(room, x, e.plus(carry.index, j), inner)
                carry.next(inner)
            parts = carry.values
        for k in range(done, length):
            parts = self._step(room, x, k, parts)
        form = -(-self.depth // self.operation.block), self.kernel.vectors
        scales = load_scales(self.site, self.number, block, form, self.count)
        for number, (part, (place, columns)) in enumerate(zip(parts, places, strict=True)):
            total = e.load_lanes(place, F32, self.lanes, columns)
            total = fused_multiply_add(e, part, scales[number % self.count], total)
            e.store_lanes(total, place, columns)

    def _step(self, room: Value, x: Value, k: Index, parts: list[Value]) -> list[Value]:
        """Emit the multiply-adds of one k; parts are in the order [row][vector]."""
        e, size = self.e, 4 * self.lanes
        start = e.offset(room, e.scaled(k, self.line))
        loaded = [
            e.load(e.offset(start, size * v), vec(F32, self.lanes), align=size) for v in range(self.count)
        ]
        following = []
        for r in range(len(parts) // self.count):
            place = e.offset(x, e.plus(e.scaled(k, 4), 4 * self.depth * r))
            factor = e.splat(e.load(place, F32), self.lanes)
            own = parts[r * self.count : (r + 1) * self.count]
            following += [fused_multiply_add(e, factor, w, p) for w, p in zip(loaded, own, strict=True)]
        return following


@candidates_for(BlockGemm)
def unpacked_products(instruction: Instruction, target: VectorTarget) -> list[Kernel]:
    """Return the kernel with the tiles of float weights, where there is room on the stack for a portion."""
    if target.size is not CodeSize.FAST or not target.has_fma or target.float_lanes == 1:
        return []
    rows, depth = instruction.operand("src").type.shape
    most = ROWS if 4 * depth % CLASHING_BYTES else CLASHING_ROWS
    return [
        UnpackedBlockProduct(
            even_height(rows, min(most, select_tile(target, is_float=True).most_pixels(found.vectors))),
            found.vectors,
            found.real_zeros,
        )
        for found in block_products(instruction, target)
        if isinstance(found, BlockProduct)
    ]

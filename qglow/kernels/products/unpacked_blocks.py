"""Products of many rows with weights in blocks: codes are unpacked once for all rows, into near memory.

Where weights are unpacked in registers, each tile of rows does it again. Here the floats `code - zero point`
of some blocks of a panel, which are exact, are stored on the stack first, and then read by all tiles, which
are as large as those of float weights. Each element has the same chains as in a product whose weights stay
in registers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from qglow.instructions.ops.blocks import BlockGemm
from qglow.instructions.program import Instruction
from qglow.kernels.arithmetic.fused import fused_multiply_add
from qglow.kernels.emit.builder import F32, I32, Index, Value, scalar, vec
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
from qglow.kernels.products.matmul import even_height
from qglow.kernels.products.portions import BlockWork, PanelPortions, PanelTile
from qglow.kernels.products.spread_rows import FEW_ROWS, share_sets, spread_bytes, spread_pitch, spread_rows
from qglow.kernels.tiles.tile import select_tile

STORING = 1.0
"""Instructions that store a vector of unpacked weights, in those of a multiply-add."""
ADDING = 3.0
"""Instructions that add a finished vector of a block to its sum, which is in memory."""
TOGETHER = 4
"""Steps along K in an iteration of the innermost loop."""
ROWS = 10
"""Most rows of a tile: with fewer, two multiply-adds a cycle wait for sums to be ready."""


@kernel
@dataclass(frozen=True)
class UnpackedBlockProduct(BlockProduct):
    """Panels of `vectors` vectors of columns, unpacked some blocks at a time, by tiles of `rows` rows."""

    name: ClassVar[str] = "unpackedblockproduct"

    def scratch_bytes(self, instruction: Instruction) -> int:
        """Bytes of rows that are copied, where tiles of them would share sets of a cache."""
        return spread_bytes(instruction) if self.copies(instruction) else 0

    def copies(self, instruction: Instruction) -> bool:
        """Whether rows are copied first."""
        return instruction.operand("src").type.shape[0] > FEW_ROWS and share_sets(instruction)

    def prepare(self, site: Site) -> None:
        """Emit copies of rows."""
        if self.copies(site.instruction):
            spread_rows(site)

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
class _UnpackedPanel(BlockPanel, BlockWork):
    """Emitter of one panel by portions of blocks."""

    @property
    def count(self) -> int:
        """Vectors of columns that the panel has."""
        return -(-self.used // self.lanes)

    @property
    def is_copied(self) -> bool:
        """Whether rows are read from copies."""
        return isinstance(self.kernel, UnpackedBlockProduct) and self.kernel.copies(self.site.instruction)

    @property
    def pitch(self) -> int:
        """Bytes from one row to the next."""
        return spread_pitch(self.site.instruction) if self.is_copied else 4 * self.depth

    @property
    def line(self) -> int:
        """Bytes of unpacked weights of one k."""
        return 4 * self.lanes * self.count

    def emit(self) -> None:
        """Emit all portions."""
        width = self.lanes * self.kernel.vectors
        PanelPortions(self.site, self, self.kernel.rows, width, self.number, self.used).emit()

    def room_bytes(self, length: int) -> int:
        """Bytes of the floats of a block."""
        return length * self.line

    def bias(self) -> list[Value] | None:
        """Emit loads of the bias, if there is one."""
        return self.row("bias", 0, 1, self.count) if "bias" in self.site.constants else None

    def unpack(self, room: Value, block: Index, length: int) -> None:
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

    def products(self, room: Value, block: Index, tile: PanelTile, length: int) -> list[Value]:
        """Emit the chains of a tile in a block, and add them to its sums."""
        e, places = self.e, tile.places
        rows = self.site.scratch if self.is_copied else self.site["src"].pointer
        x = e.offset(rows, e.scaled(tile.row, self.pitch))
        x = e.offset(x, e.scaled(block, 4 * self.operation.block))
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
        found = []
        for number, (part, (place, columns)) in enumerate(zip(parts, places, strict=True)):
            total = e.load_lanes(place, F32, self.lanes, columns)
            found.append(fused_multiply_add(e, part, scales[number % self.count], total))
        return found

    def _step(self, room: Value, x: Value, k: Index, parts: list[Value]) -> list[Value]:
        """Emit the multiply-adds of one k; parts are in the order [row][vector]."""
        e, size = self.e, 4 * self.lanes
        start = e.offset(room, e.scaled(k, self.line))
        loaded = [
            e.load(e.offset(start, size * v), vec(F32, self.lanes), align=size) for v in range(self.count)
        ]
        following = []
        for r in range(len(parts) // self.count):
            place = e.offset(x, e.plus(e.scaled(k, 4), self.pitch * r))
            factor = e.splat(e.load(place, F32), self.lanes)
            own = parts[r * self.count : (r + 1) * self.count]
            following += [fused_multiply_add(e, factor, w, p) for w, p in zip(loaded, own, strict=True)]
        return following


@candidates_for(BlockGemm)
def unpacked_products(instruction: Instruction, target: VectorTarget) -> list[Kernel]:
    """Return the kernel with the tiles of float weights, where there is room on the stack for a portion."""
    if target.size is not CodeSize.FAST or not target.has_fma or target.float_lanes == 1:
        return []
    rows = instruction.operand("src").type.shape[0]
    return [
        UnpackedBlockProduct(
            even_height(rows, min(ROWS, select_tile(target, is_float=True).most_pixels(found.vectors))),
            found.vectors,
            found.real_zeros,
        )
        for found in block_products(instruction, target)
        if isinstance(found, BlockProduct)
    ]

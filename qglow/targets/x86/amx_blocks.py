"""Products of int8 rows with weights in blocks on AMX: one tile of sums for each block of weights.

Rows are copied once, as signed bytes in the order of tiles. Weights are unpacked to signed bytes once for
all rows, a portion of blocks at a time. Sums of a block reach vector registers through memory, where 16 rows
of one vector of results wait for the blocks of a portion.

Codes of 8 bits less their zero point are no bytes: their products with a are those of code - 128 with a,
and of zero point - 128 with -a, which is copied too. It is a byte, since rows with scales have no -128 (rule
11 of the numeric contract).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from qglow.core.types import Array
from qglow.instructions.ops.blocks import BlockGemm
from qglow.instructions.program import Instruction
from qglow.kernels.arithmetic.fused import fused_multiply_add
from qglow.kernels.emit.builder import F32, I8, I32, Index, Value, constant_vector, scalar, vec
from qglow.kernels.emit.kernel import Kernel, Site
from qglow.kernels.emit.target import VectorTarget
from qglow.kernels.products.block_packing import STEP
from qglow.kernels.products.blocks import BYTE_CODES, fetch_words, load_scales
from qglow.kernels.products.integer_blocks import IntegerBlockProduct, has_known_weights, panel_vectors
from qglow.kernels.products.integer_panel import BYTES, IntegerPanel
from qglow.kernels.products.matmul import live_rows, pieces
from qglow.kernels.products.packed_product import SIGN
from qglow.kernels.products.portions import PanelPortions, PanelTile, PanelWork
from qglow.numerics.blocks import block_count, middle
from qglow.targets.x86.amx import REGISTERS, ROW_BYTES, TILE_BYTES, TILE_ROWS, Registers
from qglow.targets.x86.description import emulates_amx

TOGETHER = 4
"""Blocks whose sums are in registers, and in memory."""
AHEAD = 2
"""Blocks that are multiplied before one is finished, since sums take long to reach memory [measured]."""
ACTIVATIONS, WEIGHTS = TOGETHER, TOGETHER + 2
"""First registers of activations and of weights, two of each; sums are in registers 0 to 3."""
MULTIPLYING = 40.0
"""Cycles that load two tiles, which no other product shares, and multiply them."""
UNPACKING = 2.0
"""Cycles that unpack weights of one k and store them."""


@dataclass(frozen=True)
class Tiles:
    """Tiles that one block of weights is multiplied in.

    width: bytes of a row of activations in a tile. plain: tiles of activations. negative: tiles of their
    negatives, which meet zero points; they are the second half of each row where `merged`.
    """

    width: int
    plain: int
    negative: int
    merged: bool

    @staticmethod
    def of(block: int, negates: bool) -> Tiles:
        """Tiles of a block; `negates`: whether zero points are multiplied with the negatives."""
        if negates and 2 * block <= ROW_BYTES:
            return Tiles(2 * block, 1, 0, True)
        count = -(-block // ROW_BYTES)
        return Tiles(block // count, count, count if negates else 0, False)

    @property
    def count(self) -> int:
        """Tiles of activations."""
        return self.plain + self.negative

    @property
    def taken(self) -> int:
        """Activations of a tile."""
        return self.width // 2 if self.merged else self.width

    @property
    def activation_bytes(self) -> int:
        """Bytes of the activations of 16 rows."""
        return self.count * TILE_ROWS * self.width

    @property
    def steps(self) -> int:
        """Rows of a tile of weights."""
        return self.width // STEP

    @property
    def weight_bytes(self) -> int:
        """Bytes of the weights of 16 columns: all negatives meet the same tile of zero points."""
        return (self.plain + min(self.negative, 1)) * self.steps * ROW_BYTES


@dataclass(frozen=True)
class AmxBlockProduct(IntegerBlockProduct):
    """Panels of `vectors` vectors of columns, by tiles of 16 rows."""

    name: ClassVar[str] = "amxblockproduct"

    rows: int = TILE_ROWS

    def constants(self, instruction: Instruction, target: VectorTarget) -> dict[str, Array]:
        """Constants of `IntegerBlockProduct` but for sums of weights: activations are signed here."""
        found = super().constants(instruction, target)
        del found["sums"]
        return found

    def cost(self, instruction: Instruction, target: VectorTarget) -> float:
        """Cycles of multiplications and of sums of blocks, and of unpacking once."""
        operation = instruction.operation
        assert isinstance(operation, BlockGemm) and target.model.matrix is not None
        rows, depth = instruction.operand("src").type.shape
        columns = instruction.operand("scales").type.shape[1]
        vectors, blocks = -(-columns // target.float_lanes), block_count(depth, operation.block)
        finishing = TILE_ROWS * target.model.matrix.output_cycles
        each = finishing + MULTIPLYING * _tiles(instruction).count
        return vectors * (-(-rows // TILE_ROWS) * blocks * each + depth * UNPACKING)

    def scratch_bytes(self, instruction: Instruction) -> int:
        """Bytes of the copied rows."""
        operation = instruction.operation
        assert isinstance(operation, BlockGemm)
        rows, depth = instruction.operand("src").type.shape
        blocks = block_count(depth, operation.block)
        return -(-rows // TILE_ROWS) * blocks * _tiles(instruction).activation_bytes

    def prepare(self, site: Site) -> None:
        """Emit copies of rows, and the configuration of tiles."""
        _copy_rows(site)
        found = _tiles(site.instruction)
        counts = [TILE_ROWS] * WEIGHTS + [found.steps] * (REGISTERS - WEIGHTS)
        widths = [ROW_BYTES] * ACTIVATIONS + [found.width] * 2 + [ROW_BYTES] * (REGISTERS - WEIGHTS)
        _registers(site).configure(counts, widths)

    def emit(self, site: Site) -> None:
        """Emit the product, and release the tiles."""
        super().emit(site)
        if site["dest"].type.size:
            _registers(site).release()

    def emit_panel(self, site: Site, number: Index, used: int) -> None:
        """Emit one panel."""
        sums = site.e.room("sums of blocks", TOGETHER * TILE_BYTES, ROW_BYTES)
        _AmxPanel(site, self.rows, self.vectors, number, used, sums).emit()


@dataclass(frozen=True)
class _AmxPanel(IntegerPanel, PanelWork):
    """Emitter of one panel by portions of blocks.

    sums: address of stack memory for the sums of blocks.
    """

    sums: Value

    @property
    def tiles(self) -> Tiles:
        """Tiles of a block."""
        return _tiles(self.site.instruction)

    @property
    def negates(self) -> bool:
        """Whether zero points are multiplied with negatives of activations."""
        return _negates(self.site.instruction)

    def emit(self) -> None:
        """Emit all portions."""
        width = self.lanes * self.vectors
        PanelPortions(self.site, self, self.rows, width, self.number, self.used).emit()

    def room_bytes(self, length: int) -> int:
        """Bytes of the weights of a block, whatever its length."""
        return self.count * self.tiles.weight_bytes

    def bias(self) -> list[Value] | None:
        """Emit loads of the bias, if there is one."""
        return self.row("bias", 0, 1) if "bias" in self.site.constants else None

    def unpack(self, room: Value, block: Index, length: int) -> None:
        """Emit stores of the weights of a block by vector, tile and step.

        A short block leaves other weights behind its own, which meet activations of 0.
        """
        e, steps, kind = self.e, self.each // STEP, vec(I8, STEP * self.lanes)
        largest = (1 << self.operation.bits) - 1
        zeros, size = self._zeros(block), self.tiles.weight_bytes
        first = e.scaled(block, self.operation.block // self.each)
        words = -(-self.depth // self.each)

        def store(word: Index, count: int) -> None:
            at = e.plus(first, word)
            fetch_words(self.site, (self.number, self.vectors), at, words)
            to = e.offset(room, e.scaled(word, steps * ROW_BYTES))
            for v, packed in enumerate(self.row("filter", at, words, I32)):
                for step in range(count):
                    codes = self.masked(packed, self.operation.bits * step, largest * BYTES)
                    weights = e.b.bitcast(codes, kind)
                    weights = weights if self.splits else e.b.sub(weights, zeros[v])
                    e.store(weights, e.offset(to, size * v + ROW_BYTES * step), align=ROW_BYTES)

        whole, rest = divmod(length, self.each)
        with e.loop(0, whole, name="word") as word:
            store(word, steps)
        if rest:
            store(whole, -(-rest // STEP))
        if not self.negates:
            return
        place = self.operation.block // STEP * ROW_BYTES
        for v, zero in enumerate(zeros):
            less = e.b.xor(zero, scalar(kind, SIGN))
            for step in range((size - place) // ROW_BYTES):
                e.store(less, e.offset(room, size * v + place + ROW_BYTES * step), align=ROW_BYTES)

    def multiply(self, room: Value, number: Index, size: int, tile: PanelTile, length: int) -> None:
        """Emit the sums of all blocks, one vector after the other."""
        for v in range(self.count):
            places = tile.places[v :: self.count]
            sums = [self.e.load_lanes(place, F32, self.lanes, columns) for place, columns in places]
            sums = _Column(self, room, number, tile, v).add(sums, size)
            for total, (place, columns) in zip(sums, places, strict=True):
                self.e.store_lanes(total, place, columns)

    def _zeros(self, block: Index) -> list[Value]:
        """Emit the zero points of a block, one for each byte of a step."""
        if "zeros" not in self.site.constants:
            return [scalar(vec(I8, STEP * self.lanes), middle(self.operation.bits))] * self.count
        return self.repeated_zeros(block, STEP)


@dataclass(frozen=True)
class _Column:
    """Emitter of the sums of a tile of rows by vector `vector` of a panel, over blocks of a portion.

    room: unpacked weights of the portion. first: number of its first block.
    """

    panel: _AmxPanel
    room: Value
    first: Index
    tile: PanelTile
    vector: int

    @property
    def blocks(self) -> int:
        """Blocks of a whole row."""
        return block_count(self.panel.depth, self.panel.operation.block)

    def add(self, sums: list[Value], size: int) -> list[Value]:
        """Emit the addition of `size` blocks to `sums`, a vector a row.

        Some blocks are multiplied before those before them are finished.
        """
        e, lanes = self.panel.e, self.panel.lanes
        start = e.offset(self.panel.site["rows"].pointer, e.scaled(self.tile.row, 4))
        factors = [e.splat(e.load(e.offset(start, 4 * r), F32), lanes) for r in range(len(sums))]
        for number in range(min(AHEAD, size)):
            self._multiply(number, number)
        looped = max(0, size - AHEAD) // TOGETHER * TOGETHER
        with e.carrying_loop(0, looped, sums, TOGETHER, "block") as carry:
            following = carry.values
            for n in range(TOGETHER):
                number = e.plus(carry.index, n)
                self._multiply(e.plus(number, AHEAD), (n + AHEAD) % TOGETHER)
                following = self._finish(number, n, factors, following)
            carry.next(following)
        sums = carry.values if looped else sums
        for number in range(looped, size):
            if number + AHEAD < size:
                self._multiply(number + AHEAD, (number + AHEAD) % TOGETHER)
            sums = self._finish(number, number % TOGETHER, factors, sums)
        return sums

    def _multiply(self, number: Index, place: int) -> None:
        """Emit the products of block `number` of the portion, and a store of their sums at place `place`."""
        e, panel, tiles = self.panel.e, self.panel, self.panel.tiles
        registers = _registers(panel.site)
        row = e.scaled(self.tile.row, self.blocks * tiles.activation_bytes // TILE_ROWS)
        left = e.plus(row, e.scaled(e.plus(self.first, number), tiles.activation_bytes))
        left = e.offset(panel.site.scratch, left)
        right = e.plus(e.scaled(number, panel.room_bytes(0)), self.vector * tiles.weight_bytes)
        right = e.offset(self.room, right)
        registers.clear(place)
        for t in range(tiles.count):
            lhs, rhs = ACTIVATIONS + (place + t) % 2, WEIGHTS + (place + t) % 2
            registers.load(lhs, e.offset(left, t * tiles.width * TILE_ROWS), tiles.width)
            registers.load(rhs, e.offset(right, min(t, tiles.plain) * tiles.steps * ROW_BYTES), ROW_BYTES)
            registers.multiply_signed(place, lhs, rhs)
        registers.store(place, e.offset(panel.sums, place * TILE_BYTES), ROW_BYTES)

    def _finish(self, number: Index, place: int, factors: list[Value], sums: list[Value]) -> list[Value]:
        """Emit `sums` plus those of block `number`, which are at place `place`, with both scales."""
        e, panel = self.panel.e, self.panel
        form, lanes = (self.blocks, panel.vectors), panel.lanes
        scales = load_scales(panel.site, panel.number, e.plus(self.first, number), form, panel.count)
        following = []
        for r, (total, factor) in enumerate(zip(sums, factors, strict=True)):
            start = e.offset(panel.sums, place * TILE_BYTES + r * ROW_BYTES)
            real = e.b.sitofp(e.load(start, vec(I32, lanes), align=ROW_BYTES), vec(F32, lanes))
            following.append(fused_multiply_add(e, real, e.b.fmul(factor, scales[self.vector]), total))
        return following


def _copy_rows(site: Site) -> None:
    """Emit copies of rows as signed bytes in tiles; every thread copies all, and need not wait for others."""
    e, (rows, depth), block = site.e, site["src"].shape, site.operation.block
    tiles, blocks = _tiles(site.instruction), block_count(depth, block)
    group = blocks * tiles.activation_bytes
    for start, stop, height in pieces(rows, TILE_ROWS):
        with live_rows(site, start, stop, height) as first, e.loop(0, height, name="row") as r:
            row = e.plus(first, r)
            source = e.offset(site["src"].pointer, e.scaled(row, depth))
            to = e.offset(site.scratch, e.plus(e.scaled(first, group // TILE_ROWS), e.scaled(r, tiles.width)))
            with e.loop(0, depth // block, name="block") as number:
                place = e.offset(to, e.scaled(number, tiles.activation_bytes))
                _copy_block(site, e.offset(source, e.scaled(number, block)), place, block)
            if depth % block:
                whole = depth // block
                place = e.offset(to, whole * tiles.activation_bytes)
                _copy_block(site, e.offset(source, whole * block), place, depth % block)


def _copy_block(site: Site, source: Value, dest: Value, length: int) -> None:
    """Emit the copy of one row of a block, zeros behind a short one."""
    e, tiles, negates = site.e, _tiles(site.instruction), _negates(site.instruction)
    taken, apart = tiles.taken, TILE_ROWS * tiles.width
    kind = vec(I8, taken)
    for t in range(tiles.plain):
        count = max(0, min(taken, length - t * taken))
        signed = scalar(kind, 0)
        if count:
            found = e.load_lanes(e.offset(source, t * taken), I8, taken, count)
            flipped = [SIGN if lane < count else 0 for lane in range(taken)]
            signed = e.b.xor(found, constant_vector(I8, flipped))
        e.store(signed, e.offset(dest, t * apart))
        if negates:
            place = taken if tiles.merged else (tiles.plain + t) * apart
            e.store(e.b.sub(scalar(kind, 0), signed), e.offset(dest, place))


def _negates(instruction: Instruction) -> bool:
    """Whether codes less their zero point are no bytes."""
    operation = instruction.operation
    assert isinstance(operation, BlockGemm)
    return operation.bits == BYTE_CODES and instruction.optional("zeros") is not None


def _tiles(instruction: Instruction) -> Tiles:
    operation = instruction.operation
    assert isinstance(operation, BlockGemm)
    return Tiles.of(operation.block, _negates(instruction))


def _registers(site: Site) -> Registers:
    return Registers(site.e, emulates_amx(site.target))


def amx_block_products(instruction: Instruction, target: VectorTarget) -> list[Kernel]:
    """Return the kernel for several int8 rows, where a block is whole tiles or less than one."""
    operation, rows = instruction.operation, instruction.operand("dest").type.shape[0]
    assert isinstance(operation, BlockGemm)
    whole = operation.block <= ROW_BYTES or operation.block % ROW_BYTES == 0
    if not whole or rows == 1 or not has_known_weights(instruction):
        return []
    return [AmxBlockProduct(TILE_ROWS, panel_vectors(instruction, target))]

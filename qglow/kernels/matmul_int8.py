"""Products of two int8 activations: the right one is packed as weights are, in working memory.

Memory holds activations as bytes a' = a + 128, with zero point za'. The right operand is packed
as signed bytes b, so with zero points za' and zb an element is

    sum(a' * b)  -  za' * sum(b)  +  K * za' * zb  -  zb * sum(a')

where the second and third term are one number a column, found while packing, and the last one a
number a row, found beside the products and left out where zb is 0. Everything wraps around in
int32, which the final sum fits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from qglow.core.types import Array, Quantization
from qglow.instructions.ops.linear import MatMul
from qglow.instructions.program import Instruction
from qglow.kernels.builder import F32, I8, I16, Emitter, Value, scalar, vec
from qglow.kernels.isa import Isa
from qglow.kernels.kernel import Kernel, Site, candidates_for, kernel
from qglow.kernels.matmul import is_stack, matrix_steps, pieces
from qglow.kernels.operand import dense_strides
from qglow.kernels.sweep import outer_loops
from qglow.kernels.tile import DotTile, MicroTile, select_tile
from qglow.kernels.tile_output import OutputStage
from qglow.numerics.linear import worst_product
from qglow.numerics.requantize import multiplier, needs_float_clamp

STEP = 4
"""Elements along K that one step multiplies."""
SIGN = 0x80


@dataclass(frozen=True)
class _Blocks:
    """The columns of one matrix in blocks of `vectors` vectors; the last one takes the rest."""

    columns: int
    lanes: int
    vectors: int

    @property
    def whole(self) -> int:
        """Blocks without a rest."""
        return self.columns // (self.lanes * self.vectors)

    @property
    def rest(self) -> int:
        """Columns behind them."""
        return self.columns - self.whole * self.lanes * self.vectors

    @property
    def count(self) -> int:
        """All blocks."""
        return self.whole + (1 if self.rest else 0)

    def kinds(self) -> Iterator[tuple[int, int, int, int]]:
        """(first block, number of blocks, vectors, columns of each) of equal blocks."""
        if self.whole:
            yield 0, self.whole, self.vectors, self.lanes * self.vectors
        if self.rest:
            yield self.whole, 1, -(-self.rest // self.lanes), self.rest


@dataclass(frozen=True)
class _Product:
    """One product M x K x N: blocks of columns, each packed and then multiplied with all rows."""

    e: Emitter
    tile: MicroTile
    output: OutputStage
    rows: int
    depth: int
    blocks: _Blocks
    zero_a: int
    zero_b: int
    most_rows: int
    zero_step: Value
    ones: Value
    factor: Value
    shared: bool

    @property
    def steps(self) -> int:
        """Steps along K; the last may be filled up with zeros."""
        return -(-self.depth // STEP)

    def emit(self, dest: Value, lhs: Value, rhs: Value, packed: Value) -> None:
        """Threads share the blocks, each of which has working memory of its own."""
        e, blocks = self.e, self.blocks
        share = e.share(blocks.count, self.shared)
        wide = blocks.lanes * blocks.vectors
        for first, count, vectors, columns in blocks.kinds():
            with e.shared_loop(share, first, count, "block") as index:
                number = e.plus(index, first)
                room = e.offset(packed, e.scaled(number, block_bytes(self.tile, self.depth, blocks.vectors)))
                self._pack(e.offset(rhs, e.scaled(number, wide)), room, vectors)
                to = e.offset(dest, e.scaled(number, wide * self.output.element_bytes))
                self._multiply(to, lhs, room, vectors, columns)

    # The right operand

    def _pack(self, rhs: Value, room: Value, vectors: int) -> None:
        """Columns of a block: their sums first, then step by step what the tile wants of weights."""
        e, tile = self.e, self.tile
        start = e.offset(room, vectors * tile.accumulator_bytes)
        step_bytes = vectors * tile.weight_bytes
        whole, rest = divmod(self.depth, STEP)
        constant = self.depth * self.zero_a * self.zero_b
        weight = tile.load_activation(e, self.zero_step)
        for v in range(vectors):
            source, target = e.offset(rhs, v * tile.lanes), e.offset(start, v * tile.weight_bytes)
            total = scalar(tile.accumulator, 0)
            with e.carrying_loop(0, whole, [total], name="pack") as carry:
                place = e.offset(source, e.scaled(carry.index, STEP * self.blocks.columns))
                to = e.offset(target, e.scaled(carry.index, step_bytes))
                carry.next([self._pack_step(place, to, STEP, weight, carry.values[0])])
            total = carry.values[0] if whole else total
            if rest:
                place = e.offset(source, whole * STEP * self.blocks.columns)
                total = self._pack_step(place, e.offset(target, whole * step_bytes), rest, weight, total)
            bias = e.b.sub(scalar(tile.accumulator, _wrapped(constant)), total)
            e.store(bias, e.offset(room, v * tile.accumulator_bytes))

    def _pack_step(
        self, source: Value, target: Value, count: int, weight: tuple[Value, ...], total: Value
    ) -> Value:
        """Pack `count` rows of one vector of columns; `total` plus za' times their sum."""
        e, lanes = self.e, self.tile.lanes
        kind = vec(I8, lanes)
        rows = [scalar(kind, 0)] * STEP
        for i in range(count):
            stored = e.load(e.offset(source, i * self.blocks.columns), kind)
            rows[i] = e.b.xor(stored, scalar(kind, SIGN))
        packed = _packed_step(e, self.tile, rows)
        size = self.tile.weight_bytes // len(packed)
        for number, part in enumerate(packed):
            e.store(part, e.offset(target, number * size))
        return self.tile.accumulate(e, total, weight, packed) if self.zero_a else total

    # The product

    def _multiply(self, dest: Value, lhs: Value, room: Value, vectors: int, columns: int) -> None:
        e = self.e
        for start, stop, height in pieces(self.rows, self.most_rows):
            with e.loop(start, stop, height, "rows") as row:
                to = e.offset(dest, e.scaled(row, self.blocks.columns * self.output.element_bytes))
                source = e.offset(lhs, e.scaled(row, self.depth))
                self._tile(to, source, room, height, vectors, columns)

    def _tile(self, dest: Value, lhs: Value, room: Value, height: int, vectors: int, columns: int) -> None:
        e, tile = self.e, self.tile
        size = tile.accumulator_bytes
        bias = [e.load(e.offset(room, v * size), tile.accumulator) for v in range(vectors)]
        initial = bias * height
        if self.zero_b:
            initial += [scalar(tile.accumulator, 0)] * height
        sums = self._sums(lhs, e.offset(room, vectors * size), initial, height, vectors)
        rows = [sums[r * vectors : (r + 1) * vectors] for r in range(height)]
        if self.zero_b:
            zero = scalar(tile.accumulator, self.zero_b)
            less = [e.b.mul(total, zero) for total in sums[height * vectors :]]
            rows = [[e.b.sub(s, minus) for s in row] for row, minus in zip(rows, less, strict=True)]
        factor = e.load(self.factor, vec(F32, tile.lanes))
        pitch = self.blocks.columns * self.output.element_bytes
        places = [e.offset(dest, r * pitch) for r in range(height)]
        self.output.emit(e, rows, [factor] * vectors, places, columns)

    def _sums(
        self, lhs: Value, packed: Value, initial: list[Value], height: int, vectors: int
    ) -> list[Value]:
        """All steps; behind the sums of the products those of the rows, where they are needed."""
        e, whole = self.e, self.depth // STEP
        step_bytes = vectors * self.tile.weight_bytes
        sums = initial
        with e.carrying_loop(0, whole, sums, name="steps") as carry:
            at = e.offset(lhs, e.scaled(carry.index, STEP))
            weights = e.offset(packed, e.scaled(carry.index, step_bytes))
            carry.next(self._step(at, weights, carry.values, height, vectors, self.ones))
        sums = carry.values if whole else sums
        if self.depth % STEP:
            rest = e.offset(self.ones, self.tile.weight_bytes)
            at, weights = e.offset(lhs, whole * STEP), e.offset(packed, whole * step_bytes)
            sums = self._step(at, weights, sums, height, vectors, rest)
        return sums

    def _step(
        self, lhs: Value, packed: Value, sums: list[Value], height: int, vectors: int, ones: Value
    ) -> list[Value]:
        e, tile = self.e, self.tile
        loaded = [tile.load_weights(e, e.offset(packed, v * tile.weight_bytes)) for v in range(vectors)]
        counted = tile.load_weights(e, ones) if self.zero_b else ()
        products, row_sums = [], []
        for r in range(height):
            activation = tile.load_activation(e, e.offset(lhs, r * self.depth))
            for v in range(vectors):
                products.append(tile.accumulate(e, sums[r * vectors + v], activation, loaded[v]))
            if self.zero_b:
                row_sums.append(tile.accumulate(e, sums[height * vectors + r], activation, counted))
        return products + row_sums


def _packed_step(e: Emitter, tile: MicroTile, rows: list[Value]) -> tuple[Value, ...]:
    """Four rows of signed bytes, one a lane, as the tile's `load_weights` gives them."""
    lanes = tile.lanes
    if isinstance(tile, DotTile):
        words = vec(I16, lanes)
        pairs = [e.b.bitcast(_interleaved(e, rows[i], rows[i + 1]), words) for i in (0, 2)]
        return (e.b.bitcast(_interleaved(e, *pairs), vec(I8, 4 * lanes)),)
    wide = [e.b.sext(row, vec(I16, lanes)) for row in rows]
    return tuple(_interleaved(e, wide[i], wide[i + 2]) for i in (0, 1))


def _interleaved(e: Emitter, left: Value, right: Value) -> Value:
    """Lanes of both in turn."""
    lanes = left.type.count
    return e.shuffle(left, right, [n for i in range(lanes) for n in (i, lanes + i)])


def block_bytes(tile: MicroTile, depth: int, vectors: int) -> int:
    """Working memory of one block of columns."""
    steps = -(-depth // STEP)
    return vectors * (tile.accumulator_bytes + steps * tile.weight_bytes)


def _wrapped(value: int) -> int:
    """The int32 that is equal modulo 2^32."""
    return (value + 2**31) % 2**32 - 2**31


@kernel
@dataclass(frozen=True)
class PackedMatMul(Kernel):
    """Tiles of `rows` x `vectors` accumulators; blocks of columns are packed by who multiplies them.

    `clamp_first`: sums may be too large to be rounded to int32 before they are clamped.
    `room`: bytes of working memory, which depend on the ISA.
    """

    name: ClassVar[str] = "packedmatmul"
    uses_scales: ClassVar[bool] = False

    rows: int = 1
    vectors: int = 1
    clamp_first: bool = False
    room: int = 0

    def constants(self, instruction: Instruction, isa: Isa) -> dict[str, Array]:
        """The multiplier in all lanes, a step of zero points, and weights of 1 that add up rows.

        Behind the weights of a whole step are those of the last one.
        """
        tile = select_tile(isa, False)
        depth = instruction.operand("lhs").type.shape[-1]
        ones = np.ones((1, 2, tile.lanes, STEP), np.int8)
        ones[:, 1, :, depth % STEP :] = 0
        zero = _parameters(instruction, "lhs").zero_point + isa.activation_bias
        return {
            "factor": np.full(tile.lanes, _multiplier(instruction), np.float32),
            "zero": np.full(STEP, zero, np.uint8),
            "ones": tile.pack(ones).reshape(-1),
        }

    def scratch_bytes(self, instruction: Instruction) -> int:
        """All packed matrices."""
        return self.room

    def cost(self, instruction: Instruction, isa: Isa) -> float:
        """Steps of the tile, and as much again for packing as for one row of tiles."""
        tile = select_tile(isa, False)
        depth = instruction.operand("lhs").type.shape[-1]
        *leading, rows, columns = instruction.operand("dest").type.shape
        tiles = (-(-rows // self.rows) + 1) * -(-columns // (tile.lanes * self.vectors))
        return float(np.prod(leading)) * tiles * -(-depth // STEP) * tile.step_cycles(self.rows, self.vectors)

    def emit(self, site: Site) -> None:
        """Loops over leading axes, along which operands of one matrix stand still."""
        e, dest, lhs, rhs = site.e, site["dest"], site["lhs"], site["rhs"]
        if 0 in dest.shape:
            return
        assert site.scratch is not None
        leading = dest.shape[:-2]
        product = self._product(site, not is_stack(leading))
        steps = [matrix_steps(memory, leading) for memory in (dest, lhs, rhs)]
        each = product.blocks.count * block_bytes(product.tile, product.depth, self.vectors)
        steps.append(tuple(each * stride for stride in dense_strides(leading)))
        outer = tuple(zip(leading, zip(*steps, strict=True), strict=True))
        pointers = [dest.pointer, lhs.pointer, rhs.pointer, site.scratch]
        with outer_loops(e, pointers, outer, is_stack(leading)) as moved:
            product.emit(*moved)

    def _product(self, site: Site, shared: bool) -> _Product:
        tile, dest, lhs, rhs = select_tile(site.isa, False), site["dest"], site["lhs"], site["rhs"]
        output = OutputStage(tile.lanes, False, False, float("-inf"), float("inf"))
        if not dest.is_float:
            output = OutputStage(tile.lanes, False, True, 0, 255, dest.zero_point, self.clamp_first)
        return _Product(
            site.e,
            tile,
            output,
            rows=dest.shape[-2],
            depth=lhs.shape[-1],
            blocks=_Blocks(dest.shape[-1], tile.lanes, self.vectors),
            zero_a=lhs.zero_point,
            zero_b=rhs.zero_point - rhs.bias,
            most_rows=self.rows,
            zero_step=site.constants["zero"],
            ones=site.constants["ones"],
            factor=site.constants["factor"],
            shared=shared,
        )


def _parameters(instruction: Instruction, name: str) -> Quantization:
    quantization = instruction.operand(name).type.quantization
    assert quantization is not None
    return quantization


def _multiplier(instruction: Instruction) -> float:
    """(s_l * s_r) / s_d, or s_l * s_r for a float result."""
    scales = [_parameters(instruction, name).scale for name in ("lhs", "rhs")]
    if instruction.operand("dest").type.is_float:
        return float(np.float32(scales[0]) * np.float32(scales[1]))
    return float(multiplier(scales[0], scales[1], _parameters(instruction, "dest").scale))


def _clamps_first(instruction: Instruction, depth: int) -> bool:
    if instruction.operand("dest").type.is_float:
        return False
    zeros = [_parameters(instruction, name).zero_point for name in ("lhs", "rhs")]
    return needs_float_clamp(np.array(worst_product(depth, *zeros)), _multiplier(instruction))


@candidates_for(MatMul)
def packed_products(instruction: Instruction, isa: Isa) -> list[Kernel]:
    """Those of int8, on as many accumulators as registers hold."""
    if instruction.operand("lhs").type.is_float:
        return []
    tile = select_tile(isa, False)
    dest, depth = instruction.operand("dest").type.shape, instruction.operand("lhs").type.shape[-1]
    vectors = max(1, min(-(-dest[-1] // tile.lanes), 4 if isa.registers >= 32 else 2))
    summing = 1 if _parameters(instruction, "rhs").zero_point else 0
    rows = max(1, min(dest[-2], tile.most_pixels(vectors + summing)))
    blocks = _Blocks(dest[-1], tile.lanes, vectors).count
    room = int(np.prod(dest[:-2])) * blocks * block_bytes(tile, depth, vectors)
    return [PackedMatMul(rows, vectors, _clamps_first(instruction, depth), room)]

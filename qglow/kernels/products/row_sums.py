"""Sums of int8 rows over the blocks of weights, which zero points of the weights are multiplied with.

They lie in working memory, int32 [rows, blocks], and serve all columns.
"""

from __future__ import annotations

from qglow.instructions.ops.experts import AnyBlockGemm
from qglow.instructions.program import Instruction
from qglow.kernels.emit.builder import I8, I32, Index, Value, constant_vector, scalar, vec
from qglow.kernels.emit.kernel import Site
from qglow.kernels.products.block_packing import STEP
from qglow.kernels.products.matmul import live_rows
from qglow.kernels.products.packed_product import SIGN
from qglow.numerics.blocks import block_count

SUMMED = 32
"""Most elements of a row that are added at once."""


def row_sum_bytes(instruction: Instruction) -> int:
    """Bytes of the sums of all rows."""
    operation = instruction.operation
    assert isinstance(operation, AnyBlockGemm)
    rows, depth = instruction.operand("src").type.shape
    return 4 * rows * block_count(depth, operation.block)


def load_row_sums(site: Site, row: Index, block: Index, height: int) -> list[Value]:
    """Emit loads of the sums of `height` rows from `row` on over a block."""
    e, blocks = site.e, block_count(site["src"].shape[1], site.operation.block)
    start = e.offset(site.scratch, e.plus(e.scaled(row, 4 * blocks), e.scaled(block, 4)))
    return [e.load(e.offset(start, 4 * blocks * r), I32) for r in range(height)]


def copied_row_bytes(instruction: Instruction) -> int:
    """Bytes of a row that is copied behind its sums, up to a whole step."""
    depth = instruction.operand("src").type.shape[1]
    return -(-depth // STEP) * STEP


def copied_row(site: Site) -> Value:
    """Emit the address of the copy of the one row, signed bytes, zeros behind them."""
    return site.e.offset(site.scratch, row_sum_bytes(site.instruction))


def sum_rows(site: Site, copies: bool = False) -> None:
    """Emit the sums of each row over each block, int32 [rows, blocks], into working memory.

    Every thread computes all of them, and then need not wait for others. copies: whether there is one row,
    whose elements are copied there too.
    """
    e, (rows, depth), block = site.e, site["src"].shape, site.operation.block
    blocks, whole = block_count(depth, block), depth // block
    with live_rows(site, 0, rows, 1) as row:
        source = e.offset(site["src"].pointer, e.scaled(row, depth))
        to = e.offset(site.scratch, e.scaled(row, 4 * blocks))
        with e.loop(0, whole, name="block") as number:
            at = e.scaled(number, block)
            copy = e.offset(copied_row(site), at) if copies else None
            e.store(_sum(site, e.offset(source, at), block, copy), e.offset(to, e.scaled(number, 4)))
        if depth % block:
            at = whole * block
            copy = e.offset(copied_row(site), at) if copies else None
            e.store(_sum(site, e.offset(source, at), depth % block, copy), e.offset(to, 4 * whole))


def _sum(site: Site, place: Value, length: int, copy: Value | None) -> Value:
    """Emit the sum of so many int8 activations, and stores of them at `copy`, up to a whole step."""
    e, lanes = site.e, SUMMED if length >= SUMMED else SUMMED // 2
    wide, total = vec(I32, lanes), scalar(I32, -SIGN * length)
    for first in range(0, length, lanes):
        count = min(lanes, length - first)
        part = e.load_lanes(e.offset(place, first), I8, lanes, count)
        other = e.b.xor(part, constant_vector(I8, [SIGN if lane < count else 0 for lane in range(lanes)]))
        part, signed = (part, other) if site.target.activation_bias else (other, part)
        if copy is not None:
            e.store_lanes(signed, e.offset(copy, first), -(-count // STEP) * STEP)
        # Of unsigned bytes: x86 has an instruction that adds up eight of them.
        total = e.b.add(total, e.call(f"llvm.vector.reduce.add.v{lanes}i32", I32, [e.b.zext(part, wide)]))
    return total

"""Sums of int8 rows over the blocks of weights, which zero points of the weights are multiplied with.

They lie in working memory, int32 [rows, blocks], and serve all columns.
"""

from __future__ import annotations

from qglow.instructions.ops.blocks import BlockGemm
from qglow.instructions.program import Instruction
from qglow.kernels.emit.builder import I8, I32, Index, Value, constant_vector, scalar, vec
from qglow.kernels.emit.kernel import Site
from qglow.kernels.products.matmul import live_rows
from qglow.kernels.products.packed_product import SIGN
from qglow.numerics.blocks import block_count

SUMMED = 32
"""Most elements of a row that are added at once."""


def row_sum_bytes(instruction: Instruction) -> int:
    """Bytes of the sums of all rows."""
    operation = instruction.operation
    assert isinstance(operation, BlockGemm)
    rows, depth = instruction.operand("src").type.shape
    return 4 * rows * block_count(depth, operation.block)


def load_row_sums(site: Site, row: Index, block: Index, height: int) -> list[Value]:
    """Emit loads of the sums of `height` rows from `row` on over a block."""
    e, blocks = site.e, block_count(site["src"].shape[1], site.operation.block)
    start = e.offset(site.scratch, e.plus(e.scaled(row, 4 * blocks), e.scaled(block, 4)))
    return [e.load(e.offset(start, 4 * blocks * r), I32) for r in range(height)]


def sum_rows(site: Site) -> None:
    """Emit the sums of each row over each block, int32 [rows, blocks], into working memory.

    Every thread computes all of them, and then need not wait for others.
    """
    e, (rows, depth), block = site.e, site["src"].shape, site.operation.block
    blocks, whole = block_count(depth, block), depth // block
    with live_rows(site, 0, rows, 1) as row:
        source = e.offset(site["src"].pointer, e.scaled(row, depth))
        to = e.offset(site.scratch, e.scaled(row, 4 * blocks))
        with e.loop(0, whole, name="block") as number:
            e.store(
                _sum(site, e.offset(source, e.scaled(number, block)), block),
                e.offset(to, e.scaled(number, 4)),
            )
        if depth % block:
            e.store(_sum(site, e.offset(source, whole * block), depth % block), e.offset(to, 4 * whole))


def _sum(site: Site, place: Value, length: int) -> Value:
    """Emit the sum of so many int8 activations."""
    e, lanes = site.e, SUMMED if length >= SUMMED else SUMMED // 2
    wide, total = vec(I32, lanes), scalar(I32, -SIGN * length)
    for first in range(0, length, lanes):
        count = min(lanes, length - first)
        part = e.load_lanes(e.offset(place, first), I8, lanes, count)
        if not site.target.activation_bias:
            part = e.b.xor(part, constant_vector(I8, [SIGN if lane < count else 0 for lane in range(lanes)]))
        # Of unsigned bytes: x86 has an instruction that adds up eight of them.
        total = e.b.add(total, e.call(f"llvm.vector.reduce.add.v{lanes}i32", I32, [e.b.zext(part, wide)]))
    return total

"""float32 products of two matrices neither of which is constant, read where they lie without packing.

As in every float product (rule 9 of the numeric contract) an element is one chain of fused
multiply-adds over ascending k, so the choice of blocks does not change a bit.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import prod
from typing import ClassVar

from qglow.core.types import Shape
from qglow.instructions.ops.linear import FullyConnected, MatMul
from qglow.instructions.program import Instruction
from qglow.kernels.arithmetic.fused import add_product
from qglow.kernels.arithmetic.requantize import clamp_float
from qglow.kernels.emit.builder import F32, Index, Value, scalar, vec
from qglow.kernels.emit.emitter import Emitter
from qglow.kernels.emit.kernel import Kernel, Site, candidates_for, kernel
from qglow.kernels.emit.operand import Memory, dense_strides
from qglow.kernels.emit.sweep import nested_widths, outer_loops
from qglow.kernels.emit.target import VectorTarget

MANY_REGISTERS = 32
"""Vector registers that hold the sums of six rows by four vectors."""


@dataclass(frozen=True)
class Product:
    """Product of dense matrices M x K and K x N, in blocks of rows by vectors of columns.

    rows, depth, columns: M, K, N. block_rows, block_vectors: size of a block, whose sums stay in registers.
    bias: address of N floats that sums start from, None for 0. lo, hi: bounds of results.
    shared: whether threads share the blocks of rows.
    """

    e: Emitter
    rows: int
    depth: int
    columns: int
    block_rows: int
    block_vectors: int
    bias: Value | None = None
    lo: float = float("-inf")
    hi: float = float("inf")
    shared: bool = True

    @property
    def lanes(self) -> int:
        """Columns in one vector register."""
        return self.e.target.float_lanes

    def emit(self, dest: Value, lhs: Value, rhs: Value) -> None:
        """Emit a loop over blocks of rows, which threads may share, around loops over blocks of columns."""
        e = self.e
        blocks = -(-self.rows // self.block_rows)
        share = e.share(blocks, self.shared)
        for start, stop, height in pieces(self.rows, self.block_rows):
            first = start // self.block_rows
            rows = height * self.columns, self.rows * self.columns, start * self.columns
            count = e.live_pieces(-(-(stop - start) // height), *rows)
            with e.shared_loop(share, first, count, "rows") as number:
                row = e.plus(e.scaled(number, height), start)
                to = e.offset(dest, e.scaled(row, 4 * self.columns))
                self._rows(to, e.offset(lhs, e.scaled(row, 4 * self.depth)), rhs, height)

    def _rows(self, dest: Value, lhs: Value, rhs: Value, height: int) -> None:
        """Emit loops over the columns of a block of rows; the last columns are a masked partial vector."""
        e, wide = self.e, self.lanes * self.block_vectors
        whole = self.columns // self.lanes * self.lanes
        blocks = [*pieces(whole, wide, self.lanes)]
        for start, stop, width in blocks:
            count = e.live_pieces(-(-(stop - start) // width), width, self.columns, start)
            with e.loop(start, e.plus(e.scaled(count, width), start), width, "columns") as column:
                self._block(dest, lhs, rhs, column, height, width // self.lanes, None)
        if whole < self.columns:
            self._block(dest, lhs, rhs, whole, height, 1, self.columns - whole)

    def _block(
        self, dest: Value, lhs: Value, rhs: Value, column: Index, height: int, vectors: int, count: int | None
    ) -> None:
        """Emit one block of results; `count`: columns of its one vector if it is partial."""
        e = self.e
        right = e.offset(rhs, e.scaled(column, 4))
        sums = self._initial(column, height, vectors, count)
        rows, columns = MatrixRows(lhs, 4 * self.depth), MatrixRows(right, 4 * self.columns)
        totals = add_products(e, rows, columns, e.live_terms(self.depth), sums, vectors, count)
        for number, total in enumerate(totals):
            r, v = divmod(number, vectors)
            bounded = clamp_float(e, total, self.lo, self.hi)
            place = e.offset(dest, e.plus(e.scaled(column, 4), 4 * (self.columns * r + self.lanes * v)))
            e.store_lanes(bounded, place, count)

    def _initial(self, column: Index, height: int, vectors: int, count: int | None) -> list[Value]:
        if self.bias is None:
            return [scalar(vec(F32, self.lanes), 0.0)] * (height * vectors)
        start = self.e.offset(self.bias, self.e.scaled(column, 4))
        return [self._load(start, v, count) for v in range(vectors)] * height

    def _load(self, start: Value, vector: int, count: int | None) -> Value:
        return self.e.load_lanes(self.e.offset(start, 4 * self.lanes * vector), F32, self.lanes, count)


@dataclass(frozen=True)
class MatrixRows:
    """Address of a matrix in memory, and bytes from one of its rows to the next."""

    start: Value
    step: int


def add_products(
    e: Emitter,
    lhs: MatrixRows,
    rhs: MatrixRows,
    depth: Index,
    sums: list[Value],
    vectors: int,
    count: int | None = None,
    gap: int | None = None,
) -> list[Value]:
    """Add to `sums`, in the order [row][vector], the products over ascending k below `depth`.

    count: columns of the one vector where it is partial. gap: bytes from a vector of columns to the next
    (default: they are neighbours).
    """
    lanes = sums[0].type.count
    gap = 4 * lanes if gap is None else gap
    with e.carrying_loop(0, depth, sums, name="k") as carry:
        row = e.offset(rhs.start, e.scaled(carry.index, rhs.step))
        # The sums of the block are in registers over all k, which ascends by rule 9. `vectors` loads of
        # the right and one broadcast for each row of the left matrix serve all multiply-adds.
        loaded = [e.load_lanes(e.offset(row, gap * v), F32, lanes, count) for v in range(vectors)]
        result = []
        for r in range(len(sums) // vectors):
            place = e.offset(lhs.start, e.plus(e.scaled(carry.index, 4), lhs.step * r))
            factor = e.splat(e.load(place, F32), lanes)
            own = carry.values[r * vectors : (r + 1) * vectors]
            result += [add_product(e, factor, x, total) for x, total in zip(loaded, own, strict=True)]
        carry.next(result)
    return carry.values


def pieces(extent: int, block: int, least: int = 1) -> Iterator[tuple[int, int, int]]:
    """Split 0 ... `extent` into ranges (start, stop, size of a block): whole blocks, then one smaller block.

    The size of the smaller one is a multiple of `least`; what remains beyond that is left out.
    """
    whole = extent // block * block
    if whole:
        yield 0, whole, block
    if extent > whole:
        rest = (extent - whole) // least * least
        yield whole, whole + rest, rest


def even_height(rows: int, most: int) -> int:
    """Rows of each of the fewest tiles of at most `most` rows, as equal as they can be; at least 1."""
    return max(1, -(-rows // max(1, -(-rows // most))))


@contextmanager
def live_rows(site: Site, start: int, stop: int, height: int) -> Iterator[Index]:
    """Emit a loop over blocks of `height` rows of a matrix, the result, that have live ones."""
    e, (rows, columns) = site.e, site["dest"].shape
    count = e.live_pieces(-(-(stop - start) // height), height * columns, rows * columns, start * columns)
    with e.loop(start, e.plus(e.scaled(count, height), start), height, "rows") as row:
        yield row


@dataclass(frozen=True)
class _Direct(Kernel):
    """Product on matrices as they lie in memory, in blocks of `rows` x `vectors` accumulators."""

    limits_live: ClassVar[bool] = True

    rows: int = 4
    vectors: int = 2

    def cost(self, instruction: Instruction, target: VectorTarget) -> float:
        """Estimated cycles, from the number of multiply-adds of vectors."""
        depth = instruction.reads()[0].type.shape[-1]
        return instruction.operand("dest").type.size * depth / target.float_lanes

    def product(self, site: Site, lhs: Memory, rhs: Memory, bias: Value | None = None) -> Product:
        """Emitter of the product over the last two axes, with the bounds of the operation if it has any."""
        bounds = (getattr(site.operation, "lo", float("-inf")), getattr(site.operation, "hi", float("inf")))
        sizes = lhs.shape[-2], lhs.shape[-1], rhs.shape[-1]
        return Product(site.e, *sizes, self.rows, self.vectors, bias, *bounds)


@kernel
@dataclass(frozen=True)
class DirectFullyConnected(_Direct):
    """Fully connected layer whose filter is computed, not constant."""

    name: ClassVar[str] = "directfullyconnected"

    def emit(self, site: Site) -> None:
        """Emit the one product."""
        bias = site["bias"].pointer if "bias" in site.operands else None
        product = self.product(site, site["src"], site["filter"], bias)
        product.emit(site["dest"].pointer, site["src"].pointer, site["filter"].pointer)


@kernel
@dataclass(frozen=True)
class DirectMatMul(_Direct):
    """Products of the matrices of the last two axes, for all indices of the leading axes."""

    name: ClassVar[str] = "directmatmul"

    def emit(self, site: Site) -> None:
        """Emit loops over the leading axes; an operand has stride 0 along axes that it is broadcast over."""
        e, dest, lhs, rhs = site.e, site["dest"], site["lhs"], site["rhs"]
        leading = dest.shape[:-2]
        product = replace(self.product(site, lhs, rhs), shared=not is_stack(leading))
        steps = [matrix_steps(memory, leading) for memory in (dest, lhs, rhs)]
        outer = tuple(zip(leading, zip(*steps, strict=True), strict=True))
        if 0 in dest.shape:
            return
        operands, widths = (
            [dest.pointer, lhs.pointer, rhs.pointer],
            nested_widths(outer, prod(dest.shape[-2:])),
        )
        with outer_loops(e, operands, outer, is_stack(leading), widths) as pointers:
            product.emit(*pointers)


def is_stack(leading: Shape) -> bool:
    """Whether some leading axis has more than one product: then threads share products, not rows."""
    return max(leading, default=1) > 1


def matrix_steps(memory: Memory, leading: Shape) -> tuple[int, ...]:
    """Strides in bytes between the matrices of a dense operand, for every leading axis of the result."""
    shape, size = memory.shape, memory.element_bytes
    strides, missing = dense_strides(shape), len(leading) - (len(shape) - 2)
    own = [0 if count == 1 else size * step for count, step in zip(shape[:-2], strides, strict=False)]
    return (0,) * missing + tuple(own)


def direct_block(target: VectorTarget) -> tuple[int, int]:
    """Rows and vectors of a block: their sums, a row of vectors and a factor are in registers.

    Four vectors take fewer loads for as many products than two, where there are registers for enough rows.
    """
    vectors = 4 if target.registers >= MANY_REGISTERS else 2
    return max(2, (target.registers - vectors - 2) // vectors), vectors


@candidates_for(FullyConnected)
def direct_products(instruction: Instruction, target: VectorTarget) -> list[Kernel]:
    """Return the kernel for float operands and a filter that is computed or empty, none for others."""
    data = instruction.operand("filter").data
    direct = data is None or not data.size
    is_float = instruction.operand("src").type.is_float
    return [DirectFullyConnected(*direct_block(target))] if direct and is_float else []


@candidates_for(MatMul)
def direct_stacks(instruction: Instruction, target: VectorTarget) -> list[Kernel]:
    """Return the kernel for float operands, none for int8."""
    return [DirectMatMul(*direct_block(target))] if instruction.operand("lhs").type.is_float else []

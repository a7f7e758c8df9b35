"""Float products of two computed matrices, read where they lie.

As in every float product (rule 9 of the numeric contract) an element is one chain of fused
multiply-adds over ascending k, whatever the block.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

from qglow.core.types import Shape
from qglow.instructions.ops.linear import FullyConnected, MatMul
from qglow.instructions.program import Instruction
from qglow.kernels.builder import F32, Emitter, Index, Value, scalar, vec
from qglow.kernels.isa import Isa
from qglow.kernels.kernel import Kernel, Site, candidates_for, kernel
from qglow.kernels.operand import Memory, dense_strides
from qglow.kernels.requantize import clamp_float
from qglow.kernels.sweep import outer_loops


@dataclass(frozen=True)
class Product:
    """One product of dense matrices M x K and K x N, in blocks of rows and vectors of columns.

    `shared`: threads share the rows.
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
        """Columns of a vector."""
        return self.e.isa.float_lanes

    def emit(self, dest: Value, lhs: Value, rhs: Value) -> None:
        """Blocks of rows around blocks of columns."""
        e = self.e
        blocks = -(-self.rows // self.block_rows)
        share = e.share(blocks, self.shared)
        for start, stop, height in pieces(self.rows, self.block_rows):
            first = start // self.block_rows
            with e.shared_loop(share, first, -(-(stop - start) // height), "rows") as number:
                row = e.plus(e.scaled(number, height), start)
                to = e.offset(dest, e.scaled(row, 4 * self.columns))
                self._rows(to, e.offset(lhs, e.scaled(row, 4 * self.depth)), rhs, height)

    def _rows(self, dest: Value, lhs: Value, rhs: Value, height: int) -> None:
        e, wide = self.e, self.lanes * self.block_vectors
        whole = self.columns // self.lanes * self.lanes
        blocks = [*pieces(whole, wide, self.lanes)]
        for start, stop, width in blocks:
            with e.loop(start, stop, width, "columns") as column:
                self._block(dest, lhs, rhs, column, height, width // self.lanes, None)
        if whole < self.columns:
            self._block(dest, lhs, rhs, whole, height, 1, self.columns - whole)

    def _block(
        self, dest: Value, lhs: Value, rhs: Value, column: Index, height: int, vectors: int, count: int | None
    ) -> None:
        e = self.e
        right = e.offset(rhs, e.scaled(column, 4))
        sums = self._initial(column, height, vectors, count)
        with e.carrying_loop(0, self.depth, sums, name="k") as carry:
            row = e.offset(right, e.scaled(carry.index, 4 * self.columns))
            loaded = [self._load(row, v, count) for v in range(vectors)]
            result = []
            for r in range(height):
                place = e.offset(lhs, e.plus(e.scaled(carry.index, 4), 4 * self.depth * r))
                factor = e.splat(e.load(place, F32), self.lanes)
                row_sums = carry.values[r * vectors : (r + 1) * vectors]
                result += [self._add(factor, x, s) for x, s in zip(loaded, row_sums, strict=True)]
            carry.next(result)
        for number, total in enumerate(carry.values if self.depth else sums):
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

    def _add(self, factor: Value, x: Value, total: Value) -> Value:
        e = self.e
        if e.isa.has_fma:
            return e.intrinsic("llvm.fma", factor, x, total)
        return e.b.fadd(total, e.b.fmul(factor, x))


def pieces(extent: int, block: int, least: int = 1) -> Iterator[tuple[int, int, int]]:
    """(start, stop, size): whole blocks, then the rest in one smaller block, a multiple of `least`."""
    whole = extent // block * block
    if whole:
        yield 0, whole, block
    if extent > whole:
        rest = (extent - whole) // least * least
        yield whole, whole + rest, rest


@dataclass(frozen=True)
class _Direct(Kernel):
    """Blocks of `rows` x `vectors` accumulators."""

    rows: int = 4
    vectors: int = 2

    def cost(self, instruction: Instruction, isa: Isa) -> float:
        """Two multiply-adds a cycle."""
        depth = instruction.reads()[0].type.shape[-1]
        return instruction.operand("dest").type.size * depth / isa.float_lanes

    def product(self, site: Site, lhs: Memory, rhs: Memory, bias: Value | None = None) -> Product:
        """The product of the last two axes, bounds included where the operation has some."""
        bounds = (getattr(site.operation, "lo", float("-inf")), getattr(site.operation, "hi", float("inf")))
        sizes = lhs.shape[-2], lhs.shape[-1], rhs.shape[-1]
        return Product(site.e, *sizes, self.rows, self.vectors, bias, *bounds)


@kernel
@dataclass(frozen=True)
class DirectFullyConnected(_Direct):
    """A computed filter."""

    name: ClassVar[str] = "directfullyconnected"

    def emit(self, site: Site) -> None:
        """One product."""
        bias = site["bias"].pointer if "bias" in site.operands else None
        product = self.product(site, site["src"], site["filter"], bias)
        product.emit(site["dest"].pointer, site["src"].pointer, site["filter"].pointer)


@kernel
@dataclass(frozen=True)
class DirectMatMul(_Direct):
    """A stack of products."""

    name: ClassVar[str] = "directmatmul"

    def emit(self, site: Site) -> None:
        """Loops over leading axes, along which operands of one matrix stand still."""
        e, dest, lhs, rhs = site.e, site["dest"], site["lhs"], site["rhs"]
        leading = dest.shape[:-2]
        product = replace(self.product(site, lhs, rhs), shared=not is_stack(leading))
        steps = [matrix_steps(memory, leading) for memory in (dest, lhs, rhs)]
        outer = tuple(zip(leading, zip(*steps, strict=True), strict=True))
        if 0 in dest.shape:
            return
        with outer_loops(e, [dest.pointer, lhs.pointer, rhs.pointer], outer, is_stack(leading)) as pointers:
            product.emit(*pointers)


def is_stack(leading: Shape) -> bool:
    """Whether there are so many products that threads share those, not their rows."""
    return max(leading, default=1) > 1


def matrix_steps(memory: Memory, leading: Shape) -> tuple[int, ...]:
    """Bytes from one matrix of a dense operand to the next along every leading axis of the result."""
    shape, size = memory.shape, memory.element_bytes
    strides, missing = dense_strides(shape), len(leading) - (len(shape) - 2)
    own = [0 if count == 1 else size * step for count, step in zip(shape[:-2], strides, strict=False)]
    return (0,) * missing + tuple(own)


def _block(isa: Isa) -> tuple[int, int]:
    """Rows and vectors whose accumulators fit into registers beside one row of operands."""
    return (8, 2) if isa.registers >= 32 else (4, 2)


@candidates_for(FullyConnected)
def direct_products(instruction: Instruction, isa: Isa) -> list[Kernel]:
    """Float products with a computed filter."""
    computed = instruction.operand("filter").data is None
    is_float = instruction.operand("src").type.is_float
    return [DirectFullyConnected(*_block(isa))] if computed and is_float else []


@candidates_for(MatMul)
def direct_stacks(instruction: Instruction, isa: Isa) -> list[Kernel]:
    """Those of float."""
    return [DirectMatMul(*_block(isa))] if instruction.operand("lhs").type.is_float else []

"""Transposition: whole squares of elements in registers, and a plain loop for everything else.

A transposition with one axis contiguous in src and another one in dest transposes matrices, inside loops
over the other axes. The rows of a matrix are numbered along the axis that is contiguous in dest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from qglow.instructions.operation import Operation
from qglow.instructions.ops.movement import Transpose
from qglow.instructions.program import Instruction
from qglow.kernels.emit.builder import Value
from qglow.kernels.emit.emitter import Emitter
from qglow.kernels.emit.kernel import Kernel, Site, candidates_for, kernel
from qglow.kernels.emit.operand import Memory, dense_strides, without_parameters
from qglow.kernels.emit.sweep import outer_loops
from qglow.kernels.emit.target import VectorTarget
from qglow.kernels.movement.copy import emit_copy, powers_of_two

SQUARE = 16
"""Rows and columns of a square that is transposed in registers."""
FEW = 8
"""Up to this many rows are interleaved; more are moved in squares."""
VERY_FEW = 4
"""Up to this many columns are deinterleaved by shuffles."""


@dataclass(frozen=True)
class Matrices:
    """Matrices to transpose; sizes are in elements, strides in bytes.

    Element (r, c) is at `r * src_row + c * size` in src and at `c * dest_column + r * size` in
    dest. `outer` are the loops around them: extents with the strides of dest and src; `widths` are the
    elements of dest, in their order, from one place of each to the next.
    """

    rows: int
    columns: int
    src_row: int
    dest_column: int
    outer: tuple[tuple[int, tuple[int, int]], ...]
    widths: tuple[int, ...]


def matrices(dest: Memory, src: Memory) -> Matrices | None:
    """Find the matrices that a copy between these (equally shaped) memories transposes, or None."""
    size = dest.element_bytes
    axes = [
        (extent, d * size, s * size, width)
        for extent, d, s, width in zip(
            dest.shape, dest.strides, src.strides, dense_strides(dest.shape), strict=True
        )
        if extent > 1
    ]
    axes = _merged(axes)
    rows = [axis for axis in axes if axis[1] == size and axis[2] != size]
    columns = [axis for axis in axes if axis[2] == size and axis[1] != size]
    if len(rows) != 1 or len(columns) != 1:
        return None
    around = [axis for axis in axes if axis not in (rows[0], columns[0])]
    outer = tuple((n, (d, s)) for n, d, s, _ in around)
    widths = tuple(width for *_, width in around)
    return Matrices(rows[0][0], columns[0][0], rows[0][2], columns[0][1], outer, widths)


def _merged(axes: list[tuple[int, int, int, int]]) -> list[tuple[int, int, int, int]]:
    """Merge neighbouring axes of which one continues the other in both memories."""
    ordered = sorted(axes, key=lambda axis: axis[1], reverse=True)
    merged: list[tuple[int, int, int, int]] = []
    for extent, dest, src, width in ordered:
        if merged and merged[-1][1:] == (extent * dest, extent * src, extent * width):
            merged[-1] = (merged[-1][0] * extent, dest, src, width)
        else:
            merged.append((extent, dest, src, width))
    return merged


class _Transposing(Kernel):
    """Base of kernels that move elements whatever they stand for."""

    def compared(self, operation: Operation, memory: Memory) -> Memory:
        """Return the operand without parameters."""
        return without_parameters(memory)


@kernel
@dataclass(frozen=True)
class StridedTranspose(_Transposing):
    """Copy with permuted strides: contiguous runs if there are any, else single elements."""

    name: ClassVar[str] = "transpose-strided"
    limits_live: ClassVar[bool] = True

    def cost(self, instruction: Instruction, target: VectorTarget) -> float:
        """Cost of a load and a store for each element."""
        return instruction.operand("dest").type.size * target.model.movement.transposed_element

    def emit(self, site: Site) -> None:
        """Emit a copy from src with its axes in dest's order."""
        emit_copy(site.e, site["dest"], permuted(site), shared=True)


@kernel
@dataclass(frozen=True)
class InterleavingTranspose(_Transposing):
    """Transposition of few rows (the channels of an image): vectors of each are shuffled into pixels."""

    name: ClassVar[str] = "transpose-interleaving"
    limits_live: ClassVar[bool] = True

    def cost(self, instruction: Instruction, target: VectorTarget) -> float:
        """Cost of a shuffle or two for each vector."""
        vectors = instruction.operand("dest").type.byte_size / target.byte_lanes
        return vectors * target.model.movement.transposed_vector

    def emit(self, site: Site) -> None:
        """Emit a loop over `SQUARE` columns of all rows, for which loads and the store are contiguous."""
        e, dest, src = site.e, site["dest"], permuted(site)
        shape = matrices(dest, src)
        assert shape is not None
        size, element = dest.element_bytes, dest.element
        with outer_loops(e, [dest.pointer, src.pointer], shape.outer, widths=shape.widths) as (to, start):

            def chunk(column: Any, count: int) -> None:
                first = e.offset(start, e.scaled(column, size))
                rows = [
                    e.load_lanes(e.offset(first, r * shape.src_row), element, SQUARE, count)
                    for r in range(shape.rows)
                ]
                place = e.offset(to, e.scaled(column, shape.dest_column))
                store_first(e, interleave(e, rows), place, count * shape.rows, size)

            _share_pieces(e, shape.columns, chunk)


@kernel
@dataclass(frozen=True)
class DeinterleavingTranspose(_Transposing):
    """Transposition of few columns (the groups of shuffled channels): rows are shuffled into columns."""

    name: ClassVar[str] = "transpose-deinterleaving"
    limits_live: ClassVar[bool] = True

    def cost(self, instruction: Instruction, target: VectorTarget) -> float:
        """Cost of a shuffle or two for each vector."""
        vectors = instruction.operand("dest").type.byte_size / target.byte_lanes
        return vectors * target.model.movement.transposed_vector

    def emit(self, site: Site) -> None:
        """Emit a loop over `SQUARE` rows of all columns, for which both loads and stores are contiguous."""
        e, dest, src = site.e, site["dest"], permuted(site)
        shape = matrices(dest, src)
        assert shape is not None
        size, element, columns = dest.element_bytes, dest.element, shape.columns
        with outer_loops(e, [dest.pointer, src.pointer], shape.outer, widths=shape.widths) as (to, start):

            def chunk(row: Any, count: int) -> None:
                first = e.offset(start, e.scaled(row, shape.src_row))
                parts = [
                    e.load_lanes(e.offset(first, at * size), element, SQUARE, count * columns - at)
                    for at in range(0, count * columns, SQUARE)
                ]
                for column, vector in enumerate(deinterleave(e, parts, columns)):
                    place = e.offset(to, e.plus(e.scaled(row, size), column * shape.dest_column))
                    e.store_lanes(vector, place, count)

            _share_pieces(e, shape.rows, chunk)


@kernel
@dataclass(frozen=True)
class SquareTranspose(_Transposing):
    """Transposition of squares of 16 x 16 elements in registers; those at the edges are smaller."""

    name: ClassVar[str] = "transpose-square"
    limits_live: ClassVar[bool] = True

    def cost(self, instruction: Instruction, target: VectorTarget) -> float:
        """Cost of four shuffles, a load and a store for each vector of 16."""
        parts = max(1, SQUARE * instruction.operand("dest").type.element.size // target.byte_lanes)
        return instruction.operand("dest").type.size / SQUARE * parts * target.model.movement.transposed_row

    def emit(self, site: Site) -> None:
        """Emit loops over squares, of which those at the edges are cut; threads share the rows of squares."""
        e, dest, src = site.e, site["dest"], permuted(site)
        shape = matrices(dest, src)
        assert shape is not None
        size = dest.element_bytes
        with outer_loops(e, [dest.pointer, src.pointer], shape.outer, widths=shape.widths) as (to, start):
            for row_start, row_stop, height in _pieces(shape.rows):
                for column_start, column_stop, width in _pieces(shape.columns):
                    with (
                        _shared_squares(e, shape.rows, row_start, row_stop) as row,
                        e.loop(column_start, column_stop, SQUARE, "columns") as column,
                    ):
                        source = e.offset(start, e.scaled(row, shape.src_row))
                        target = e.offset(to, e.scaled(row, size))
                        _square(
                            e,
                            e.offset(target, e.scaled(column, shape.dest_column)),
                            e.offset(source, e.scaled(column, size)),
                            replace(shape, rows=height, columns=width),
                            dest.element,
                        )


def _share_pieces(e: Emitter, extent: int, chunk: Callable[[Any, int], None]) -> None:
    """Emit `chunk(start, count)` for every `SQUARE` elements of an axis and the rest; threads share them."""
    whole = extent // SQUARE
    if whole:
        first, last = e.share(whole)
        with e.loop(e.scaled(first, SQUARE), e.scaled(last, SQUARE), SQUARE, "pieces") as start:
            chunk(start, SQUARE)
    if extent > whole * SQUARE:
        with e.last_share():
            chunk(whole * SQUARE, extent - whole * SQUARE)


def _pieces(extent: int) -> Iterator[tuple[int, int, int]]:
    """Split an axis into the range of whole squares and the rest, each with the extent of one square."""
    whole = extent // SQUARE * SQUARE
    if whole:
        yield 0, whole, SQUARE
    if whole < extent:
        yield whole, extent, extent - whole


@contextmanager
def _shared_squares(e: Emitter, extent: int, start: int, stop: int) -> Iterator[Any]:
    """Emit a loop over an axis's squares between start and stop; threads share those of the whole axis."""
    share = e.share(-(-extent // SQUARE))
    count = e.live_pieces(-(-(stop - start) // SQUARE), SQUARE, extent, start)
    with e.shared_loop(share, start // SQUARE, count, "rows") as number:
        yield e.scaled(e.plus(number, start // SQUARE), SQUARE)


def _square(e: Emitter, to: Value, start: Value, shape: Matrices, element: Any) -> None:
    rows = [
        e.load_lanes(e.offset(start, r * shape.src_row), element, SQUARE, shape.columns)
        for r in range(shape.rows)
    ]
    # Any vector will do for the missing rows: their lanes are never stored.
    rows += [rows[0]] * (SQUARE - shape.rows)
    for c, column in enumerate(transpose_square(e, rows)[: shape.columns]):
        e.store_lanes(column, e.offset(to, c * shape.dest_column), shape.rows)


def transpose_square(e: Emitter, rows: list[Value]) -> list[Value]:
    """Transpose n vectors of n lanes, n a power of two: lane c of vector r becomes lane r of vector c."""
    return _exchanged(e, rows, len(rows) // 2)


def transpose_halves(e: Emitter, left: list[Value], right: list[Value]) -> list[Value]:
    """Transpose n rows that are given as halves of n / 2 lanes, as they come from memory.

    Two halves become one vector while they are loaded, which saves a quarter of the shuffles: processors
    have more units for loads than for shuffles.
    """
    half = len(left) // 2
    rows = [e.concat([part[r], part[r + half]]) for part in (left, right) for r in range(half)]
    return _exchanged(e, rows, half // 2)


def _exchanged(e: Emitter, rows: list[Value], step: int) -> list[Value]:
    """Exchange lanes of n vectors in rounds, the first between vectors that lie `step` apart.

    In each round, rows that lie `step` apart exchange half of their lanes: n vectors take log2(n) shuffles
    each, in place of n * n moves of single elements.
    """
    n = len(rows)
    while step:
        low = [lane if not lane & step else lane - step + n for lane in range(n)]
        high = [lane + step if not lane & step else lane + n for lane in range(n)]
        following = list(rows)
        for r in range(n):
            if r & step:
                continue
            a, b = rows[r], rows[r + step]
            following[r], following[r + step] = e.shuffle(a, b, low), e.shuffle(a, b, high)
        rows = following
        step //= 2
    return rows


def interleave(e: Emitter, rows: list[Value]) -> Value:
    """Interleave rows into one vector: lane 0 of every row, lane 1 of every row, and so on."""
    lanes, count = rows[0].type.count, len(rows)
    power = 1 << (count - 1).bit_length()
    joined = e.concat([*rows, *([rows[0]] * (power - count))])
    order = [r * lanes + lane for lane in range(lanes) for r in range(count)]
    return e.shuffle(joined, None, order)


def store_first(e: Emitter, value: Value, pointer: Value, count: int, size: int) -> None:
    """Store the first `count` lanes, of `size` bytes each, in pieces that are powers of two.

    Masks are not used because LLVM 22 does not terminate on some masked stores of 48 bytes.
    """
    if count == value.type.count:
        e.store(value, pointer)
        return
    for start, piece in powers_of_two(0, count):
        part = e.shuffle(value, None, range(start, start + piece))
        e.store(part, e.offset(pointer, start * size))


def deinterleave(e: Emitter, parts: list[Value], count: int) -> list[Value]:
    """Split the lanes of all parts into `count` vectors: vector i takes lanes i, i + count, and so on."""
    lanes = parts[0].type.count
    power = 1 << (len(parts) - 1).bit_length()
    joined = e.concat([*parts, *([parts[0]] * (power - len(parts)))])
    last = lanes * power - 1
    return [
        e.shuffle(joined, None, [min(lane * count + first, last) for lane in range(lanes)])
        for first in range(count)
    ]


def permuted(site: Site) -> Memory:
    """View of src with its axes in dest's order."""
    src, perm = site["src"], site.operation.perm
    strides = tuple(src.strides[axis] for axis in perm)
    return replace(src, type=src.type.with_shape(site["dest"].shape), strides=strides)


@candidates_for(Transpose)
def transpose_candidates(instruction: Instruction, target: VectorTarget) -> list[Kernel]:
    """Return the strided copy, and the matrix kernels for which sizes and strides are suitable."""
    found: list[Kernel] = [StridedTranspose()]
    dest, src = instruction.operand("dest"), instruction.operand("src")
    perm = instruction.operation.perm  # type: ignore[attr-defined]
    strides = tuple(src.layout.strides[axis] for axis in perm)
    shape = matrices(Memory(None, dest.type, dest.layout.strides), Memory(None, dest.type, strides))
    if shape is None or 0 in dest.type.shape:
        return found
    if shape.rows <= FEW and shape.dest_column == shape.rows * dest.type.element.size:
        found.append(InterleavingTranspose())
    if shape.columns <= VERY_FEW and shape.src_row == shape.columns * dest.type.element.size:
        found.append(DeinterleavingTranspose())
    if min(shape.rows, shape.columns) >= FEW:
        found.append(SquareTranspose())
    return found

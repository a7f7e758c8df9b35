"""Copies between operands of equal shape (copy, insert, extract), and the filling of padding."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from qglow.core.types import Shape
from qglow.instructions.operation import Operation
from qglow.instructions.ops.memory import Copy, FillPadding
from qglow.instructions.ops.movement import Extract, Insert
from qglow.instructions.program import Instruction
from qglow.kernels.emit.builder import I1, I8, VOID, Index, Number, Value, scalar, vec
from qglow.kernels.emit.emitter import Emitter
from qglow.kernels.emit.kernel import Kernel, Site, candidates_for, kernel
from qglow.kernels.emit.operand import Memory, contiguous_runs, without_parameters
from qglow.kernels.emit.sweep import cut_at_live, nested_widths, outer_loops, sweep_run
from qglow.kernels.emit.target import VectorTarget

LONG_RUN = 2048
"""Bytes from which on the C library's memcpy and memset are the better loop."""


@kernel
@dataclass(frozen=True)
class Move(Kernel):
    """Copy by contiguous runs of bytes, each moved in vectors."""

    name: ClassVar[str] = "move"
    limits_live: ClassVar[bool] = True

    def compared(self, operation: Operation, memory: Memory) -> Memory:
        """Return the operand without parameters: bytes are moved, whatever numbers they stand for."""
        return without_parameters(memory)

    def cost(self, instruction: Instruction, target: VectorTarget) -> float:
        """Cost of a load and a store for each register of bytes."""
        return (
            instruction.operand("dest").type.byte_size
            / target.byte_lanes
            * target.model.movement.copied_vector
        )

    def emit(self, site: Site) -> None:
        """Emit the copy, between the slices that the operation names."""
        dest, src, operation = site["dest"], site["src"], site.operation
        if isinstance(operation, Insert):
            self._insert(site)
            return
        if isinstance(operation, Extract):
            src = slice_of(site.e, src, operation.offsets, dest.shape, operation.steps)
        emit_copy(site.e, dest, src, shared=True)

    def _insert(self, site: Site) -> None:
        """Emit the copy into a part of dest; where it has all images of dest, those that are live."""
        e, dest, src = site.e, site["dest"], site["src"]
        part = slice_of(e, dest, site.operation.offsets, src.shape)
        count = e.live_images(dest.type) if src.shape[:1] == dest.shape[:1] != () else 0
        with e.whole():
            if isinstance(count, int):
                emit_copy(e, part, src, shared=True)
                return
            first, end = e.share(src.shape[0])
            with e.loop(first, e.minimum(end, count), name="image") as image:
                emit_copy(e, image_of(e, part, image), image_of(e, src, image))


@kernel
@dataclass(frozen=True)
class FillBorder(Kernel):
    """Store of the zero point in all padding around the image."""

    name: ClassVar[str] = "border"
    limits_live: ClassVar[bool] = True
    uses_scales: ClassVar[bool] = False

    def reads_parameters(self, instruction: Instruction, target: VectorTarget) -> bool:
        """Zero points are read, so that layers that differ in nothing else share code."""
        return True

    def cost(self, instruction: Instruction, target: VectorTarget) -> float:
        """Cost of one short fill for each row."""
        shape = instruction.operand("dest").type.shape
        return math.prod(shape[:2]) * target.model.movement.copied_run

    def emit(self, site: Site) -> None:
        """Emit fills of what precedes the image, of the seams between rows, and of what follows.

        The right border of a row and the left one of the next are adjacent in memory, so a seam is one fill.
        Threads share seams as they share the rows between them.
        """
        e, dest = site.e, site["dest"]
        top, left, bottom, right = site.operation.padding
        _, height, width, channels = dest.shape
        size = dest.element_bytes
        pitch = dest.strides[1] * size
        value = 0 if dest.is_float else dest.zero_point
        image = dest.strides[0] * size
        before = top * pitch + left * channels * size
        seam = (left + right) * channels * size
        after = bottom * pitch + right * channels * size
        seams = height - 1 if seam else 0
        with e.loop(0, e.live_images(dest.type), name="image") as n:
            start = e.offset(dest.pointer, e.scaled(n, image))
            end = width * channels * size
            with e.first_share():
                fill(e, e.offset(start, -before), value, before)
            if seams:
                with e.loop(*e.share(seams), name="row") as row:
                    fill(e, e.offset(e.offset(start, e.scaled(row, pitch)), end), value, seam)
            with e.last_share():
                fill(e, e.offset(start, (height - 1) * pitch + end), value, after)


def image_of(e: Emitter, memory: Memory, image: Index) -> Memory:
    """The part of a memory at one place of its outermost axis."""
    pointer = e.offset(memory.pointer, e.scaled(image, memory.strides[0] * memory.element_bytes))
    kind = memory.type.with_shape(memory.shape[1:])
    return replace(memory, pointer=pointer, type=kind, strides=memory.strides[1:])


def slice_of(e: Emitter, memory: Memory, offsets: Shape, shape: Shape, steps: Shape = ()) -> Memory:
    """View of a memory that starts at `offsets` and takes every `steps`-th element along each axis."""
    strides = memory.strides
    if steps:
        strides = tuple(stride * step for stride, step in zip(strides, steps, strict=True))
    return replace(
        memory, pointer=memory.at(e, *offsets), type=memory.type.with_shape(shape), strides=strides
    )


def emit_copy(e: Emitter, dest: Memory, src: Memory, shared: bool = False) -> None:
    """Copy src to dest, which have one shape and element type and any strides.

    `shared`: threads share the longest loop around runs, where there is one.
    """
    if 0 in dest.shape:
        return
    size = dest.element_bytes
    runs = contiguous_runs(dest.shape, [dest.strides, src.strides], [size, size])
    runs = cut_at_live(e, runs, [size, size])
    widths = nested_widths(runs.outer, runs.length)
    with outer_loops(e, [dest.pointer, src.pointer], runs.outer, shared, widths) as (to, start):
        copy_bytes(e, to, start, runs.length * size)


def copy_bytes(e: Emitter, dest: Value, src: Value, count: int) -> None:
    """Copy `count` bytes between places that may not overlap."""
    if count >= LONG_RUN:
        arguments = [dest, src, e.index(count), scalar(I1, 0)]
        e.call("llvm.memcpy.p0.p0.i64", VOID, arguments)
        return

    def body(pointers: list[Value], lanes: int | None) -> None:
        e.store_lanes(e.load_lanes(pointers[1], I8, width, lanes), pointers[0], lanes)

    width = e.target.byte_lanes
    whole = count // width * width
    sweep_run(e, [dest, src], [1, 1], whole, width, body)
    for start, piece in powers_of_two(whole, count):
        kind = vec(I8, piece)
        e.store(e.load(e.offset(src, start), kind), e.offset(dest, start))


def fill(e: Emitter, dest: Value, value: Number, count: int) -> None:
    """Set `count` bytes to one value."""
    if count >= LONG_RUN:
        arguments = [dest, scalar(I8, value), e.index(count), scalar(I1, 0)]
        e.call("llvm.memset.p0.i64", VOID, arguments)
        return
    width = e.target.byte_lanes
    whole = count // width * width

    def body(pointers: list[Value], lanes: int | None) -> None:
        e.store(scalar(vec(I8, width), value), pointers[0])

    sweep_run(e, [dest], [1], whole, width, body)
    for start, piece in powers_of_two(whole, count):
        e.store(scalar(vec(I8, piece), value), e.offset(dest, start))


def powers_of_two(start: int, stop: int) -> Sequence[tuple[int, int]]:
    """Pieces (start, size) that cover a range, each a power of two long, the largest first."""
    pieces = []
    while start < stop:
        size = 1 << ((stop - start).bit_length() - 1)
        pieces.append((start, size))
        start += size
    return pieces


@candidates_for(Copy, Insert, Extract)
def move_candidates(instruction: Instruction, target: VectorTarget) -> list[Kernel]:
    """Return the one kernel, which works for any layout."""
    return [Move()]


@candidates_for(FillPadding)
def border_candidates(instruction: Instruction, target: VectorTarget) -> list[Kernel]:
    """Return the one kernel that fills a border."""
    return [FillBorder()]

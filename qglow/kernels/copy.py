"""Moving bytes between places of equal shape: copy, insert, extract, and borders of padding."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from llvmlite import ir

from qglow.core.types import Shape
from qglow.instructions.ops.memory import Copy, FillPadding
from qglow.instructions.ops.movement import Extract, Insert
from qglow.instructions.program import Instruction
from qglow.kernels.builder import I1, I8, VOID, Emitter, Value, scalar, vec
from qglow.kernels.isa import Isa
from qglow.kernels.kernel import Kernel, Site, candidates_for, kernel
from qglow.kernels.operand import Memory, contiguous_runs
from qglow.kernels.sweep import outer_loops, sweep_run

LONG_RUN = 2048
"""Bytes from which on the C library's memcpy and memset are the better loop."""
CYCLES_A_RUN = 4.0


@kernel
@dataclass(frozen=True)
class Move(Kernel):
    """Contiguous runs of bytes, each copied by vectors."""

    name: ClassVar[str] = "move"
    uses_scales: ClassVar[bool] = False

    def cost(self, instruction: Instruction, isa: Isa) -> float:
        """Bytes by register size."""
        return instruction.operand("dest").type.byte_size / isa.byte_lanes * 2.0

    def emit(self, site: Site) -> None:
        """The slices that the operation names, then `emit_copy`."""
        dest, src, operation = site["dest"], site["src"], site.operation
        if isinstance(operation, Insert):
            dest = slice_of(site.e, dest, operation.offsets, src.shape)
        if isinstance(operation, Extract):
            src = slice_of(site.e, src, operation.offsets, dest.shape, operation.steps)
        emit_copy(site.e, dest, src, shared=True)


@kernel
@dataclass(frozen=True)
class Border(Kernel):
    """The zero point into everything around the image."""

    name: ClassVar[str] = "border"
    uses_scales: ClassVar[bool] = False

    def cost(self, instruction: Instruction, isa: Isa) -> float:
        """One short fill a row."""
        shape = instruction.operand("dest").type.shape
        return math.prod(shape[:2]) * CYCLES_A_RUN

    def emit(self, site: Site) -> None:
        """Top and left, the seams between rows, right and bottom: each one run of equal bytes.

        Threads share seams as they share the rows between them.
        """
        e, dest = site.e, site["dest"]
        top, left, bottom, right = site.operation.padding
        batch, height, width, channels = dest.shape
        size = dest.element_bytes
        pitch = dest.strides[1] * size
        value = 0 if dest.is_float else dest.zero_point
        image = dest.strides[0] * size
        before = top * pitch + left * channels * size
        seam = (left + right) * channels * size
        after = bottom * pitch + right * channels * size
        seams = height - 1 if seam else 0
        with e.loop(0, batch, name="image") as n:
            start = e.offset(dest.pointer, e.scaled(n, image))
            end = width * channels * size
            with e.first_share():
                fill(e, e.offset(start, -before), value, before)
            if seams:
                with e.loop(*e.share(seams), name="row") as row:
                    fill(e, e.offset(e.offset(start, e.scaled(row, pitch)), end), value, seam)
            with e.last_share():
                fill(e, e.offset(start, (height - 1) * pitch + end), value, after)


def slice_of(e: Emitter, memory: Memory, offsets: Shape, shape: Shape, steps: Shape = ()) -> Memory:
    """The part of a memory that starts at `offsets`, with every `steps`-th element."""
    strides = memory.strides
    if steps:
        strides = tuple(stride * step for stride, step in zip(strides, steps, strict=True))
    return replace(
        memory, pointer=memory.at(e, *offsets), type=memory.type.with_shape(shape), strides=strides
    )


def emit_copy(e: Emitter, dest: Memory, src: Memory, shared: bool = False) -> None:
    """dest = src, one shape and element type, any strides.

    `shared`: threads share the longest loop around runs, where there is one.
    """
    if 0 in dest.shape:
        return
    size = dest.element_bytes
    runs = contiguous_runs(dest.shape, [dest.strides, src.strides], [size, size])
    with outer_loops(e, [dest.pointer, src.pointer], runs.outer, shared) as (to, start):
        copy_bytes(e, to, start, runs.length * size)


def copy_bytes(e: Emitter, dest: Value, src: Value, count: int) -> None:
    """A known number of bytes, which may not overlap."""
    if count >= LONG_RUN:
        arguments = [dest, src, e.index(count), ir.Constant(I1, 0)]
        e.call("llvm.memcpy.p0.p0.i64", VOID, arguments)
        return

    def body(pointers: list[Value], lanes: int | None) -> None:
        e.store_lanes(e.load_lanes(pointers[1], I8, width, lanes), pointers[0], lanes)

    width = e.isa.byte_lanes
    whole = count // width * width
    sweep_run(e, [dest, src], [1, 1], whole, width, body)
    for start, piece in powers_of_two(whole, count):
        kind = vec(I8, piece)
        e.store(e.load(e.offset(src, start), kind), e.offset(dest, start))


def fill(e: Emitter, dest: Value, value: int, count: int) -> None:
    """A known number of equal bytes."""
    if count >= LONG_RUN:
        arguments = [dest, ir.Constant(I8, value), e.index(count), ir.Constant(I1, 0)]
        e.call("llvm.memset.p0.i64", VOID, arguments)
        return
    width = e.isa.byte_lanes
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
def move_candidates(instruction: Instruction, isa: Isa) -> list[Kernel]:
    """Copies of any layout."""
    return [Move()]


@candidates_for(FillPadding)
def border_candidates(instruction: Instruction, isa: Isa) -> list[Kernel]:
    """The one way to fill a border."""
    return [Border()]

"""Gather and broadcast, as copies of whole contiguous runs of bytes where there are any."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from qglow.core.types import Array, ElementType, TensorType
from qglow.instructions.ops.movement import Broadcast, Gather
from qglow.instructions.program import Instruction
from qglow.kernels.arithmetic.half import load_widened
from qglow.kernels.emit.builder import Index, Value
from qglow.kernels.emit.emitter import Emitter
from qglow.kernels.emit.exact_half import exact_half
from qglow.kernels.emit.indices import chosen_index
from qglow.kernels.emit.kernel import Kernel, Site, candidates_for, kernel
from qglow.kernels.emit.operand import Memory
from qglow.kernels.emit.sweep import nested_widths, outer_loops, sweep_run
from qglow.kernels.emit.target import VectorTarget
from qglow.kernels.movement.copy import emit_copy
from qglow.numerics.half import store_exactly


@kernel
@dataclass(frozen=True)
class GatherRuns(Kernel):
    """Gather that copies, for every index, all elements behind the axis at once."""

    name: ClassVar[str] = "gather"
    limits_live: ClassVar[bool] = True

    def cost(self, instruction: Instruction, target: VectorTarget) -> float:
        """Cost of moving each register of bytes, plus an overhead for each run."""
        operation = instruction.operation
        assert isinstance(operation, Gather)
        return runs_cost(instruction.operand("dest").type, operation.axis, target)

    def emit(self, site: Site) -> None:
        """Emit loops over the axes before the gather axis and over indices, which are read at run time."""
        e, dest, src, axis = site.e, site["dest"], site["src"], site.operation.axis
        if 0 in dest.shape:
            return
        with before_axis(e, dest, src, axis) as (to, start), along_axis(e, dest, axis) as i:
            index = chosen_index(site, i, src.shape[axis])
            chosen = e.scaled(index, src.strides[axis] * src.element_bytes)
            place = e.offset(to, e.scaled(i, dest.strides[axis] * dest.element_bytes))
            emit_copy(e, behind_axis(dest, axis, place), behind_axis(src, axis, e.offset(start, chosen)))


@kernel
@dataclass(frozen=True)
class GatherWidened(Kernel):
    """Gather of rows of a constant table of float32 that is stored in 16 bits.

    weights: name of their type, which holds every element.
    """

    name: ClassVar[str] = "gatherwidened"
    limits_live: ClassVar[bool] = True

    weights: str

    def constants(self, instruction: Instruction, target: VectorTarget) -> dict[str, Array]:
        """The table in 16 bits, rows one after the other."""
        data = instruction.operand("src").data
        assert data is not None
        return {"src": store_exactly(data, ElementType(self.weights)).view(np.uint16)}

    def cost(self, instruction: Instruction, target: VectorTarget) -> float:
        """Cost of moving rows, which are read in half of their bytes."""
        return runs_cost(instruction.operand("dest").type, 0, target)

    def emit(self, site: Site) -> None:
        """Emit a loop over indices, and one over vectors of a row."""
        e, dest, element = site.e, site["dest"], ElementType(self.weights)
        if 0 in dest.shape:
            return
        length = math.prod(dest.shape[1:])

        sizes = [dest.element_bytes, element.size]

        def body(pointers: list[Value], count: int | None) -> None:
            if count is None:
                e.store(load_widened(e, pointers[1], element, e.target.float_lanes, align=2), pointers[0])
            for lane in range(count or 0):
                to, start = (e.offset(p, lane * size) for p, size in zip(pointers, sizes, strict=True))
                e.store(e.extract(load_widened(e, start, element, 1), 0), to)

        extent = site.instruction.operand("src").type.shape[0]
        with along_axis(e, dest, 0) as i:
            index = chosen_index(site, i, extent)
            start = e.offset(site.constants["src"], e.scaled(index, length * element.size))
            to = e.offset(dest.pointer, e.scaled(i, dest.strides[0] * dest.element_bytes))
            sweep_run(e, [to, start], sizes, length, e.target.float_lanes, body)


def runs_cost(kind: TensorType, axis: int, target: VectorTarget) -> float:
    """Estimated cycles of copying all elements of a type, those behind an axis at once."""
    costs, runs = target.model.movement, math.prod(kind.shape[: axis + 1])
    return kind.byte_size / target.byte_lanes * costs.copied_vector + runs * costs.copied_run


@contextmanager
def before_axis(e: Emitter, dest: Memory, src: Memory, axis: int) -> Iterator[tuple[Value, Value]]:
    """Emit loops over the axes before `axis`, which are equal in dest and src; yields both addresses."""
    size = (dest.element_bytes, src.element_bytes)
    outer = tuple((dest.shape[a], (dest.strides[a] * size[0], src.strides[a] * size[1])) for a in range(axis))
    widths = nested_widths(outer, math.prod(dest.shape[axis:]))
    with outer_loops(e, [dest.pointer, src.pointer], outer, widths=widths) as (to, start):
        yield to, start


@contextmanager
def along_axis(e: Emitter, dest: Memory, axis: int) -> Iterator[Index]:
    """Emit a loop over the places of an axis of dest that are live, which threads share."""
    first, end = e.share(dest.shape[axis])
    (count,) = e.live_axes([dest.shape[axis]], math.prod(dest.shape[axis + 1 :]))
    with e.loop(first, e.minimum(end, count), name="index") as index:
        yield index


def behind_axis(memory: Memory, axis: int, pointer: Value) -> Memory:
    """Part of a memory at `pointer` that has the axes behind `axis` only."""
    kind = memory.type.with_shape(memory.shape[axis + 1 :])
    return replace(memory, pointer=pointer, type=kind, strides=memory.strides[axis + 1 :])


@kernel
@dataclass(frozen=True)
class BroadcastRuns(Kernel):
    """Broadcast as a copy from a source with stride 0 on repeated axes; a run of one element is filled."""

    name: ClassVar[str] = "broadcast"
    limits_live: ClassVar[bool] = True

    def cost(self, instruction: Instruction, target: VectorTarget) -> float:
        """Cost of a load and a store for each register of bytes."""
        return (
            instruction.operand("dest").type.byte_size
            / target.byte_lanes
            * target.model.movement.copied_vector
        )

    def emit(self, site: Site) -> None:
        """Emit a copy, or fills where the innermost axes repeat one element."""
        e, dest, src = site.e, site["dest"], site["src"]
        if 0 in dest.shape:
            return
        pairs = zip(dest.shape, src.shape, src.strides, strict=True)
        strides = tuple(0 if size != have else stride for size, have, stride in pairs)
        src = replace(src, type=src.type.with_shape(dest.shape), strides=strides)
        first, length = _equal_tail(dest, strides)
        if length == 1:
            emit_copy(e, dest, src)
            return
        with before_axis(e, dest, src, first) as (to, start):
            _repeat(e, dest, to, e.load(start, dest.element), length)


def _equal_tail(dest: Memory, strides: tuple[int, ...]) -> tuple[int, int]:
    """Innermost axes of dest that hold one repeated element contiguously: the first, and their size."""
    first, length = len(strides), 1
    while first and (dest.shape[first - 1] == 1 or _continues(dest, strides, first - 1, length)):
        first -= 1
        length *= dest.shape[first]
    return first, length


def _continues(dest: Memory, strides: tuple[int, ...], axis: int, length: int) -> bool:
    return strides[axis] == 0 and dest.strides[axis] == length


def _repeat(e: Emitter, dest: Memory, to: Value, element: Value, length: int) -> None:
    lanes = max(1, e.target.byte_lanes // dest.element_bytes)
    vector = e.splat(element, lanes)

    def body(pointers: list[Value], count: int | None) -> None:
        e.store_lanes(vector, pointers[0], count)

    sweep_run(e, [to], [dest.element_bytes], length, lanes, body)


@candidates_for(Gather)
def gather_candidates(instruction: Instruction, target: VectorTarget) -> list[Kernel]:
    """Return the one kernel for any layout, or that of a large table that 16 bits hold."""
    operation = instruction.operation
    assert isinstance(operation, Gather)
    by_rows = operation.axis == 0 and instruction.operand("dest").is_contiguous
    weights = exact_half(instruction.operand("src"), target) if by_rows else ""
    return [GatherWidened(weights)] if weights else [GatherRuns()]


@candidates_for(Broadcast)
def broadcast_candidates(instruction: Instruction, target: VectorTarget) -> list[Kernel]:
    """Return the one kernel, which works for any layout."""
    return [BroadcastRuns()]

"""Gather and broadcast, as copies of whole contiguous runs of bytes where there are any."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import ClassVar

from qglow.core.types import TensorType
from qglow.instructions.ops.movement import Broadcast, Gather
from qglow.instructions.program import Instruction
from qglow.kernels.emit.builder import I64, Index, Value
from qglow.kernels.emit.emitter import Emitter
from qglow.kernels.emit.kernel import Kernel, Site, candidates_for, kernel
from qglow.kernels.emit.operand import Memory
from qglow.kernels.emit.sweep import nested_widths, outer_loops, sweep_run
from qglow.kernels.emit.target import VectorTarget
from qglow.kernels.movement.copy import emit_copy


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


def chosen_index(site: Site, position: Index, extent: int) -> Value:
    """Load an index of an axis, count a negative one from the end, and clamp it to the axis."""
    e, indices = site.e, site["indices"]
    place = e.offset(indices.pointer, e.scaled(position, indices.element_bytes))
    value = e.load(place, indices.element)
    if value.type != I64:
        value = e.b.sext(value, I64)
    # Indices are a caller's data: whatever they are, nothing outside of the axis may be read.
    negative = e.b.icmp_signed("<", value, e.index(0))
    value = e.b.select(negative, e.b.add(value, e.index(extent)), value)
    return e.maximum(e.minimum(value, extent - 1), 0)


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
    """Return the one kernel, which works for any layout."""
    return [GatherRuns()]


@candidates_for(Broadcast)
def broadcast_candidates(instruction: Instruction, target: VectorTarget) -> list[Kernel]:
    """Return the one kernel, which works for any layout."""
    return [BroadcastRuns()]

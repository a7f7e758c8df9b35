"""Liveness: which instructions touch which memory, derived from signatures and views."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import as_strided

from qglow.core.types import Array, Shape
from qglow.instructions.operation import Access, Operand
from qglow.instructions.ops.memory import AllocActivation, DeallocActivation, FillPadding
from qglow.instructions.program import Buffer, BufferKind, Instruction, Layout, Program


@dataclass(frozen=True, slots=True)
class Use:
    """One operand of one instruction that touches memory of a root buffer."""

    index: int
    instruction: Instruction
    operand: Operand
    buffer: Buffer

    @property
    def reads(self) -> bool:
        """Whether earlier contents matter."""
        return self.operand.access in (Access.IN, Access.INOUT)

    @property
    def writes(self) -> bool:
        """Whether contents change."""
        return self.operand.access is not Access.IN


class Usage:
    """Positions in one state of a program; stale as soon as its code changes.

    All questions are about root buffers: uses through views count for the root.
    """

    def __init__(self, program: Program) -> None:
        self._uses: dict[Buffer, list[Use]] = {}
        self._views: dict[Buffer, list[Buffer]] = {}
        self._declared: dict[Buffer, int] = {}
        self._deallocated: dict[Buffer, int] = {}
        for index, instruction in enumerate(program.code):
            self._add(index, instruction)

    def _add(self, index: int, instruction: Instruction) -> None:
        if instruction.operation.touches_memory:
            for operand, buffer in instruction.operands():
                self._uses.setdefault(buffer.root, []).append(Use(index, instruction, operand, buffer))
            return
        first = instruction.buffers[0]
        assert first is not None
        if isinstance(instruction.operation, DeallocActivation):
            self._deallocated[first] = index
            return
        self._declared[first] = index
        if first.base is not None:
            self._views.setdefault(first.root, []).append(first)

    def uses(self, buffer: Buffer) -> list[Use]:
        """Every use of the buffer's root, in order."""
        return self._uses.get(buffer.root, [])

    def views(self, buffer: Buffer) -> list[Buffer]:
        """Views of the buffer's root, in order of declaration."""
        return self._views.get(buffer.root, [])

    def first(self, buffer: Buffer) -> int | None:
        """Index of the first instruction that touches the root; None if none does."""
        uses = self.uses(buffer)
        return uses[0].index if uses else None

    def last(self, buffer: Buffer) -> int | None:
        """Index of the last instruction that touches the root; None if none does."""
        uses = self.uses(buffer)
        return uses[-1].index if uses else None

    def declared(self, buffer: Buffer) -> int | None:
        """Index of the allocation or tensorview that makes this very buffer."""
        return self._declared.get(buffer)

    def deallocated(self, buffer: Buffer) -> int | None:
        """Index of the deallocation of this very buffer."""
        return self._deallocated.get(buffer)

    def writes_between(self, buffer: Buffer, start: int, end: int) -> list[Use]:
        """Uses that change the root's memory at `start` <= index < `end`."""
        return [use for use in self.uses(buffer) if use.writes and start <= use.index < end]


@dataclass(frozen=True, slots=True)
class Interval:
    """Lifetime of an activation: allocated by instruction `start`, deallocated by `end`."""

    buffer: Buffer
    start: int
    end: int

    def overlaps(self, other: Interval) -> bool:
        """Whether both exist at some time."""
        return self.start < other.end and other.start < self.end


def unstored(program: Program) -> set[Buffer]:
    """Activations without memory: a stack with an epilogue passes them in registers, and alone uses them."""
    first: dict[int, Instruction] = {}
    for instruction in program.code:
        if instruction.stack is not None:
            first.setdefault(instruction.stack, instruction)
    leaders = {id(instruction) for instruction in first.values() if instruction.operation.has_epilogue}
    if not leaders:
        return set()
    usage = Usage(program)
    found = set()
    for buffer in program.activations():
        uses = usage.uses(buffer)
        stacks = {use.instruction.stack for use in uses}
        passed_on = id(uses[0].instruction) in leaders and any(use.reads for use in uses)
        if len(stacks) == 1 and passed_on:
            found.add(buffer)
    return found


def intervals(program: Program) -> list[Interval]:
    """Lifetimes of activations that need memory, in order of allocation; to the end if never deallocated."""
    starts: dict[Buffer, int] = {}
    ends: dict[Buffer, int] = {}
    without = unstored(program)
    for index, instruction in enumerate(program.code):
        buffer = None if instruction.operation.touches_memory else instruction.buffers[0]
        if buffer is None or buffer in without:
            continue
        if isinstance(instruction.operation, AllocActivation):
            starts[buffer] = index
        elif isinstance(instruction.operation, DeallocActivation):
            ends[buffer] = index
    return [Interval(b, start, ends.get(b, len(program.code))) for b, start in starts.items()]


def region(mask: Array, layout: Layout, shape: Shape) -> Array:
    """The elements of a buffer within `mask`, an array with one item for each element of its root."""
    strides = tuple(stride * mask.itemsize for stride in layout.strides)
    return as_strided(mask[layout.offset :], shape, strides)


def overlap(one: Buffer, other: Buffer) -> bool:
    """Whether two buffers have bytes in common. Buffers of different roots never do."""
    if one.root is not other.root or not one.type.size or not other.type.size:
        return False
    if one is other or one.base is None or other.base is None:
        return True
    mask = np.zeros(one.layout.span, np.bool_)
    region(mask, one.layout, one.type.shape)[...] = True
    return bool(region(mask, other.layout, other.type.shape).any())


def touched(instruction: Instruction, operand: Operand, buffer: Buffer) -> Buffer:
    """The part of an operand's buffer that the instruction touches, as a view."""
    part = instruction.operation.updated_slice(instruction.types) if operand.access is Access.INOUT else None
    if part is None:
        return buffer
    offsets, shape = part
    return Buffer(buffer.name, buffer.type.with_shape(shape), BufferKind.VIEW, base=buffer, offsets=offsets)


def written_parts(instruction: Instruction) -> list[Buffer]:
    """Parts of its operands that an instruction writes, under the operands' names; without empty ones."""
    if not instruction.operation.touches_memory:
        return []
    written = [(o, b) for o, b in instruction.operands() if o.access in (Access.OUT, Access.INOUT)]
    parts = [touched(instruction, operand, buffer) for operand, buffer in written]
    return [part for part in parts if part.type.size]


def written_borders(instruction: Instruction) -> list[Buffer]:
    """Parts of the padding around its operand that an instruction fills, as views; most fill none."""
    operation = instruction.operation
    if not isinstance(operation, FillPadding):
        return []
    dest = instruction.operand("dest")
    images, height, width, channels = dest.type.shape
    top, left, bottom, right = operation.padding
    around = left + width + right
    strips = {
        "top": ((0, -top, -left, 0), (images, top, around, channels)),
        "bottom": ((0, height, -left, 0), (images, bottom, around, channels)),
        "left": ((0, 0, -left, 0), (images, height, left, channels)),
        "right": ((0, 0, width, 0), (images, height, right, channels)),
    }
    return [
        Buffer(f"{dest.name}.{side}", dest.type.with_shape(shape), BufferKind.VIEW, base=dest, offsets=at)
        for side, (at, shape) in strips.items()
        if 0 not in shape
    ]


def whole_at(program: Program) -> dict[str, int]:
    """Number of the last instruction that writes a buffer, by its name; -1 for inputs and views of them.

    Constants have none.
    """
    written: dict[Buffer, list[tuple[int, Buffer]]] = {}
    for number, instruction in enumerate(program.code):
        for part in written_parts(instruction):
            written.setdefault(part.root, []).append((number, part))
    inputs = set(program.inputs())
    found = {buffer.name: -1 for buffer in program.all_buffers() if buffer.root in inputs}
    for buffer in program.all_buffers():
        numbers = [number for number, part in written.get(buffer.root, ()) if overlap(buffer, part)]
        if numbers:
            found[buffer.name] = max(numbers)
    return found


def changed_after(numbers: Mapping[str, int], names: Iterable[str]) -> dict[int, list[str]]:
    """Names of buffers by the number of the last instruction that writes each, as in `whole_at`.

    Raises KeyError.
    """
    after: dict[int, list[str]] = {}
    for name in names:
        after.setdefault(numbers[name], []).append(name)
    return after


def same_place(one: Buffer, other: Buffer) -> bool:
    """Whether element i of both has the same address, for all i. Strides of axes of size 1 do not count."""
    first, second = one.layout, other.layout
    if one.root is not other.root or first.offset != second.offset:
        return False
    if one.type.shape != other.type.shape:
        return one.type.size == other.type.size and one.is_contiguous and other.is_contiguous
    steps = zip(one.type.shape, first.strides, second.strides, strict=True)
    return all(size == 1 or a == b for size, a, b in steps)

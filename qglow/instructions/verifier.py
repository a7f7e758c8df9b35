"""Rules of the instruction IR; `verify_program` checks a program against all of them."""

from __future__ import annotations

from typing import NoReturn

import numpy as np

from qglow.core.errors import VerificationError
from qglow.core.types import Array, ElementType, TensorType
from qglow.instructions.liveness import intervals, overlap, region, same_place, touched
from qglow.instructions.operation import Access, Operand, TypeErrorInOperation
from qglow.instructions.ops.memory import AllocActivation, DeallocActivation, FillPadding, TensorView
from qglow.instructions.program import NO_PADDING, Buffer, BufferKind, Instruction, Layout, Live, Program


def verify_program(program: Program, where: str) -> None:
    """Raise VerificationError with `where`, the instruction and the rule that it breaks."""
    verifier = _Verifier(program, where)
    verifier.declarations()
    for index, instruction in enumerate(program.code):
        verifier.instruction(index, instruction)
    verifier.end()
    _verify_stacks(program, where)
    _verify_bodies(program, where)
    if program.arena_size is not None:
        _verify_arena(program, program.arena_size, where)


class _Verifier:
    """Walks over the code once, tracking which buffers exist and which elements are written."""

    def __init__(self, program: Program, where: str) -> None:
        self._program = program
        self._where = where
        self._at = "declarations"
        self._names: set[str] = set()
        self._exists: set[Buffer] = set()
        self._freed: set[Buffer] = set()
        self._written: set[Buffer] = set()
        self._masks: dict[Buffer, Array] = {}
        self._state = set(program.state())
        self._inputs = set(program.inputs())

    def fail(self, rule: str) -> NoReturn:
        raise VerificationError(f"{self._where}: %{self._program.name}: {self._at}: {rule}")

    def require(self, condition: bool, rule: str, *named: object) -> None:
        """Fail with `rule`, its braces filled by `named`, unless `condition`.

        Braces are filled only on failure, because types take long to print.
        """
        if not condition:
            self.fail(rule.format(*named))

    def declarations(self) -> None:
        """Check constants and placeholders: kinds, unique names, dense layout, data that fits."""
        for buffer in self._program.constants:
            self.require(buffer.kind is BufferKind.CONSTANT, "{} is no constant", buffer)
            self._constant_data(buffer)
        for buffer in self._program.placeholders:
            self.require(buffer.kind is BufferKind.PLACEHOLDER, "{} is no placeholder", buffer)
        for buffer in [*self._program.constants, *self._program.placeholders]:
            self._new_name(buffer.name)
            self.require(buffer.base is None and buffer.padding == NO_PADDING, "{} is not dense", buffer)
            self._exists.add(buffer)
        self._written.update(self._program.constants, self._inputs, self._state)

    def _constant_data(self, buffer: Buffer) -> None:
        if buffer.data is None:
            return
        fits = buffer.data.shape == buffer.type.shape and buffer.data.dtype == buffer.type.element.dtype
        self.require(fits, "data of {} is {}{}", buffer, buffer.data.dtype, list(buffer.data.shape))

    def _new_name(self, name: str) -> None:
        self.require(name not in self._names, "the name %{} is taken", name)
        self._names.add(name)

    def instruction(self, index: int, instruction: Instruction) -> None:
        """Check all rules of one instruction, then note its effect."""
        self._at = f"instruction {index} %{instruction.name} ({instruction.operation.opcode})"
        self._new_name(instruction.name)
        self._operands(instruction)
        for live in instruction.live:
            self._live(instruction, live)
        if instruction.summed is not None:
            self._number(instruction.summed)
        try:
            instruction.verify_types()
        except TypeErrorInOperation as error:
            self.fail(str(error))
        if instruction.operation.touches_memory:
            self._access(instruction)
        elif isinstance(instruction.operation, AllocActivation):
            self._allocate(instruction)
        elif isinstance(instruction.operation, DeallocActivation):
            self._deallocate(instruction)
        else:
            self._view(instruction)

    def _operands(self, instruction: Instruction) -> None:
        signature = instruction.operation.signature
        self.require(len(signature) == len(instruction.buffers), "{} operands are needed", len(signature))
        if None in instruction.buffers:
            for spec, buffer in zip(signature, instruction.buffers, strict=True):
                self.require(buffer is not None or spec.optional, "operand {} is missing", spec.name)

    def _live(self, instruction: Instruction, live: Live) -> None:
        self._number(live.count)
        self.require(min(live.extent, live.inner) > 0, "live places are {}", [live.extent, live.inner])
        for buffer in instruction.writes()[:1]:
            whole = buffer.type.size % live.period == 0
            self.require(whole, "{} has no places of {} elements", buffer, live.period)

    def _number(self, count: Buffer) -> None:
        fits = count in self._inputs and count.type == TensorType(ElementType.INT64, (1,))
        self.require(fits, "{} is no number of live places", count)

    def _declared_buffer(self, instruction: Instruction, kind: BufferKind) -> Buffer:
        buffer = instruction.operand("dest")
        self.require(buffer.kind is kind, "{} is not of kind {}", buffer, kind.value)
        self.require(buffer.name == instruction.name, "it makes %{} under another name", buffer.name)
        self.require(buffer not in self._exists and buffer not in self._freed, "{} exists already", buffer)
        return buffer

    def _allocate(self, instruction: Instruction) -> None:
        buffer = self._declared_buffer(instruction, BufferKind.ACTIVATION)
        self.require(buffer.base is None, "{} has a base", buffer)
        padded = buffer.padding != NO_PADDING
        self.require(not padded or len(buffer.type.shape) == 4, "{} has padding but not four axes", buffer)
        self.require(min(buffer.padding) >= 0, "{} has negative padding", buffer)
        self._exists.add(buffer)

    def _deallocate(self, instruction: Instruction) -> None:
        buffer = instruction.operand("src")
        self.require(buffer.kind is BufferKind.ACTIVATION, "{} is no activation", buffer)
        self._require_existence(buffer)
        self._freed.add(buffer)

    def _view(self, instruction: Instruction) -> None:
        view, base = self._declared_buffer(instruction, BufferKind.VIEW), instruction.operand("src")
        operation = instruction.operation
        assert isinstance(operation, TensorView)
        self.require(view.base is base, "{} has another base than %{}", view, base.name)
        self.require(view.offsets == operation.offsets, "{} has other offsets than its instruction", view)
        self._require_existence(base)
        sound = bool(view.offsets) or base.is_contiguous
        self.require(sound, "%{} is not contiguous and has no reshape", base.name)
        self._exists.add(view)

    def _require_existence(self, buffer: Buffer) -> None:
        root = buffer.root
        if buffer in self._exists and root in self._exists and root not in self._freed:
            return
        self.require(buffer in self._exists, "{} is used before it is allocated", buffer)
        self.require(buffer.root in self._exists, "{} is a view of what is not allocated", buffer)
        self.require(buffer.root not in self._freed, "{} is used after its deallocation", buffer)

    def _access(self, instruction: Instruction) -> None:
        operands = instruction.operands()
        for spec, buffer in operands:
            self._require_existence(buffer)
            self._layout(instruction, spec, buffer)
            if spec.access is Access.IN:
                self.require(self._is_written(buffer), "{} is read before it is written", buffer)
            else:
                self.require(buffer.root.kind is not BufferKind.CONSTANT, "constant {} is written", buffer)
        if len({buffer.root for _, buffer in operands}) < len(operands):
            for spec, buffer in operands:
                if spec.access is not Access.IN:
                    self._aliases(instruction, spec, buffer)
        for spec, buffer in operands:
            if spec.access is not Access.IN:
                self._write(instruction, spec, buffer)

    def _layout(self, instruction: Instruction, spec: Operand, buffer: Buffer) -> None:
        self.require(
            spec.strided or buffer.is_contiguous, "operand {}, {}, is not contiguous", spec.name, buffer
        )
        if buffer.base is not None:
            strides, shape = buffer.layout.strides, buffer.type.shape
            inner = not shape or shape[-1] == 1 or strides[-1] == 1
            self.require(inner, "the last axis of {} is not contiguous", buffer)
        operation = instruction.operation
        if isinstance(operation, FillPadding):
            whole = buffer.layout == Layout.dense(buffer.type.shape, operation.padding)
            self.require(whole, "{} does not have the padding {}", buffer, operation.padding)
        if operation.state_slots and spec.access is Access.INOUT:
            self.require(buffer.kind is BufferKind.PLACEHOLDER, "state {} is no placeholder", buffer)

    def _aliases(self, instruction: Instruction, spec: Operand, buffer: Buffer) -> None:
        written = touched(instruction, spec, buffer)
        for other_spec, other in instruction.operands():
            if other_spec == spec or not overlap(written, other):
                continue
            paired = (spec.name, other_spec.name) in instruction.operation.in_place
            in_place = paired and same_place(buffer, other)
            self.require(in_place, "operands {} and {} may not share memory", spec.name, other_spec.name)

    def _is_written(self, buffer: Buffer) -> bool:
        root = buffer.root
        if root in self._written:
            return True
        if root not in self._masks:
            return buffer.type.size == 0
        return bool(region(self._masks[root], buffer.layout, buffer.type.shape).all())

    def _write(self, instruction: Instruction, spec: Operand, buffer: Buffer) -> None:
        if spec.access is Access.SCRATCH:
            self._written.discard(buffer.root)
            self._masks.pop(buffer.root, None)
        if spec.access is Access.SCRATCH or buffer.root in self._written:
            return
        layout, shape = buffer.layout, buffer.type.shape
        if spec.access is Access.INOUT:
            part = instruction.operation.updated_slice(instruction.types)
            if part is None:
                self.require(self._is_written(buffer), "{} is updated before it is written", buffer)
                return
            offsets, shape = part
            start = layout.offset + sum(o * s for o, s in zip(offsets, layout.strides, strict=True))
            layout = Layout(layout.strides, start, layout.span)
        if buffer.base is None and shape == buffer.type.shape:
            self._written.add(buffer)
            return
        mask = self._masks.setdefault(buffer.root, np.zeros(buffer.root.layout.span, np.bool_))
        region(mask, layout, shape)[...] = True

    def end(self) -> None:
        """Check what must hold after the last instruction: activations are freed, outputs written."""
        self._at = "end of the code"
        for buffer in self._exists:
            if buffer.kind is BufferKind.ACTIVATION:
                self.require(buffer in self._freed, "{} is not deallocated", buffer)
        for buffer in self._program.outputs():
            self.require(self._is_written(buffer), "output {} is not written", buffer)


def _verify_stacks(program: Program, where: str) -> None:
    """Check stacks: their instructions are adjacent, of one shape, and all but the first data-parallel.

    The first may have an epilogue instead; then results of one size suffice, and the last may be an operation
    that ends it.
    """
    seen: set[int] = set()
    previous: Instruction | None = None
    has_epilogue, ended = False, None
    for index, instruction in enumerate(program.code):
        stack, at = instruction.stack, f"{where}: %{program.name}: instruction {index} %{instruction.name}"
        continues = previous is not None and stack is not None and previous.stack == stack
        if stack is not None:
            leads = instruction.operation.has_epilogue and not continues
            has_epilogue = leads or (continues and has_epilogue)
            ends = has_epilogue and continues and instruction.operation.ends_epilogue(instruction.types)
            if continues and stack == ended:
                raise VerificationError(f"{at}: stack {stack} goes on behind what ends it")
            ended = stack if ends else ended
            if not leads and not ends and not instruction.operation.data_parallel:
                raise VerificationError(
                    f"{at}: stacked, but {instruction.operation.opcode} is not data-parallel"
                )
            if stack in seen and not continues:
                raise VerificationError(f"{at}: stack {stack} is not in one piece")
            if continues and not ends and not _alike(previous, instruction, has_epilogue):
                raise VerificationError(f"{at}: stack {stack} has several shapes")
            seen.add(stack)
        previous = instruction


def _alike(one: Instruction | None, other: Instruction, has_epilogue: bool) -> bool:
    """Whether results have one shape, or one size where they pass an epilogue."""
    if one is None:
        return True
    first, second = (instruction.operand("dest").type for instruction in (one, other))
    return first.size == second.size if has_epilogue else first.shape == second.shape


def _verify_arena(program: Program, size: int, where: str) -> None:
    """Check that live buffers lie inside the arena and do not overlap."""
    placed = intervals(program)
    for interval in placed:
        buffer, offset = interval.buffer, interval.buffer.arena_offset
        if offset is None:
            raise VerificationError(f"{where}: %{program.name}: {buffer} has no place in the arena")
        if offset < 0 or offset + buffer.byte_size > size:
            raise VerificationError(f"{where}: %{program.name}: {buffer} lies outside of the arena")
    for index, one in enumerate(placed):
        for number in range(index + 1, len(placed)):
            other = placed[number]
            if other.start >= one.end:  # and so do all behind it
                break
            if one.overlaps(other) and _share_bytes(one.buffer, other.buffer):
                raise VerificationError(f"{where}: %{program.name}: {one.buffer} and {other.buffer} overlap")


def _verify_bodies(program: Program, where: str) -> None:
    """Check the programs inside, that no constants have one name, and that scratch memory holds them."""
    names = [buffer.name for buffer in program.all_constants()]
    twice = next((name for name in names if names.count(name) > 1), None) if program.regions() else None
    if twice is not None:
        raise VerificationError(f"{where}: %{program.name}: two constants are called %{twice}")
    for instruction in program.code:
        for name, body in zip(instruction.operation.body_names, instruction.operation.bodies, strict=True):
            at = f"{where}, {name} of %{instruction.name}"
            verify_program(body, at)
            planned = program.arena_size is not None
            if planned and instruction.operand("scratch").type.size < instruction.operation.inside_bytes:
                raise VerificationError(f"{at}: its memory is not in the scratch of the instruction")


def _share_bytes(one: Buffer, other: Buffer) -> bool:
    start, other_start = one.arena_offset or 0, other.arena_offset or 0
    return start < other_start + other.byte_size and other_start < start + one.byte_size

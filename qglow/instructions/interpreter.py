"""Execution of a program in numpy on its planned byte arena: the reference for compiled code.

Every activation is a strided window into one array of bytes, at the offset that the memory plan gave it,
so that a wrong lifetime, offset or view shows as a wrong result. Buffers that compiled code keeps in
registers have bytes of their own. The arena is filled with a pattern before every run, and each buffer's
bytes again when it is allocated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from qglow.core.errors import UsageError
from qglow.core.types import Array
from qglow.instructions.liveness import unstored
from qglow.instructions.ops.memory import AllocActivation
from qglow.instructions.plan import ALIGNMENT
from qglow.instructions.program import Buffer, BufferKind, Instruction, Layout, Program

POISON = 0x5A
"""Byte that fills memory nobody has written: 1.5e16 as a float, 90 as int8."""

Taps = Callable[[Instruction, dict[str, Array]], None]


class ArenaInterpreter:
    """A program with its arena and state.

    `state` maps the names of state placeholders to their arrays; they start as zeros, keep
    their contents between runs, and may be changed by the caller. Raises UsageError for a
    program without memory plan or without the data of a constant.
    """

    def __init__(self, program: Program, arena: Array | None = None) -> None:
        """arena: its bytes, of the planned size; None takes new ones."""
        if program.arena_size is None:
            raise UsageError(f"program {program.name} has no memory plan; call plan_memory first")
        self._program = program
        self._arena = _aligned_bytes(program.arena_size) if arena is None else arena.view(np.uint8)
        self._memory: dict[Buffer, Array] = {}
        self._held = {buffer: _aligned_bytes(buffer.byte_size) for buffer in unstored(program)}
        for constant in program.constants:
            if constant.data is None:
                raise UsageError(f"program {program.name}: constant %{constant.name} has no data")
            self._memory[constant] = np.ascontiguousarray(constant.data).reshape(-1)
        for placeholder in program.placeholders:
            self._memory[placeholder] = np.zeros(placeholder.type.size, placeholder.type.element.dtype)
        self.state: dict[str, Array] = {b.name: self._array(b) for b in program.state()}

    def run(self, inputs: Mapping[str, Array], taps: Taps | None = None) -> dict[str, Array]:
        """Outputs by placeholder name.

        `taps` is called after each instruction with copies of the buffers that it wrote.
        Raises UsageError if inputs do not fit the placeholders.
        """
        self._arena[:] = POISON
        self._set_inputs(inputs)
        for instruction in self._program.code:
            self._execute(instruction)
            if taps is not None and instruction.operation.touches_memory:
                taps(instruction, {b.name: self._array(b).copy() for b in instruction.writes()})
        return {buffer.name: self._array(buffer).copy() for buffer in self._program.outputs()}

    def run_between(self, inputs: Mapping[str, Array], act: Callable[[int], None]) -> dict[str, Array]:
        """Outputs like `run`; `act` is called with -1 first, and after each instruction with its number.

        It may change the arrays that `window` returns.
        """
        self._arena[:] = POISON
        self._set_inputs(inputs)
        act(-1)
        for number, instruction in enumerate(self._program.code):
            self._execute(instruction)
            act(number)
        return {buffer.name: self._array(buffer).copy() for buffer in self._program.outputs()}

    def window(self, buffer: Buffer) -> Array:
        """The elements of a buffer, as a view of its memory."""
        return self._array(buffer)

    def activations(self) -> dict[str, Array]:
        """Copies of all activation buffers after the last run, by name.

        Meaningful only for a program that was planned without reuse of memory.
        """
        buffers = (b for b in self._program.all_buffers() if b.root.kind is BufferKind.ACTIVATION)
        return {buffer.name: self._array(buffer).copy() for buffer in buffers}

    def _set_inputs(self, inputs: Mapping[str, Array]) -> None:
        wanted = {buffer.name: buffer for buffer in self._program.inputs()}
        if set(inputs) != set(wanted):
            raise UsageError(f"inputs are {', '.join(wanted) or 'none'}, not {', '.join(inputs) or 'none'}")
        for name, buffer in wanted.items():
            data, kind = np.asarray(inputs[name]), buffer.type
            if data.shape != kind.shape or data.dtype != kind.element.dtype:
                raise UsageError(f"input %{name} is {kind}, not {data.dtype}{list(data.shape)}")
            self._array(buffer)[...] = data
        for buffer in self._program.outputs():
            self._memory[buffer].view(np.uint8)[:] = POISON

    def _execute(self, instruction: Instruction) -> None:
        operation = instruction.operation
        if isinstance(operation, AllocActivation):
            self._bytes(instruction.operand("dest"))[:] = POISON
        if not operation.touches_memory:
            return
        window = self._padded if operation.sees_padding else self._array
        arrays = {spec.name: window(buffer) for spec, buffer in instruction.operands()}
        with np.errstate(all="ignore"):
            operation.execute(arrays, instruction.types)

    def _bytes(self, buffer: Buffer) -> Array:
        if buffer in self._held:
            return self._held[buffer]
        start = buffer.arena_offset
        if start is None:
            raise UsageError(f"%{buffer.name} has no place in the arena; call plan_memory again")
        return self._arena[start : start + buffer.byte_size]

    def _elements(self, buffer: Buffer) -> Array:
        """The root's memory as one row of elements."""
        root = buffer.root
        if root.kind is BufferKind.ACTIVATION:
            return self._bytes(root).view(root.type.element.dtype)
        return self._memory[root]

    def _array(self, buffer: Buffer) -> Array:
        return _window(self._elements(buffer), buffer.layout, buffer.type.shape)

    def _padded(self, buffer: Buffer) -> Array:
        """The buffer with its root's padding around it."""
        top, left, bottom, right = buffer.root.padding
        if not any(buffer.root.padding):
            return self._array(buffer)
        batch, height, width, channels = buffer.type.shape
        shape = (batch, height + top + bottom, width + left + right, channels)
        inner = buffer.layout
        start = inner.offset - top * inner.strides[1] - left * inner.strides[2]
        return _window(self._elements(buffer), Layout(inner.strides, start, inner.span), shape)


def _window(elements: Array, layout: Layout, shape: tuple[int, ...]) -> Array:
    """The elements that a layout selects, as a view. Raises ValueError if it leaves the buffer."""
    strides = tuple(stride * elements.itemsize for stride in layout.strides)
    held = elements.view(np.uint8).data  # Python's buffers have no bfloat16
    return np.ndarray(shape, elements.dtype, held, layout.offset * elements.itemsize, strides)


def _aligned_bytes(size: int) -> Array:
    room = np.zeros(size + ALIGNMENT, np.uint8)
    start = -room.ctypes.data % ALIGNMENT
    return room[start : start + size]

"""Building programs: buffers, views and instructions with unique names."""

from __future__ import annotations

from qglow.core.types import Array, ElementType, Quantization, Shape, TensorType
from qglow.instructions.operation import Operation
from qglow.instructions.ops.memory import AllocActivation, DeallocActivation, TensorView
from qglow.instructions.program import NO_PADDING, Buffer, BufferKind, Instruction, Padding, Program


class ProgramBuilder:
    """Appends to a program. A wanted name that is taken gets a number.

    Activations are allocated where `activation` is called; `finish` deallocates them all at the end, and
    passes move allocations and deallocations to where they belong.
    """

    def __init__(self, name: str) -> None:
        self.program = Program(name)
        self._taken: set[str] = set()
        self._live: dict[Buffer, None] = {}

    def constant(self, name: str, data: Array, quantization: Quantization | None = None) -> Buffer:
        """A constant buffer over `data`."""
        kind = TensorType(ElementType.of(data.dtype), tuple(int(d) for d in data.shape), quantization)
        buffer = Buffer(self.unique(name), kind, BufferKind.CONSTANT, data)
        self.program.constants.append(buffer)
        return buffer

    def placeholder(self, name: str, kind: TensorType) -> Buffer:
        """An input, output or state of the program."""
        buffer = Buffer(self.unique(name), kind, BufferKind.PLACEHOLDER)
        self.program.placeholders.append(buffer)
        return buffer

    def activation(self, name: str, kind: TensorType, padding: Padding = NO_PADDING) -> Buffer:
        """An activation buffer, allocated here."""
        buffer = Buffer(self.unique(name), kind, BufferKind.ACTIVATION, padding=padding)
        self._append(buffer.name, AllocActivation(), (buffer,))
        self._live[buffer] = None
        return buffer

    def view(self, name: str, base: Buffer, kind: TensorType, offsets: Shape = ()) -> Buffer:
        """A slice of `base` that starts at `offsets`, or a reshape of it without offsets."""
        buffer = Buffer(self.unique(name), kind, BufferKind.VIEW, base=base, offsets=offsets)
        self._append(buffer.name, TensorView(offsets), (buffer, base))
        return buffer

    def emit(
        self, name: str, operation: Operation, *buffers: Buffer | None, origin: tuple[str, ...] = ()
    ) -> Instruction:
        """Append an instruction; `buffers` are in the order of its signature."""
        return self._append(self.unique(name), operation, buffers, origin)

    def deallocate(self, buffer: Buffer) -> None:
        """Deallocate an activation here."""
        del self._live[buffer]
        self._append(self.unique(f"dealloc_{buffer.name}"), DeallocActivation(), (buffer,))

    def finish(self) -> Program:
        """Deallocate what is still allocated, and return the program."""
        for buffer in list(self._live):
            self.deallocate(buffer)
        return self.program

    def unique(self, wanted: str) -> str:
        """`wanted`, or `wanted` with a number if it is taken; taken from now on."""
        name, count = wanted, 0
        while name in self._taken:
            count += 1
            name = f"{wanted}__{count}"
        self._taken.add(name)
        return name

    def _append(
        self,
        name: str,
        operation: Operation,
        buffers: tuple[Buffer | None, ...],
        origin: tuple[str, ...] = (),
    ) -> Instruction:
        instruction = Instruction(name, operation, buffers, origin=origin)
        self.program.code.append(instruction)
        return instruction

"""Places of the operands of a program's calls: constants in the weights, placeholders, and the arena."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from qglow.codegen.calls import Call
from qglow.codegen.slots import CallSlots
from qglow.codegen.weights import WeightBlob
from qglow.core.errors import InternalError
from qglow.instructions.program import Buffer, BufferKind
from qglow.kernels.emit.builder import PTR, Value
from qglow.kernels.emit.emitter import Emitter
from qglow.kernels.emit.operand import to_physical


def with_bodies(calls: Sequence[Call]) -> Iterator[Call]:
    """Calls, each followed by those of the programs inside of it."""
    for call in calls:
        yield call
        for body in call.bodies:
            yield from with_bodies(body)


@dataclass(frozen=True)
class Roots:
    """Base addresses of operands, from the arguments of an entry or of a body.

    host_at: number of the first of the two pointers in the table by which the host is called.
    """

    e: Emitter
    arena: Value
    weights: Value
    table: Value
    host_at: int
    pointers: dict[int, Value] = field(default_factory=dict)

    def pointer(self, number: int) -> Value:
        """The pointer of this number in the table, loaded once in each function that needs it."""
        if number not in self.pointers:
            with self.e.at_entry():
                place = self.e.target.pointer_bytes * number
                self.pointers[number] = self.e.load(self.e.offset(self.table, place), PTR)
        return self.pointers[number]


class OperandPlaces:
    """Places of all operands of a program's calls.

    placeholders: buffers in the order of the pointer table. blob: takes the constants. bias: what the target
    adds to int8.
    """

    def __init__(
        self, calls: Sequence[Call], placeholders: Sequence[Buffer], blob: WeightBlob, bias: int
    ) -> None:
        self._blob, self._bias = blob, bias
        self._constants: dict[Buffer, int] = {}
        self._packed: dict[Call, list[int]] = {}
        self._numbers = {buffer: number for number, buffer in enumerate(placeholders)}
        self._number_inside(calls)
        self._place_constants(calls)

    def _number_inside(self, calls: Sequence[Call]) -> None:
        """Number the placeholders of programs inside of instructions, each in a table of its own."""
        for call in calls:
            for body, inner in zip(call.group[0].operation.bodies, call.bodies, strict=True):
                self._numbers |= {buffer: number for number, buffer in enumerate(body.placeholders)}
                self._number_inside(inner)

    def _place_constants(self, calls: Sequence[Call]) -> None:
        """Assign offsets to all constants, in the order of their first use."""
        for call in with_bodies(calls):
            for buffer in call.buffers:
                if buffer.root.kind is BufferKind.CONSTANT:
                    self._constant(buffer.root)
            self._packed[call] = [self._blob.add(array) for array in call.arrays]

    def offsets(self) -> tuple[list[int], list[list[int]]]:
        """Offsets of the constants that are read as they are, and of those packed for each call."""
        return list(self._constants.values()), list(self._packed.values())

    def slots(self, call: Call) -> CallSlots:
        """Slots of the constants of a call."""
        return CallSlots.of(call, self._packed, self._constants)

    def packed(self, call: Call) -> list[int]:
        """Offsets of a call's packed constants in the weights."""
        return self._packed[call]

    def address(self, e: Emitter, roots: Roots, buffer: Buffer) -> Value:
        """The address of element (0, ..., 0)."""
        kind, number, offset = self.place(buffer)
        if kind is BufferKind.PLACEHOLDER:
            return e.offset(roots.pointer(number), offset)
        return e.offset(roots.weights if kind is BufferKind.CONSTANT else roots.arena, offset)

    def place(self, buffer: Buffer) -> tuple[BufferKind, int, int]:
        """Place of element (0, ..., 0): kind of memory, number of the placeholder, offset in bytes.

        Raises InternalError if memory is not planned.
        """
        root = buffer.root
        start = buffer.layout.offset * buffer.type.element.size
        if root.kind is BufferKind.PLACEHOLDER:
            return root.kind, self._numbers[root], start
        if root.kind is BufferKind.CONSTANT:
            return root.kind, 0, self._constant(root) + start
        if root.arena_offset is None:
            raise InternalError(f"%{root.name} has no place in the arena; memory is not planned")
        return BufferKind.ACTIVATION, 0, root.arena_offset + start

    def _constant(self, buffer: Buffer) -> int:
        if buffer not in self._constants:
            if buffer.data is None:
                raise InternalError(f"constant %{buffer.name} has no data")
            self._constants[buffer] = self._blob.add(to_physical(buffer.data, buffer.type, self._bias))
        return self._constants[buffer]

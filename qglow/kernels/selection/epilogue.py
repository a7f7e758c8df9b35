"""Epilogues: operations on a product's results while they are in registers, before they are stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from qglow.core.errors import InternalError
from qglow.core.types import Array
from qglow.instructions.operation import Operation
from qglow.instructions.program import Instruction
from qglow.kernels.elementwise.elementwise import Elementwise, Member, is_chain
from qglow.kernels.elementwise.expressions import EXPRESSIONS, Point
from qglow.kernels.emit.builder import I64, Value, scalar, vec
from qglow.kernels.emit.emitter import Emitter
from qglow.kernels.emit.kernel import Epilogue, Kernel, MeanSink, Part, Site, kernel
from qglow.kernels.emit.operand import Memory
from qglow.kernels.emit.prefetch import fetch_early
from qglow.kernels.emit.target import VectorTarget


@kernel
@dataclass(frozen=True)
class InEpilogue(Kernel):
    """A data-parallel instruction without a loop of its own.

    The first kernel of its stack applies it to results in registers before it stores them.
    """

    name: ClassVar[str] = "epilogue"

    def constants(self, instruction: Instruction, target: VectorTarget) -> dict[str, Array]:
        """Constants of the kernel with a loop of its own."""
        return Elementwise().constants(instruction, target)

    def compared(self, operation: Operation, memory: Memory) -> Memory:
        """Return the operand as the kernel with a loop of its own compares it."""
        return Elementwise().compared(operation, memory)

    def reads_parameters(self, instruction: Instruction, target: VectorTarget) -> bool:
        """Whether the kernel with a loop of its own reads them."""
        return Elementwise().reads_parameters(instruction, target)

    def decided(self, operation: Operation, memories: Mapping[str, Memory]) -> tuple[object, ...]:
        """Facts that the kernel with a loop of its own depends on."""
        return Elementwise().decided(operation, memories)

    def cost(self, instruction: Instruction, target: VectorTarget) -> float:
        """Cost of the kernel with a loop of its own: the arithmetic is the same."""
        return Elementwise().cost(instruction, target)

    def emit(self, site: Site) -> None:
        """Raise InternalError: the first kernel of the stack emits its code."""
        raise InternalError(f"{site.instruction.name} has no loop of its own")


@dataclass(frozen=True)
class StackEpilogue(Epilogue):
    """Application of a stack's `members` in turn to results, before these are stored or go to a `mean_sink`.

    `result` is the place (number of a value, as in `Member.places`) of the results, `start` the address of
    the first one of all. Other operands have the strides of the results, in elements, and start at `starts`,
    by place.
    """

    members: tuple[Member, ...]
    result: int
    start: Value
    starts: Mapping[int, Value]
    mean_sink: MeanSink | None = None

    @property
    def element_bytes(self) -> int:
        """Bytes of an element of the last member's result; of int8 without members."""
        return self.members[-1].memories["dest"].element_bytes if self.members else 1

    def fetch(self, e: Emitter, pointer: Value, count: int) -> None:
        """Emit prefetches of operands beside the results."""
        for place in self.starts:
            memory = self._memory(place)
            lines = -(-count * memory.element_bytes // e.target.model.line_bytes)
            fetch_early(e, self._place_of(e, place, memory, pointer), 0, lines, first_level=True)

    def apply(self, e: Emitter, results: Value, parts: Sequence[Part]) -> Value:
        """Apply all members in turn to values that stay in registers."""
        lanes = results.type.count
        beside_function = any(is_chain(member.operation) for member in self.members)
        held = {self.result: results}
        for member in self.members:
            values = {}
            for name, place in member.places.items():
                if name == "dest":
                    continue
                if place not in held:
                    held[place] = self._load(e, place, member.memories[name], lanes, parts)
                values[name] = held[place]
            described = (member.memories, values, member.tables, lanes, member.proven, beside_function)
            point = Point(e, member.operation, *described)
            held[member.places["dest"]] = EXPRESSIONS[type(member.operation)](point)
        return held[self.members[-1].places["dest"]] if self.members else results

    def _load(self, e: Emitter, place: int, memory: Memory, lanes: int, parts: Sequence[Part]) -> Value:
        """Load the elements of an operand at the positions of the results; other lanes are 0."""
        loaded = scalar(vec(memory.element, lanes), 0)
        for part in parts:
            pointer = self._place_of(e, place, memory, part.pointer)
            loaded = _load_part(e, loaded, part, pointer, memory.element_bytes)
        return loaded

    def _place_of(self, e: Emitter, place: int, memory: Memory, pointer: Value) -> Value:
        """Address of the elements of an operand that belong to the results at an address."""
        stored = self.element_bytes
        moved = e.b.sub(e.b.ptrtoint(pointer, I64), e.b.ptrtoint(self.start, I64))
        if memory.element_bytes != stored:
            moved = e.scaled(e.b.sdiv(moved, e.index(stored)), memory.element_bytes)
        return e.offset(self.starts[place], moved)

    def _memory(self, place: int) -> Memory:
        """An operand by its place."""
        found = ((m.memories[name], p) for m in self.members for name, p in m.places.items())
        return next(memory for memory, own in found if own == place)


def _load_part(e: Emitter, vector: Value, part: Part, pointer: Value, size: int) -> Value:
    """Replace the lanes of a part in `vector` by elements of `size` bytes, loaded in powers of two."""
    lanes, done = vector.type.count, 0
    while done < part.count:
        piece = 1 << ((part.count - done).bit_length() - 1)
        loaded = e.load(e.offset(pointer, done * size), vec(vector.type.element, piece))
        if piece == lanes:
            return loaded
        wide = e.shuffle(loaded, None, [*range(piece), *[-1] * (lanes - piece)])
        start = part.lane + done
        order = [lanes + i - start if start <= i < start + piece else i for i in range(lanes)]
        vector = e.shuffle(vector, wide, order)
        done += piece
    return vector

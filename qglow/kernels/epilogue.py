"""What happens to int8 results between the registers that a product leaves them in and memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from qglow.core.errors import InternalError
from qglow.core.types import Array
from qglow.instructions.operation import Operation
from qglow.instructions.program import Instruction
from qglow.kernels.builder import I8, I64, Emitter, Value, scalar, vec
from qglow.kernels.elementwise import Elementwise, Member
from qglow.kernels.expressions import EXPRESSIONS, Point
from qglow.kernels.isa import Isa
from qglow.kernels.kernel import Epilogue, Kernel, Part, Pool, Site, kernel
from qglow.kernels.operand import Memory


@kernel
@dataclass(frozen=True)
class InEpilogue(Kernel):
    """A data-parallel instruction without a loop: the first of its stack applies it before it stores."""

    name: ClassVar[str] = "epilogue"

    def constants(self, instruction: Instruction, isa: Isa) -> dict[str, Array]:
        """Those of a loop of its own."""
        return Elementwise().constants(instruction, isa)

    def compared(self, operation: Operation, memory: Memory) -> Memory:
        """As in a loop of its own."""
        return Elementwise().compared(operation, memory)

    def cost(self, instruction: Instruction, isa: Isa) -> float:
        """As in a loop of its own: the arithmetic is the same."""
        return Elementwise().cost(instruction, isa)

    def emit(self, site: Site) -> None:
        """Nothing is emitted for it alone."""
        raise InternalError(f"{site.instruction.name} has no loop of its own")


@dataclass(frozen=True)
class StackEpilogue(Epilogue):
    """`members` work in turn on results, whose place is `result` in the first of them, before a `pool`.

    `start` is the address of the first result of all. Other operands have the strides of the results, and
    start at `starts`, by place.
    """

    members: tuple[Member, ...]
    result: int
    start: Value
    starts: Mapping[int, Value]
    pool: Pool | None = None

    def apply(self, e: Emitter, results: Value, parts: Sequence[Part]) -> Value:
        """All members in turn, on values that stay in registers."""
        lanes = results.type.count
        held = {self.result: results}
        for member in self.members:
            values = {}
            for name, place in member.places.items():
                if name == "dest":
                    continue
                if place not in held:
                    held[place] = self._load(e, place, lanes, parts)
                values[name] = held[place]
            point = Point(e, member.operation, member.memories, values, member.tables, lanes, member.proven)
            held[member.places["dest"]] = EXPRESSIONS[type(member.operation)](point)
        return held[self.members[-1].places["dest"]] if self.members else results

    def _load(self, e: Emitter, place: int, lanes: int, parts: Sequence[Part]) -> Value:
        """The elements of an operand that belong to the results; 0 in other lanes."""
        loaded = scalar(vec(I8, lanes), 0)
        for part in parts:
            moved = e.b.sub(e.b.ptrtoint(part.pointer, I64), e.b.ptrtoint(self.start, I64))
            loaded = _load_part(e, loaded, part, e.offset(self.starts[place], moved))
        return loaded


def _load_part(e: Emitter, vector: Value, part: Part, pointer: Value) -> Value:
    """`vector` with the lanes of a part from another address, in loads of powers of two."""
    lanes, done = vector.type.count, 0
    while done < part.count:
        piece = 1 << ((part.count - done).bit_length() - 1)
        loaded = e.load(e.offset(pointer, done), vec(I8, piece))
        if piece == lanes:
            return loaded
        wide = e.shuffle(loaded, None, [*range(piece), *[-1] * (lanes - piece)])
        start = part.lane + done
        order = [lanes + i - start if start <= i < start + piece else i for i in range(lanes)]
        vector = e.shuffle(vector, wide, order)
        done += piece
    return vector

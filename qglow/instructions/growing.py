"""States that grow are written in place: new places join those that a placeholder has already."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from qglow.instructions.ops.memory import AllocActivation, DeallocActivation
from qglow.instructions.ops.movement import Gather, Insert, InsertAt
from qglow.instructions.program import Buffer, BufferKind, Instruction, Program


def grow_in_place(program: Program, states: Iterable[tuple[str, str, int]]) -> None:
    """Write into a state what is joined to it, where a copy of both was gathered by live places before.

    states: an input, the output that continues it, and the axis along which places are joined. The input
    takes the type of the output, whose memory it becomes; the vector of gathered places becomes one number,
    the first new place. Live elements are those of the gathered copy. A state whose instructions are others
    stays as it is.
    """
    users: dict[Buffer, list[Instruction]] = {}
    for instruction in program.code:
        for buffer, _ in instruction.accesses():
            users.setdefault(buffer, []).append(instruction)
    placeholders = {buffer.name: buffer for buffer in program.placeholders}
    for taken, given, axis in states:
        found = _Joined.find(placeholders[taken], placeholders[given], axis, users)
        if found is not None:
            found.rewrite(program)


@dataclass(frozen=True, eq=False)
class _Joined:
    """The instructions that join new places to a state."""

    state: Buffer
    result: Buffer
    gather: Instruction
    last: Instruction
    removed: tuple[Instruction, ...]

    @staticmethod
    def find(
        state: Buffer, result: Buffer, axis: int, users: Mapping[Buffer, list[Instruction]]
    ) -> _Joined | None:
        """Find them; None where they are others, or where bytes in memory are not those of the type."""
        if state.type.is_quantized or state not in users or result not in users:
            return None
        gathers = [i for i in users[result] if i.operation == Gather(axis) and i.operand("dest") is result]
        if len(gathers) != 1 or len(users[state]) != 1:
            return None
        (gather,) = gathers
        joined, places = gather.operand("src"), gather.operand("indices")
        inserts = [i for i in users[joined] if isinstance(i.operation, Insert)]
        others = [i for i in users[joined] if i is not gather and i not in inserts]
        declared = all(isinstance(i.operation, AllocActivation | DeallocActivation) for i in others)
        if len(inserts) != 2 or not declared or users[places] != [gather]:
            return None
        if places.kind is not BufferKind.PLACEHOLDER or joined.type.shape != result.type.shape:
            return None
        first, last = inserts
        start = tuple(state.type.shape[axis] if a == axis else 0 for a in range(len(state.type.shape)))
        if first.operation != Insert((0,) * len(start)) or last.operation != Insert(start):
            return None
        if first.operand("src") is not state or joined.root is not joined:
            return None
        return _Joined(state, result, gather, last, (first, last, *others))

    def rewrite(self, program: Program) -> None:
        """Write new places into the output's memory, which takes the place of the input."""
        places, operation = self.gather.operand("indices"), self.gather.operation
        assert isinstance(operation, Gather)
        places.type = replace(places.type, shape=(1,))
        self.result.name = self.state.name
        program.placeholders[:] = [
            self.result if buffer is self.state else buffer
            for buffer in program.placeholders
            if buffer is not self.result
        ]
        written = Instruction(
            self.last.name,
            InsertAt(operation.axis),
            (self.result, self.last.operand("src"), places),
            origin=self.gather.origin,
        )
        removed = {id(instruction) for instruction in self.removed}
        program.code[:] = [
            written if instruction is self.gather else instruction
            for instruction in program.code
            if id(instruction) not in removed
        ]

"""Inputs of programs whose numbers may be missing, as NaN: the program puts others in their places."""

from __future__ import annotations

from qglow.instructions.ops.logic import Compare
from qglow.instructions.ops.memory import Copy
from qglow.instructions.ops.movement import Broadcast, Extract, Gather, Insert, InsertAt, Transpose
from qglow.instructions.program import Buffer, Program

_EQUALITIES = ("equal", "not-equal")
_MOVING = (Broadcast, Copy, Extract, Gather, Insert, InsertAt, Transpose)


def missing_inputs(program: Program) -> frozenset[str]:
    """Names of inputs that the program compares with themselves, which tells NaN from numbers.

    What only moves elements may lie between.
    """
    sources: dict[Buffer, frozenset[str]] = {buffer: frozenset((buffer.name,)) for buffer in program.inputs()}
    found: frozenset[str] = frozenset()
    for instruction in program.code:
        operation = instruction.operation
        if isinstance(operation, Compare):
            own, other = instruction.operand("lhs"), instruction.operand("rhs")
            if operation.relation in _EQUALITIES and own is other:
                found |= sources.get(own.root, frozenset())
        elif isinstance(operation, _MOVING):
            read, written = (
                [buffer.root for slot in slots if (buffer := instruction.buffers[slot]) is not None]
                for slots in (operation.read_slots, operation.written_slots)
            )
            reached = frozenset[str]().union(*(sources.get(root, frozenset()) for root in read))
            sources.update((root, sources.get(root, frozenset()) | reached) for root in written)
    return found

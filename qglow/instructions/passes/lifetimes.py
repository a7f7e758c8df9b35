"""Shorter lifetimes: allocations move down to the first use, deallocations up to the last."""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass
from typing import ClassVar

from qglow.core.ordered import Ordered
from qglow.core.passes import Pass, PassLog
from qglow.instructions.ops.memory import AllocActivation, DeallocActivation, TensorView
from qglow.instructions.program import Buffer, Instruction, Program


@dataclass(frozen=True)
class SinkAllocations(Pass[Program]):
    """Move every allocation and tensorview right before the first instruction that needs it."""

    name: ClassVar[str] = "sink-allocations"

    def run(self, ir: Program, log: PassLog) -> None:
        """Visit declarations from the last to the first, so that views have moved before their bases."""
        order, readers = Ordered(ir.code), _readers(ir)
        for instruction in reversed(ir.code):
            if log.exhausted or not _declares(instruction):
                continue
            found = readers.get(instruction.buffers[0], [])
            first = min(found, key=order.place, default=None)
            if first is None:
                continue
            distance = _distance_over_others(order, instruction, first)
            if distance:
                order.remove(instruction)
                order.insert_before(first, instruction)
                log.applied(f"%{instruction.name}", f"moved down by {distance}")
        ir.code[:] = order


def _readers(program: Program) -> dict[Buffer | None, list[Instruction]]:
    """Instructions that use each buffer after its declaration: all its views, and the first other use."""
    readers: dict[Buffer | None, list[Instruction]] = {}
    known: set[Buffer] = set()
    for instruction in program.code:
        declares = _declares(instruction)
        for buffer in instruction.buffers[1:] if declares else instruction.buffers:
            if buffer is not None and (declares or buffer not in known):
                readers.setdefault(buffer, []).append(instruction)
                if not declares:
                    known.add(buffer)
    return readers


def _distance_over_others(order: Ordered[Instruction], start: Instruction, end: Instruction) -> int:
    """Number of instructions between two; 0 if all of them are declarations."""
    distance, others = 0, False
    between = order.next(start)
    while between is not None and between is not end:
        distance, others = distance + 1, others or not _declares(between)
        between = order.next(between)
    return distance if others else 0


def _declares(instruction: Instruction) -> bool:
    return isinstance(instruction.operation, AllocActivation | TensorView)


@dataclass(frozen=True)
class HoistDeallocations(Pass[Program]):
    """Move every deallocation right after the last instruction that needs the memory."""

    name: ClassVar[str] = "hoist-deallocations"

    def run(self, ir: Program, log: PassLog) -> None:
        """Visit the deallocations in order.

        Instructions before a deallocation at its turn have always been before it, so its last use can be
        found in the original order.
        """
        order, moved = Ordered(ir.code), _Moved()
        last: dict[Buffer, tuple[int, Instruction]] = {}
        for number, instruction in enumerate(ir.code):
            if not isinstance(instruction.operation, DeallocActivation):
                last.update((b.root, (number, instruction)) for b in instruction.buffers if b is not None)
                continue
            root = instruction.operand("src")
            place, anchor = last.get(root, (-1, None))
            if not log.exhausted and not _follows(order, instruction, anchor):
                order.remove(instruction)
                order.insert_after(anchor, instruction)
                distance = number - moved.current(place) - 1
                moved.add(number, place)
                log.applied(f"%{instruction.name}", f"moved up by {distance}")
        ir.code[:] = order


class _Moved:
    """Record of instructions moved up, and of the shifts that this causes for those in between."""

    def __init__(self) -> None:
        self._from: list[int] = []
        self._behind: list[int] = []

    def add(self, number: int, behind: int) -> None:
        """Record that an instruction moved from its number to behind another; numbers increase over calls."""
        self._from.append(number)
        insort(self._behind, behind)

    def current(self, number: int) -> int:
        """The current number of an instruction that was not moved."""
        return number + bisect_left(self._behind, number) - bisect_left(self._from, number)


def _follows(order: Ordered[Instruction], instruction: Instruction, anchor: Instruction | None) -> bool:
    """Whether there are only deallocations between `anchor` and an instruction."""
    before = order.previous(instruction)
    while before is not None and before is not anchor:
        if not isinstance(before.operation, DeallocActivation):
            return False
        before = order.previous(before)
    return True

"""Memory of runs that is kept, so that the next one with the same inputs makes anew only what differs.

Contents have numbers: equal numbers mean equal contents, made by the same kernels from the same contents,
constants and changes. Memory is planned without reuse, so that what a run leaves is there at its end.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Hashable, Mapping, Sequence, Set
from dataclasses import dataclass, field

from qglow.core.types import Array
from qglow.instructions.operation import Access
from qglow.instructions.program import Buffer, BufferKind, Instruction

Change = Callable[[Array], None]
_MOST_BYTES = 1 << 28
"""Memory that is kept of all runs of a program together."""
_MOST_NUMBERS = 1 << 18
"""Contents that are told apart; beyond, what memory holds is forgotten."""


@dataclass
class RunMemory:
    """Memory of a run: arena, placeholder tensors, number of the step, and the table of addresses.

    inputs: the mapping that it was filled from. holds: number of the contents by root buffer; of what is not
    listed nothing is known.
    """

    inputs: Mapping[str, Array]
    arena: Array
    tensors: dict[str, Array]
    wanted: Array
    table: ctypes.Array[ctypes.c_void_p]
    holds: dict[Buffer, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Unit:
    """A kernel that runs as a whole, by the root buffers that it reads and writes; constants are left out."""

    group: Sequence[Instruction]
    reads: tuple[Buffer, ...]
    writes: tuple[Buffer, ...]

    @staticmethod
    def of(group: Sequence[Instruction]) -> Unit:
        reads: dict[Buffer, None] = {}
        writes: dict[Buffer, None] = {}
        for buffer, access in (each for instruction in group for each in instruction.accesses()):
            if access in (Access.IN, Access.INOUT) and buffer.root.kind is not BufferKind.CONSTANT:
                reads.setdefault(buffer.root)
            if access in (Access.OUT, Access.INOUT):
                writes.setdefault(buffer.root)
        return Unit(group, tuple(reads), tuple(writes))


@dataclass(frozen=True)
class Changed:
    """A change of the buffer of a name, by its root. Equal changes do the same."""

    name: str
    root: Buffer
    change: Change


class Numbers:
    """A number for each of the contents that there have been, the same for the same facts."""

    def __init__(self) -> None:
        self._known: dict[tuple[Hashable, ...], int] = {}

    def of(self, *facts: Hashable) -> int:
        """The number of contents that these facts decide; never 0, which inputs have."""
        return self._known.setdefault(facts, len(self._known) + 1)

    @property
    def exhausted(self) -> bool:
        """Whether there are so many that they should be forgotten."""
        return len(self._known) > _MOST_NUMBERS


class Course:
    """Contents that a run gives its buffers.

    constants: what tells those of a unit from the program's own, by the number of the unit. after: changes
    by the number of the unit that they follow, -1 for those of inputs.
    """

    def __init__(
        self,
        inputs: Sequence[Buffer],
        units: Sequence[Unit],
        constants: Mapping[int, Hashable],
        after: Mapping[int, Sequence[Changed]],
        numbers: Numbers,
    ) -> None:
        self.final: dict[Buffer, int] = dict.fromkeys(inputs, 0)
        self._units, self._seen = units, list[tuple[int | None, ...]]()
        self._change(after.get(-1, ()), numbers)
        for index, unit in enumerate(units):
            seen = tuple(map(self.final.get, unit.reads))
            self._seen.append(seen)
            made = numbers.of(index, constants.get(index), seen)
            for root in unit.writes:
                self.final[root] = numbers.of(self.final.get(root), made)
            self._change(after.get(index, ()), numbers)

    def _change(self, changes: Sequence[Changed], numbers: Numbers) -> None:
        for each in changes:
            self.final[each.root] = numbers.of(self.final[each.root], each.name, each.change)

    def stale(self, holds: Mapping[Buffer, int]) -> Set[Buffer]:
        """Root buffers that memory with these contents has to get anew, from their first write on.

        Beside those that differ these are buffers that their writers write too, and those whose readers want
        what they held earlier in the run.
        """
        found = {root for root, number in self.final.items() if holds.get(root) != number}
        known = -1
        while len(found) != known:
            known = len(found)
            for unit, seen in zip(self._units, self._seen, strict=True):
                if found.isdisjoint(unit.writes):
                    continue
                found.update(unit.writes)
                pairs = zip(unit.reads, seen, strict=True)
                found.update(root for root, number in pairs if number != self.final.get(root))
        return found


class KeptMemory:
    """Memory of runs with inputs that come again: of the first, as far as that is little enough."""

    def __init__(self) -> None:
        self._kept: list[RunMemory] = []
        self.numbers = Numbers()

    def of(self, inputs: Mapping[str, Array]) -> RunMemory | None:
        """The memory of an earlier run with this very mapping."""
        if self.numbers.exhausted:
            self.numbers = Numbers()
            for memory in self._kept:
                memory.holds = {}
        return next((memory for memory in self._kept if memory.inputs is inputs), None)

    def keep(self, memory: RunMemory) -> None:
        """Keep the memory of a run, if all of them take little enough together."""
        if sum(each.arena.size for each in (*self._kept, memory)) <= _MOST_BYTES:
            self._kept.append(memory)

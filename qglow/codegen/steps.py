"""Steps of a team of threads: calls that they share. Threads wait for one another between steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from qglow.codegen.calls import Call, share_memory
from qglow.instructions.operation import Access
from qglow.instructions.ops.memory import FillPadding
from qglow.instructions.program import Buffer


@dataclass(frozen=True)
class ProgramStep:
    """A step: `alone` is called by one thread, in order, `shared` once for each part.

    `parts` is the most parts that the shared calls are divided into. The thread that takes the first part
    also calls `alone`, or, if `apart`, calls only that: then it is a further part, beside the others.
    """

    alone: tuple[Call, ...]
    shared: tuple[Call, ...] = ()
    parts: int = 1
    apart: bool = False


@dataclass(frozen=True)
class Work:
    """A call, the number of pieces that its work splits into, and the most parts to divide it into."""

    call: Call
    pieces: int
    parts: int

    @staticmethod
    def of(call: Call, pieces: int, part_cycles: float) -> Work:
        """Divide a call into as many parts as are worth the wait."""
        worth = int(call.cost // part_cycles) if part_cycles else pieces
        return Work(call, pieces, max(1, min(pieces, worth)))


def make_steps(work: Sequence[Work], part_cycles: float) -> list[ProgramStep]:
    """Divide calls into steps: neighbours that are not shared form one, and each shared call another.

    A step of a shared call takes in calls right before it that it does not depend on, such as filling the
    border of the image that it writes, or statistics of earlier values.
    """
    steps: list[ProgramStep] = []
    alone: list[Work] = []
    for item in work:
        if item.parts == 1:
            alone.append(item)
            continue
        beside: list[Work] = []
        while alone and all(_independent(alone[-1].call, w.call) for w in [item, *beside]):
            beside.insert(0, alone.pop())
        if alone:
            steps.append(ProgramStep(tuple(w.call for w in alone)))
        steps.append(_shared_step(beside, item, part_cycles))
        alone = []
    return [*steps, ProgramStep(tuple(w.call for w in alone))] if alone else steps


def _shared_step(beside: Sequence[Work], item: Work, part_cycles: float) -> ProgramStep:
    whole = tuple(w.call for w in beside if w.pieces == 1)
    split = tuple(w.call for w in beside if w.pieces > 1)
    apart = bool(whole) and sum(call.cost for call in whole) >= part_cycles
    return ProgramStep(whole, (*split, item.call), item.parts, apart)


def is_worth_a_team(steps: Sequence[ProgramStep], least_cycles: float) -> bool:
    """Whether two threads save at least `least_cycles`, the cost of bringing them together."""
    saved = sum(call.cost / 2 for step in steps for call in step.shared)
    return any(step.shared for step in steps) and saved >= least_cycles


def _independent(left: Call, right: Call) -> bool:
    """Whether two calls may run at the same time: neither writes what the other touches.

    A border may be filled while the inside is written.
    """
    borders = any(isinstance(i.operation, FillPadding) for call in (left, right) for i in call.group)
    for one, writes in _accesses(left):
        for other, writes_too in _accesses(right):
            apart = borders and writes and writes_too and one.root is other.root
            if (writes or writes_too) and not apart and share_memory(one, other):
                return False
    return True


def _accesses(call: Call) -> list[tuple[Buffer, bool]]:
    """Buffers, and whether they are written."""
    return [(b, access is not Access.IN) for i in call.group for b, access in i.accesses()]

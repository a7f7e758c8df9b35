"""What threads of a team do together: calls in steps, between which they wait for one another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from qglow.codegen.calls import Call, share_memory
from qglow.instructions.operation import Access
from qglow.instructions.ops.memory import FillPadding
from qglow.instructions.program import Buffer

PART_CYCLES = 3_000.0
"""The least estimated work of a part. A step costs a thread about 1000 cycles of waiting [measured]."""
TEAM_PARTS = 40
"""Parts of that size that a team has to save for a program to be worth waking it."""


@dataclass(frozen=True)
class Step:
    """`alone` is called by one thread, in order; `shared` for every part.

    `parts` is into how many parts the step may go. Who takes the first one also calls `alone`, which
    is a part of its own, beside the others, where it is `apart`.
    """

    alone: tuple[Call, ...]
    shared: tuple[Call, ...] = ()
    parts: int = 1
    apart: bool = False


@dataclass(frozen=True)
class Work:
    """A call, into how many pieces its work splits, and into how many parts it should go at most."""

    call: Call
    pieces: int
    parts: int

    @staticmethod
    def of(call: Call, pieces: int, part_cycles: float) -> Work:
        """As many parts as are worth the wait."""
        worth = int(call.cost // part_cycles) if part_cycles else pieces
        return Work(call, pieces, max(1, min(pieces, worth)))


def make_steps(work: Sequence[Work], part_cycles: float) -> list[Step]:
    """Neighbours that are not shared go into one step; so does what a shared call does not depend on.

    That is a border that it fills the inside of, or statistics of values before it.
    """
    steps: list[Step] = []
    alone: list[Work] = []
    for item in work:
        if item.parts == 1:
            alone.append(item)
            continue
        beside: list[Work] = []
        while alone and all(_independent(alone[-1].call, w.call) for w in [item, *beside]):
            beside.insert(0, alone.pop())
        if alone:
            steps.append(Step(tuple(w.call for w in alone)))
        steps.append(_shared_step(beside, item, part_cycles))
        alone = []
    return [*steps, Step(tuple(w.call for w in alone))] if alone else steps


def _shared_step(beside: Sequence[Work], item: Work, part_cycles: float) -> Step:
    whole = tuple(w.call for w in beside if w.pieces == 1)
    split = tuple(w.call for w in beside if w.pieces > 1)
    apart = bool(whole) and sum(call.cost for call in whole) >= part_cycles
    return Step(whole, (*split, item.call), item.parts, apart)


def is_worth_a_team(steps: Sequence[Step], part_cycles: float) -> bool:
    """Whether two threads save more than it costs to bring them together."""
    saved = sum(call.cost / 2 for step in steps for call in step.shared)
    return any(step.shared for step in steps) and saved >= TEAM_PARTS * part_cycles


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

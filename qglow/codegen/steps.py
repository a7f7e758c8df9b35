"""What threads of a team do together: calls in steps, between which they wait for one another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from qglow.codegen.calls import Call, share_memory
from qglow.instructions.ops.memory import FillPadding

PART_CYCLES = 6_000.0
"""The least estimated work of a part. A step costs a thread about 1000 cycles of waiting [measured]."""
TEAM_PARTS = 20
"""Parts of that size that a team has to save for a program to be worth waking it."""


@dataclass(frozen=True)
class Step:
    """`alone` is called by whoever takes the first part, in order; then every part of `shared`.

    `parts` is into how many parts `shared` may go.
    """

    alone: tuple[Call, ...]
    shared: Call | None = None
    parts: int = 1


def most_parts(call: Call, units: int, part_cycles: float) -> int:
    """Into how many parts a call of `units` pieces of work may go so that each is worth the wait."""
    return max(1, min(units, int(call.cost // part_cycles) if part_cycles else units))


def make_steps(calls: Sequence[Call], parts: Sequence[int]) -> list[Step]:
    """Neighbours that are not shared go into one step; so do borders with the call that fills the inside."""
    steps: list[Step] = []
    alone: list[Call] = []
    for call, most in zip(calls, parts, strict=True):
        if most == 1:
            alone.append(call)
            continue
        beside = len(alone)
        while beside and _independent(alone[beside - 1], call):
            beside -= 1
        if beside:
            steps.append(Step(tuple(alone[:beside])))
        steps.append(Step(tuple(alone[beside:]), call, most))
        alone = []
    return [*steps, Step(tuple(alone))] if alone else steps


def is_worth_a_team(steps: Sequence[Step], part_cycles: float) -> bool:
    """Whether two threads save more than it costs to bring them together."""
    saved = sum(step.shared.cost / 2 for step in steps if step.shared is not None)
    return any(step.shared for step in steps) and saved >= TEAM_PARTS * part_cycles


def _independent(border: Call, call: Call) -> bool:
    """Whether one call only fills borders that the other does not read."""
    if not all(isinstance(i.operation, FillPadding) for i in border.group):
        return False
    filled = border.buffers[0]
    read = [buffer for i in call.group for buffer in i.reads()]
    written = [buffer for i in call.group for buffer in i.writes() if buffer.root is not filled.root]
    return not any(share_memory(filled, other) for other in [*read, *written])

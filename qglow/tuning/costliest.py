"""Search for the values whose rounding costs the outputs most, among more than can be tried one by one.

Rounding a group of values costs about as much as its members do together, so that a group that costs little
needs no closer look: a search by best first, as in branch and bound, halves the costliest group each time.
Of groups that cost as much the smaller ones come first, or many values that cost a little would use up the
trials before any one is found.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Iterable, Sequence

Group = tuple[str, ...]
Left = Callable[[Group], float]
"""The noise that is left at the outputs where these values are not rounded."""

_LARGEST = 4
"""Largest number of values that are told as one."""
_EXPLAINED = 0.5
"""Share of what a group costs that its halves cost by themselves, below which it is one cause."""


def costliest(
    names: Sequence[str], start: float, left: Left, trials: int, most: int
) -> list[tuple[float, Group]]:
    """Return at most `most` causes with the noise that is left without them, the least first.

    A cause is one value, or a few neighbours where the error of one hides that of the other, such as the
    operand and the result of an activation. names: of values in the order of the graph, so that halves of a
    group belong together. start: the noise where all are rounded. trials: how often `left` may be called.
    What is not reached is left out.
    """
    if not names or trials <= 0:
        return []
    order = itertools.count()
    groups = [(0.0, next(order), tuple(names), left(tuple(names)))]
    trials -= 1
    found: list[tuple[float, Group]] = []
    while groups and len(found) < most:
        _, _, group, rest = heapq.heappop(groups)
        if len(group) == 1:
            found.append((rest, group))
            continue
        if trials < 2:
            continue
        trials -= 2
        middle = len(group) // 2
        halves = {half: left(half) for half in (group[:middle], group[middle:])}
        if len(group) <= _LARGEST and _saved(start, halves.values()) < _EXPLAINED * (start - rest):
            found.append((rest, group))
            continue
        for half, rest in halves.items():
            if rest < start:
                heapq.heappush(groups, ((rest - start) / math.sqrt(len(half)), next(order), half, rest))
    return sorted(found)


def _saved(start: float, rests: Iterable[float]) -> float:
    return sum(max(start - rest, 0.0) for rest in rests)

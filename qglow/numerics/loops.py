"""Rounds of a loop: what decides their number, and which slices and rows each reads and writes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import TypeVar

from qglow.core.types import Array

Item = TypeVar("Item")
_USUAL = 16
"""Rounds of a loop that data ends."""


@dataclass(frozen=True, kw_only=True)
class Rounds:
    """Numbers of the values that a loop carries, scans and collects, and what may end it.

    rounds: the most rounds, None where only data ends the loop. carried: number of values that pass from
    round to round. scanned, collected: an entry for each value that is read or written slice by slice,
    True where the last slice comes first. conditional: whether each round says if there is another one.
    """

    rounds: int | None = None
    carried: int = 0
    scanned: tuple[bool, ...] = ()
    collected: tuple[bool, ...] = ()
    conditional: bool = False

    @property
    def usual_rounds(self) -> int:
        """Rounds that estimates count."""
        return _USUAL if self.rounds is None or self.conditional else self.rounds

    def fault(self, is_open: bool) -> str | None:
        """Reason why these numbers fit no loop. is_open: whether an operand may end the loop."""
        if self.carried < 0 or (self.rounds is not None and self.rounds < 0):
            return "numbers of rounds and of values are not negative"
        if not all(isinstance(entry, bool) for entry in (*self.scanned, *self.collected)):
            return "scanned and collected hold true and false"
        ends_early = is_open or self.conditional or self.rounds is None
        if ends_early and (self.scanned or self.collected):
            return "slices and rows need a stated number of rounds, which nothing else ends"
        if self.rounds is None and not is_open and not self.conditional:
            return "nothing ends the loop"
        return None

    def split(self, values: Sequence[Item]) -> tuple[list[Item], list[Item], list[Item]]:
        """Divide what a loop is given into what it carries, scans and captures."""
        behind = self.carried + len(self.scanned)
        return list(values[: self.carried]), list(values[self.carried : behind]), list(values[behind:])

    def counted(self, limit: Array | None, condition: Array | None) -> Iterator[int]:
        """The numbers of the rounds, as far as limits and the condition before the first one decide them."""
        if condition is not None and not bool(condition):
            return
        ends = [int(end) for end in (limit, self.rounds) if end is not None]
        yield from range(min(ends)) if ends else count()

    def taken(self, number: int) -> list[int]:
        """The place of the slice of each scanned value that a round reads."""
        return [self._place(number, back) for back in self.scanned]

    def given(self, number: int) -> list[int]:
        """The place of the row of each collected value that a round writes."""
        return [self._place(number, back) for back in self.collected]

    def _place(self, number: int, back: bool) -> int:
        return (self.rounds or 0) - 1 - number if back else number

"""Errors that tell what a model needs and qglow lacks, in a few lines however much it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from qglow.core.errors import UnsupportedError
from qglow.core.model_place import ModelPlace

MOST_NAMES = 8
"""Names of further operators that are listed."""


@dataclass(frozen=True)
class Refusal:
    """A node, an input or an output that is not supported.

    where: which one. kind: its operator, or its type with "of" before it. reason: why, and what is supported.
    """

    where: str
    kind: str
    reason: str

    @property
    def cause(self) -> tuple[str, str]:
        """Operator or type, and reason: one remedy helps all refusals that have both."""
        return self.kind, self.reason

    def text(self, count: int) -> str:
        """Return a line for as many refusals of this cause, of which this is the first."""
        where = self.where if count == 1 else f"{self.where} and {count - 1} more"
        return f"{where} {self.kind}: {self.reason}"


def refuse(place: ModelPlace, refusals: Sequence[Refusal]) -> None:
    """Raise UnsupportedError with the causes of all refusals, if there are any: three lines at most."""
    if not refusals:
        return
    causes: dict[tuple[str, str], list[Refusal]] = {}
    for refusal in refusals:
        causes.setdefault(refusal.cause, []).append(refusal)
    lines = [found[0].text(len(found)) for found in causes.values()]
    if len(lines) > 2:
        kinds = list(dict.fromkeys(kind for kind, _ in list(causes)[1:]))
        listed = ", ".join(kinds[:MOST_NAMES]) + (", ..." if len(kinds) > MOST_NAMES else "")
        lines = [lines[0], f"and {len(lines) - 1} other causes: {listed}"]
    count = "one thing" if len(refusals) == 1 else f"{len(refusals)} things"
    raise UnsupportedError(
        f"{place} needs {count} that qglow does not support; see qglow ops for what it does:", details=lines
    )

"""The targets that programs are compiled for, as a table."""

from __future__ import annotations

from collections.abc import Sequence

from qglow.display.blocks import Section, table
from qglow.targets.listing import TargetInfo

_TITLES = ("target", "processor", "features", "runs here", "what it is")


def target_section(targets: Sequence[TargetInfo]) -> Section:
    """A row for every target, in the order given."""
    rows = [(t.name, t.cpu, ", ".join(t.features), _runs(t), t.summary) for t in targets]
    return Section("Targets", (table(_TITLES, rows),))


def _runs(target: TargetInfo) -> str:
    if target.runs_here:
        return "yes, by default" if target.is_default else "yes"
    return f"no: {target.refusal}"

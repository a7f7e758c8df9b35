"""The outcomes of a baseline as a section of a document."""

from __future__ import annotations

from collections import Counter

from qglow.baseline.entries import Measured
from qglow.baseline.verdicts import BaselineReport, Outcome, Verdict
from qglow.display.blocks import Paragraph, Section, byte_count, table

_FIGURES = (
    "baseline>",
    "now>",
    "float>",
    "lost>",
    "won>",
    "int8 nodes>",
    "float nodes>",
    "islands>",
    "bytes>",
)
_TITLES = ("model", "verdict", "metric", *_FIGURES, "because")


def baseline_section(report: BaselineReport) -> Section:
    """The verdict on every entry with its figures, and how many there are of each."""
    rows = [_row(outcome) for outcome in report.outcomes]
    counts = Counter(outcome.verdict for outcome in report.outcomes)
    summary = ", ".join(f"{counts[verdict]} {verdict.value}" for verdict in Verdict if counts[verdict])
    return Section(f"Accuracy against {report.path.name}", (table(_TITLES, rows), Paragraph(f"{summary}.")))


def _row(outcome: Outcome) -> tuple[str, ...]:
    entry, now, before = outcome.entry, outcome.measured, outcome.entry.measured
    head = (entry.name, outcome.verdict.value, entry.metric, "" if before is None else f"{before.value:g}")
    return (*head, *_figures(now), outcome.reason)


def _figures(now: Measured | None) -> tuple[str, ...]:
    if now is None:
        return ("",) * 8
    flips = ("", "") if now.flips is None else (str(now.flips.lost), str(now.flips.won))
    counts = (str(now.int8_nodes), str(now.float_nodes), str(now.islands), byte_count(now.bytes))
    return (f"{now.value:g}", "" if now.reference is None else f"{now.reference:g}", *flips, *counts)

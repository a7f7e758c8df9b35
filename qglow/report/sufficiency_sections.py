"""Sufficiency of calibration data in a document: the verdict, then every value, least settled first."""

from __future__ import annotations

from qglow.display.blocks import Paragraph, Section, significant, table
from qglow.report.sufficiency import ScaleStability, SufficiencyReport


def sufficiency_section(report: SufficiencyReport) -> Section:
    """The scale of every int8 value over nested subsets, relative to that over all samples."""
    note = Paragraph(
        f"Scales by calibration {report.calibration}. Columns with a number: the scale over so many samples, "
        "spread evenly over all, relative to the scale over all. interval: where that lies for 95 % of "
        "resamples of as many samples. settled: the number of samples from which on it stays within "
        f"{100.0 * report.tolerance:g} %."
    )
    titles = ("value", "scale>", *(f"{count}>" for count in report.subsets[:-1]), "interval>", "settled>")
    rows = [_row(value, report) for value in report.ranked()]
    title = f"Sufficiency of {report.subsets[-1]} samples"
    return Section(title, (note, table(titles, rows), Paragraph(report.verdict())))


def _row(value: ScaleStability, report: SufficiencyReport) -> tuple[str, ...]:
    moves = value.moves(report.tolerance)
    return (
        value.value,
        significant(value.scales[-1], 4),
        *(_change(value.change(scale)) for scale in value.scales[:-1]),
        f"{_change(value.change(value.low))} to {_change(value.change(value.high))}",
        "moves" if moves else str(report.subsets[value.settled_at(report.tolerance)]),
    )


def _change(relative: float) -> str:
    return f"{100.0 * relative:+.1f} %"

"""Drift in a document: every value, worst first, and how many are beyond the limits."""

from __future__ import annotations

from qglow.display.blocks import Paragraph, Section, decibels, significant, table
from qglow.report.drift import DriftLimits, DriftReport, ValueDrift

_TITLES = (
    "value",
    "covered>",
    "seen now>",
    "distance>",
    "outside then>",
    "outside now>",
    "SQNR then>",
    "SQNR now>",
    "loss>",
    "regained>",
    "",
)


def drift_section(report: DriftReport, limits: DriftLimits | None = None) -> Section:
    """Figures of every int8 value, those that lose most first."""
    chosen = limits or DriftLimits()
    note = Paragraph(
        f"Ranges by calibration {report.calibration}. distance: Wasserstein-1 between the histograms, "
        "relative to the range that int8 covers. outside: share of the elements beyond that range. SQNR: "
        "predicted, in dB, of int8 with that range. loss: how much less it is on the new data. regained: "
        "what a range chosen from the new data would add; below 0 where it would be the worse one."
    )
    rows = [_row(drift, chosen) for drift in report.ranked()]
    verdict = Paragraph(f"{len(report.drifted(chosen))} of {len(rows)} values have drifted.")
    title = f"Drift: {report.samples_now} new samples against {report.samples_before} of the profile"
    return Section(title, (note, table(_TITLES, rows), verdict))


def _row(drift: ValueDrift, limits: DriftLimits) -> tuple[str, ...]:
    return (
        drift.value,
        *(f"{low:.4g} to {high:.4g}" for low, high in (drift.covered, drift.seen_now)),
        significant(drift.distance, 2),
        f"{100.0 * drift.outside_before:.2g} %",
        f"{100.0 * drift.outside_now:.2g} %",
        decibels(drift.sqnr_before).removesuffix(" dB"),
        decibels(drift.sqnr_now).removesuffix(" dB"),
        f"{drift.loss_db:.2f}",
        f"{drift.regained_db:.2f}",
        "drifted" if limits.broken_by(drift) else "",
    )

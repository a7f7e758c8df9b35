"""Verdicts on what a model must keep from one version to the next."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from qglow.baseline.costs import Costs, Findings, judge_costs
from qglow.baseline.entries import METRICS, Entry, Measured
from qglow.core.errors import RegressionError, UsageError
from qglow.metrics.built_in import LOWER_IS_BETTER
from qglow.quantization.report import QuantizationReport
from qglow.report.comparison_result import FLOAT, INT8, Comparison
from qglow.report.layer_report import LayerReport
from qglow.report.significance import NOISE, change_p_value

_MOST_DB = 999.0
"""In place of infinity, where nothing differs."""


class Verdict(enum.Enum):
    """Verdict on an entry. The value is for people."""

    PASS = "Pass"
    REGRESSION = "Regression"
    IMPROVEMENT = "Improvement"
    NEW = "New"
    EXPECTED_FAILURE = "Expected-failure"


@dataclass(frozen=True, slots=True)
class Outcome:
    """An entry, its figures now (None if the model could not be made), and the verdict with its reason.

    warnings: limits that the measurement cannot tell of, and figures over another number of samples. costs:
    latency, sizes and memory, where the entry limits them. seconds: that quantizing and measuring took; None
    where nobody looked at a clock. layers: of a model whose figures have changed.
    """

    entry: Entry
    measured: Measured | None
    verdict: Verdict
    reason: str
    warnings: tuple[str, ...] = ()
    costs: Costs | None = None
    seconds: float | None = None
    layers: LayerReport | None = None

    @property
    def has_changed(self) -> bool:
        """Whether accuracy, coverage or the size of constants differ from the baseline."""
        before, now = self.entry.measured, self.measured
        names = ("value", "int8_nodes", "float_nodes", "islands", "bytes")
        if before is None or now is None:
            return False
        return any(getattr(before, name) != getattr(now, name) for name in names)

    @property
    def other_data(self) -> str | None:
        """Numbers of samples then and now, in words, where they differ; None where they do not."""
        before, now = self.entry.measured, self.measured
        return None if before is None or now is None else _other_data(before, now)

    def fails(self, baseline: bool = False) -> bool:
        """Whether the check fails for it. baseline: figures over the same number of samples are required."""
        unheld = self.verdict is Verdict.NEW or self.other_data is not None
        return self.verdict is Verdict.REGRESSION or (baseline and unheld)


@dataclass(frozen=True)
class BaselineReport:
    """Every entry of a baseline that was checked, in the file's order."""

    path: Path
    outcomes: tuple[Outcome, ...]

    @property
    def regressions(self) -> tuple[Outcome, ...]:
        """Outcomes that make a check fail."""
        return tuple(o for o in self.outcomes if o.verdict is Verdict.REGRESSION)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Limits that could not be told of, and changes of data, each with the name of its entry."""
        return tuple(f"{o.entry.name}: {text}" for o in self.outcomes for text in o.warnings)

    @property
    def without_baseline(self) -> tuple[Outcome, ...]:
        """Outcomes that nothing was held to, because the file has no figures for them."""
        return tuple(o for o in self.outcomes if o.verdict is Verdict.NEW)

    @property
    def over_other_data(self) -> tuple[Outcome, ...]:
        """Outcomes over another number of samples than the figures that they were held to."""
        return tuple(o for o in self.outcomes if o.other_data is not None)

    def require(self, baseline: bool = False) -> None:
        """Raise RegressionError, naming every regression, where there is one.

        baseline: an entry without figures in the file, or with figures over another number of samples, is
        refused too.
        """
        told = []
        if self.regressions:
            count = len(self.regressions)
            plural = "s" if count > 1 else ""
            told.append(f"{count} regression{plural} against {self.path}: {_named(self.regressions)}")
        if baseline and self.without_baseline:
            told.append(f"{self.path} has no figures of: {_named(self.without_baseline)}")
        if baseline and self.over_other_data:
            changed = "; ".join(f"{o.entry.name}: {o.other_data}" for o in self.over_other_data)
            told.append(f"{self.path} has figures over other data; an update replaces them: {changed}")
        if told:
            raise RegressionError("; ".join(told))


def _named(found: Sequence[Outcome]) -> str:
    return "; ".join(f"{outcome.entry.name}: {outcome.reason}" for outcome in found)


def measure(entry: Entry, comparison: Comparison, report: QuantizationReport) -> Measured:
    """The figures of an entry. Raises UsageError for a metric that the data cannot give."""
    value, reference = _FIGURES.get(entry.metric, _task_figures)(comparison)
    if value is None:
        labels = "labels and " if entry.metric.startswith("top") else ""
        known = ", ".join(METRICS)
        raise UsageError(
            f"metric {entry.metric} needs {labels}an output of scores by class; there are {known}"
        )
    flips = comparison.pairing(INT8, FLOAT).flips if entry.metric == "top1" else None
    figures = Measured(
        round(value, 4),
        None if reference is None else round(reference, 4),
        len(report.quantized),
        len(report.float_nodes),
        len(report.islands),
        report.weight_bytes_after,
    )
    if flips is None:
        return replace(figures, samples=comparison.samples)
    return replace(figures, labelled=flips.samples, lost=flips.lost, won=flips.won)


def judge(entry: Entry, now: Measured, costs: Costs | None = None) -> Outcome:
    """Hold figures to the baseline and to the limits of the entry.

    An entry without a baseline is new, which is no failure as long as it keeps its limits.
    """
    found = judge_costs(entry, now, costs)
    outcome = replace(_judged(entry, now, found), warnings=found.open, costs=costs)
    if outcome.other_data is None:
        return outcome
    warning = f"{outcome.other_data}: figures over other data do not compare models"
    return replace(outcome, warnings=(*found.open, warning))


def _judged(entry: Entry, now: Measured, found: Findings) -> Outcome:
    worse, better = ([], []) if entry.measured is None else _changes(entry, entry.measured, now)
    worse += found.broken
    if worse:
        return _failed(entry, now, "; ".join(worse))
    if entry.measured is None:
        return Outcome(entry, now, Verdict.NEW, "no figures in the baseline yet; an update writes them")
    if entry.expected_failure:
        reason = f"no longer fails as expected ({entry.expected_failure}); take expected_failure out"
        return Outcome(entry, now, Verdict.IMPROVEMENT, reason)
    if better:
        return Outcome(entry, now, Verdict.IMPROVEMENT, "; ".join(better) + "; an update keeps it")
    return Outcome(entry, now, Verdict.PASS, "as in the baseline")


def failure(entry: Entry, message: str) -> Outcome:
    """The outcome of a model that can no longer be made."""
    return _failed(entry, None, message)


def _failed(entry: Entry, now: Measured | None, reason: str) -> Outcome:
    if entry.expected_failure:
        text = f"{entry.expected_failure} ({reason})"
        return Outcome(entry, now, Verdict.EXPECTED_FAILURE, text)
    return Outcome(entry, now, Verdict.REGRESSION, reason)


def _changes(entry: Entry, before: Measured, now: Measured) -> tuple[list[str], list[str]]:
    """Changes for the worse, and changes for the better, in words."""
    worse: list[str] = []
    better: list[str] = []
    rise = now.value - before.value
    if not abs(rise) <= entry.allowed + 1e-9:
        change = (
            f"{entry.metric} {before.value:g} -> {now.value:g} (tolerance {entry.allowed:g}"
            f"{_context(before, now, entry.allowed)})"
        )
        (better if (rise > 0) != (entry.metric in LOWER_IS_BETTER) else worse).append(change)
    for what, old, new, more_is_better in (
        ("int8 nodes", before.int8_nodes, now.int8_nodes, True),
        ("float nodes", before.float_nodes, now.float_nodes, False),
        ("islands", before.islands, now.islands, False),
        ("bytes", before.bytes, now.bytes, False),
    ):
        if old != new:
            (better if (new > old) == more_is_better else worse).append(f"{what} {old} -> {new}")
    return worse, better


def _context(before: Measured, now: Measured, allowed: float) -> str:
    """Reasons to look at a change with care: other data, another float model, or the size of the noise.

    A fall beyond the tolerance stays a regression all the same. Flips are counted against the float model of
    their own run, so they tell only where it answers as before.
    """
    other, moved = _other_data(before, now), _moved_reference(before, now, allowed)
    told = [text for text in (other, moved) if text is not None]
    if not told:
        noise = _noise(before, now)
        told = [] if noise is None else [noise]
    return "".join(f"; {text}" for text in told)


def _moved_reference(before: Measured, now: Measured, allowed: float) -> str | None:
    """The float model's own figures, in words, where they are not the same."""
    old, new = before.reference, now.reference
    if old is None or new is None or old == new:
        return None
    # A float model may round otherwise on another processor, which moves its figure by little.
    cause = "" if abs(new - old) <= allowed else ", so the model or the data changed"
    return f"the float model's own figure went from {old:g} to {new:g}{cause}"


def _noise(before: Measured, now: Measured) -> str | None:
    """Whether so many samples can tell the change."""
    old, new = before.flips, now.flips
    p_value = None if old is None or new is None else change_p_value(old, new)
    if p_value is None or new is None:
        return None
    said = f"within noise, p up to {p_value:.2g}" if p_value > NOISE else f"p at most {p_value:.2g}"
    return f"{said} on {new.samples} samples"


def _other_data(before: Measured, now: Measured) -> str | None:
    """The numbers of samples, in words, where both are known and differ."""
    for what, old, new in (
        ("labelled samples", before.labelled, now.labelled),
        ("samples", before.samples, now.samples),
    ):
        if old is not None and new is not None and old != new:
            return f"{old} {what} in the baseline, {new} now"
    return None


_Figures = tuple[float | None, float | None]


def _accuracy(comparison: Comparison, five: bool) -> _Figures:
    int8, real = comparison.accuracy.get(INT8), comparison.accuracy.get(FLOAT)
    if int8 is None or real is None:
        return None, None
    return (100.0 * int8.top5, 100.0 * real.top5) if five else (100.0 * int8.top1, 100.0 * real.top1)


def _task_figures(comparison: Comparison) -> _Figures:
    figures = comparison.metric
    if figures is None:
        return None, None
    return min(figures.values[INT8], _MOST_DB), figures.values.get(FLOAT)


_FIGURES: Mapping[str, Callable[[Comparison], _Figures]] = {
    "top1": lambda comparison: _accuracy(comparison, five=False),
    "top5": lambda comparison: _accuracy(comparison, five=True),
    "sqnr": lambda comparison: (min(comparison.pairing(INT8, FLOAT).overall.sqnr_db, _MOST_DB), None),
    "cosine": lambda comparison: (comparison.pairing(INT8, FLOAT).overall.cosine, None),
}

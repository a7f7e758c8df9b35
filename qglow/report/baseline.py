"""What a model must keep from one version to the next, and what is said where it does not."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from qglow.core.errors import RegressionError, UsageError
from qglow.quantization.report import QuantizationReport
from qglow.report.comparison import FLOAT, INT8, Comparison

METRICS = ("top1", "top5", "agreement", "sqnr", "cosine")
"""Accuracy and agreement in per cent, SQNR in dB, cosine similarity: higher is better."""

DEFAULT_TOLERANCE = {"top1": 0.5, "top5": 0.5, "agreement": 0.5, "sqnr": 0.5, "cosine": 0.001}


@dataclass(frozen=True, slots=True)
class Samples:
    """Data by path (or "package.module:function"), and which samples of it."""

    data: str
    select: str | None = None
    samples: int | None = None


@dataclass(frozen=True, slots=True)
class Measured:
    """Figures of one model: `value` of the metric, and `reference`, that of the float model, if it has one.

    int8_nodes, float_nodes, islands: counts. bytes: of all constants of the int8 model. Every figure
    but the metric is exact.
    """

    value: float
    reference: float | None
    int8_nodes: int
    float_nodes: int
    islands: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Entry:
    """One model under one recipe. Paths are as in the file, relative to it.

    Ranges come from `calibration` data, from a `profile`, or lie in a directory, `quantized`.
    tolerance: by how much the metric may fall. expected_failure: why a regression is no surprise.
    measured: the baseline; None before the first --update.
    """

    name: str
    evaluation: Samples
    labels: Path | None = None
    model: Path | None = None
    calibration: Samples | None = None
    profile: Path | None = None
    quantized: Path | None = None
    recipe: Path | None = None
    metric: str = "top1"
    tolerance: float | None = None
    expected_failure: str = ""
    measured: Measured | None = None

    @property
    def allowed(self) -> float:
        """By how much the metric may fall: the tolerance, or the metric's default."""
        return DEFAULT_TOLERANCE[self.metric] if self.tolerance is None else self.tolerance


class Verdict(enum.Enum):
    """What is said of an entry. The value is for people."""

    PASS = "Pass"
    REGRESSION = "Regression"
    IMPROVEMENT = "Improvement"
    NEW = "New"
    EXPECTED_FAILURE = "Expected-failure"


@dataclass(frozen=True, slots=True)
class Outcome:
    """An entry, its figures now (None where the model could not be made), and the verdict with its reason."""

    entry: Entry
    measured: Measured | None
    verdict: Verdict
    reason: str


@dataclass(frozen=True)
class BaselineReport:
    """Every entry of a baseline that was checked, in the file's order."""

    path: Path
    outcomes: tuple[Outcome, ...]

    @property
    def regressions(self) -> tuple[Outcome, ...]:
        """Outcomes that make a check fail."""
        return tuple(o for o in self.outcomes if o.verdict is Verdict.REGRESSION)

    def require(self) -> None:
        """Raise RegressionError, naming every regression, where there is one."""
        if self.regressions:
            named = "; ".join(f"{outcome.entry.name}: {outcome.reason}" for outcome in self.regressions)
            count = len(self.regressions)
            raise RegressionError(
                f"{count} regression{'s' if count > 1 else ''} against {self.path}: {named}"
            )


def measure(entry: Entry, comparison: Comparison, report: QuantizationReport) -> Measured:
    """The figures of an entry. Raises UsageError for a metric that the data cannot give."""
    value, reference = _FIGURES[entry.metric](comparison)
    if value is None:
        labels = "labels and " if entry.metric.startswith("top") else ""
        raise UsageError(
            f"metric {entry.metric} needs {labels}an output [N, classes]; there are {', '.join(METRICS)}"
        )
    return Measured(
        round(value, 4),
        None if reference is None else round(reference, 4),
        len(report.quantized),
        len(report.float_nodes),
        len(report.islands),
        report.weight_bytes_after,
    )


def judge(entry: Entry, now: Measured) -> Outcome:
    """Hold figures to the baseline. An entry without one is new, which is no failure."""
    if entry.measured is None:
        return Outcome(entry, now, Verdict.NEW, "no figures in the baseline yet; write them with --update")
    worse, better = _changes(entry, entry.measured, now)
    if worse:
        return _failed(entry, now, "; ".join(worse))
    if entry.expected_failure:
        reason = f"no longer fails as expected ({entry.expected_failure}); take expected_failure out"
        return Outcome(entry, now, Verdict.IMPROVEMENT, reason)
    if better:
        return Outcome(entry, now, Verdict.IMPROVEMENT, "; ".join(better) + "; keep it with --update")
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
    """What got worse, and what got better."""
    worse: list[str] = []
    better: list[str] = []
    rise = now.value - before.value
    if abs(rise) > entry.allowed + 1e-9:
        change = f"{entry.metric} {before.value:g} -> {now.value:g} (tolerance {entry.allowed:g})"
        (better if rise > 0 else worse).append(change)
    for what, old, new, more_is_better in (
        ("int8 nodes", before.int8_nodes, now.int8_nodes, True),
        ("float nodes", before.float_nodes, now.float_nodes, False),
        ("islands", before.islands, now.islands, False),
        ("bytes", before.bytes, now.bytes, False),
    ):
        if old != new:
            (better if (new > old) == more_is_better else worse).append(f"{what} {old} -> {new}")
    return worse, better


_Figures = tuple[float | None, float | None]


def _accuracy(comparison: Comparison, five: bool) -> _Figures:
    int8, real = comparison.accuracy.get(INT8), comparison.accuracy.get(FLOAT)
    if int8 is None or real is None:
        return None, None
    return (100.0 * int8.top5, 100.0 * real.top5) if five else (100.0 * int8.top1, 100.0 * real.top1)


def _agreement(comparison: Comparison) -> _Figures:
    agreement = comparison.pairing(INT8, FLOAT).agreement
    return (None, None) if agreement is None else (100.0 * agreement.top1, None)


_FIGURES: Mapping[str, Callable[[Comparison], _Figures]] = {
    "top1": lambda comparison: _accuracy(comparison, five=False),
    "top5": lambda comparison: _accuracy(comparison, five=True),
    "agreement": _agreement,
    "sqnr": lambda comparison: (min(comparison.pairing(INT8, FLOAT).overall.sqnr_db, 999.0), None),
    "cosine": lambda comparison: (comparison.pairing(INT8, FLOAT).overall.cosine, None),
}

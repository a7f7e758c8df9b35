"""Verdicts on what a model must keep from one version to the next."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from qglow.core.errors import RegressionError, UsageError
from qglow.metrics.built_in import DECODED, LOWER_IS_BETTER, NAMES
from qglow.metrics.decoders import DECODERS
from qglow.quantization.report import QuantizationReport
from qglow.report.comparison_result import FLOAT, INT8, Comparison
from qglow.report.significance import NOISE, Flips, change_p_value

METRICS = tuple(dict.fromkeys(("top1", "top5", "agreement", "sqnr", "cosine", *NAMES)))
"""Accuracy and agreement in per cent, SQNR in dB, cosine similarity, and metrics of tasks: higher is better
but for LOWER_IS_BETTER.

"package.module:function" is one too."""

DEFAULT_TOLERANCE = {
    "top1": 0.5,
    "top5": 0.5,
    "agreement": 0.5,
    "sqnr": 0.5,
    "cosine": 0.001,
    **dict.fromkeys(("log_likelihood", "cross_entropy", "kl_float"), 0.01),
    "perplexity": 0.05,
} | dict.fromkeys(("psnr", "miou", *DECODED), 0.5)
"""By how much a metric may get worse unless an entry says so."""
_MOST_DB = 999.0
"""In place of infinity, where nothing differs."""


def default_tolerance(metric: str) -> float | None:
    """Tolerance of a metric, with a decoder that is built in or not; None for other functions.

    >>> default_tolerance("exact_match:ctc_last"), default_tolerance("exact_match:my.module:decode")
    (0.5, None)
    """
    name, _, decoder = metric.partition(":")
    return DEFAULT_TOLERANCE.get(name if name in DECODED and decoder in DECODERS else metric)


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
    but the metric is exact. labelled, lost, won: of top-1 accuracy, how many samples there are, and how
    many only the float model gets right, and only the int8 model; they decide what is noise, no more.
    """

    value: float
    reference: float | None
    int8_nodes: int
    float_nodes: int
    islands: int
    bytes: int
    labelled: int | None = None
    lost: int | None = None
    won: int | None = None

    @property
    def flips(self) -> Flips | None:
        """Samples that float and int8 differ on; None for other metrics than top-1, and in old files."""
        if self.labelled is None or self.lost is None or self.won is None:
            return None
        return Flips(self.labelled, self.lost, self.won)


@dataclass(frozen=True, slots=True)
class Entry:
    """One model under one recipe. Paths are as in the file, relative to it.

    Ranges come from `calibration` data, from a `profile`, or lie in a directory, `quantized`.
    target: what the model is compiled for, in an emulator where the host cannot run it.
    tolerance: by how much the metric may get worse. expected_failure: why a regression is no surprise.
    measured: the baseline; None before the first update.
    """

    name: str
    evaluation: Samples
    labels: Path | None = None
    model: Path | None = None
    calibration: Samples | None = None
    profile: Path | None = None
    quantized: Path | None = None
    recipe: Path | None = None
    target: str | None = None
    metric: str = "top1"
    tolerance: float | None = None
    expected_failure: str = ""
    measured: Measured | None = None

    @property
    def allowed(self) -> float:
        """Largest change for the worse that is allowed: the tolerance, or the metric's default."""
        known = default_tolerance(self.metric) if self.tolerance is None else self.tolerance
        assert known is not None  # a baseline file says it where the metric has none
        return known

    @property
    def task_metric(self) -> str | None:
        """The metric, where a comparison has to be asked for it."""
        return None if self.metric in _FIGURES else self.metric


class Verdict(enum.Enum):
    """Verdict on an entry. The value is for people."""

    PASS = "Pass"
    REGRESSION = "Regression"
    IMPROVEMENT = "Improvement"
    NEW = "New"
    EXPECTED_FAILURE = "Expected-failure"


@dataclass(frozen=True, slots=True)
class Outcome:
    """An entry, its figures now (None if the model could not be made), and the verdict with its reason."""

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

    @property
    def without_baseline(self) -> tuple[Outcome, ...]:
        """Outcomes that nothing was held to, because the file has no figures for them."""
        return tuple(o for o in self.outcomes if o.verdict is Verdict.NEW)

    def require(self, baseline: bool = False) -> None:
        """Raise RegressionError, naming every regression, where there is one.

        baseline: an entry without figures in the file is refused too.
        """
        told = []
        if self.regressions:
            count = len(self.regressions)
            plural = "s" if count > 1 else ""
            told.append(f"{count} regression{plural} against {self.path}: {_named(self.regressions)}")
        if baseline and self.without_baseline:
            told.append(f"{self.path} has no figures of: {_named(self.without_baseline)}")
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
    return Measured(
        round(value, 4),
        None if reference is None else round(reference, 4),
        len(report.quantized),
        len(report.float_nodes),
        len(report.islands),
        report.weight_bytes_after,
        *((flips.samples, flips.lost, flips.won) if flips is not None else ()),
    )


def judge(entry: Entry, now: Measured) -> Outcome:
    """Hold figures to the baseline. An entry without one is new, which is no failure."""
    if entry.measured is None:
        return Outcome(entry, now, Verdict.NEW, "no figures in the baseline yet; an update writes them")
    worse, better = _changes(entry, entry.measured, now)
    if worse:
        return _failed(entry, now, "; ".join(worse))
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
            f"{_significance(before, now)})"
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


def _significance(before: Measured, now: Measured) -> str:
    """Whether so many samples can tell: a fall beyond the tolerance stays a regression all the same."""
    old, new = before.flips, now.flips
    p_value = None if old is None or new is None else change_p_value(old, new)
    if p_value is None or new is None:
        return ""
    said = f"within noise, p up to {p_value:.2g}" if p_value > NOISE else f"p at most {p_value:.2g}"
    return f"; {said} on {new.samples} samples"


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

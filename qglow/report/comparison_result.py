"""Result of a comparison: an int8 program against the float model, and against onnxruntime."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from qglow.display.blocks import Block, Grid, Paragraph, Section, decibels, percent, significant, table
from qglow.display.frames import frame
from qglow.display.lines import counted, listed
from qglow.display.plots import draw_bars
from qglow.display.shown import Shown
from qglow.report.metrics import ErrorSummary
from qglow.report.scored import SAMPLES
from qglow.report.significance import NOISE, Flips, wilson_interval
from qglow.report.task_metric import MetricFigures

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes

FLOAT = "onnxruntime float32"
INT8 = "qglow int8"
QDQ = "onnxruntime QDQ"


@dataclass(frozen=True, slots=True)
class Agreement:
    """Shares of samples, or of their positions, in which two programs choose alike, each 0 to 1.

    top1: both have the same best class. top5: the reference's best class is among the other's best five.
    """

    samples: int
    top1: float
    top5: float


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Shares of samples, or of their positions, whose label is the best class, and among the best five, each
    0 to 1."""

    samples: int
    top1: float
    top5: float

    def interval(self) -> tuple[float, float]:
        """Interval of the top-1 accuracy at 95 % confidence."""
        return wilson_interval(round(self.top1 * self.samples), self.samples)


@dataclass(frozen=True)
class Pairing:
    """One program against one reference, per output of the model and over all of them.

    flips: of the labelled samples; None without labels.
    """

    subject: str
    reference: str
    outputs: dict[str, ErrorSummary]
    overall: ErrorSummary
    agreement: Agreement | None
    flips: Flips | None = None


@dataclass(frozen=True, repr=False)
class Comparison(Shown):
    """Result of a comparison of programs over `samples` samples.

    pairings: one for each program and reference, with SQNR in dB. accuracy: shares of right samples, 0 to 1,
    by program; empty without labels or a classification output. metric: figures of the metric that was asked
    for, in its own unit; None without one. counted: what agreement and accuracy count, "samples" of an output
    [N, classes], or "positions" of [N, T, classes].
    """

    samples: int
    pairings: tuple[Pairing, ...]
    accuracy: dict[str, Accuracy]
    metric: MetricFigures | None = None
    counted: str = SAMPLES

    def __repr__(self) -> str:
        return f"Comparison({counted(self.samples, 'sample')}: {listed(self._figures(), most=4)})"

    def _figures(self) -> Iterator[str]:
        first = self.pairings[0]
        yield f"{first.subject} against {first.reference}: SQNR {decibels(first.overall.sqnr_db)}"
        if first.agreement is not None:
            yield f"agreement {percent(first.agreement.top1)}"
        if first.subject in self.accuracy:
            yield f"top-1 {percent(self.accuracy[first.subject].top1)}"
        if self.metric is not None and first.subject in self.metric.values:
            yield f"{self.metric.name} {self.metric.values[first.subject]:.6g}"

    def _sections(self) -> tuple[Section, ...]:
        return (comparison_section(self),)

    def to_frame(self) -> pandas.DataFrame:
        """One row for each output and pair of programs. Raises UsageError if pandas is not installed."""
        columns = ("program", "reference", "output", "sqnr_db", "cosine", "max_abs", "relative", "rmse")
        rows = (
            (p.subject, p.reference, name, e.sqnr_db, e.cosine, e.max_abs, e.relative, e.rmse)
            for p in self.pairings
            for name, e in p.outputs.items()
        )
        return frame(columns, rows)

    def plot(self, axes: Axes | None = None) -> Axes:
        """Draw the SQNR of every output in dB, a bar for each pair of programs.

        axes: where to draw (default: a new figure). Raises UsageError if matplotlib is not installed.
        """
        names = list(self.pairings[0].outputs)
        series = {
            f"{p.subject} against {p.reference}": [p.outputs[name].sqnr_db for name in names]
            for p in self.pairings
        }
        return draw_bars(axes, names, series, "SQNR in dB")

    def pairing(self, subject: str, reference: str) -> Pairing:
        """The pairing of these two programs. Raises KeyError."""
        for found in self.pairings:
            if (found.subject, found.reference) == (subject, reference):
                return found
        raise KeyError((subject, reference))

    def top1_drop(self, subject: str = INT8, reference: str = FLOAT) -> float | None:
        """Points (per cent) of top-1 accuracy that the subject loses; None without labels."""
        if subject not in self.accuracy or reference not in self.accuracy:
            return None
        return 100.0 * (self.accuracy[reference].top1 - self.accuracy[subject].top1)


def comparison_section(comparison: Comparison) -> Section:
    """Accuracy of every program, agreement, and errors of every output."""
    blocks: list[Block] = []
    if comparison.accuracy:
        blocks.append(accuracy_table(comparison))
        blocks += flip_table(comparison)
    if comparison.metric is not None:
        blocks.append(metric_table(comparison.metric))
        blocks += spread_tables(comparison.metric)
    if any(pairing.agreement for pairing in comparison.pairings):
        blocks.append(agreement_table(comparison))
    blocks += [error_table(pairing) for pairing in comparison.pairings]
    broken = [p for p in comparison.pairings if p.overall.non_finite]
    blocks += [
        Paragraph(
            f"{p.subject} against {p.reference}: {p.overall.non_finite} elements are NaN or infinite in only "
            "one of both; the errors leave them out."
        )
        for p in broken
    ]
    return Section(f"Comparison over {comparison.samples} samples", tuple(blocks))


def accuracy_table(comparison: Comparison) -> Grid:
    """Top-1, with its 95 % interval, and top-5 of every program on the labelled samples."""
    counts = {accuracy.samples for accuracy in comparison.accuracy.values()}
    rows = [
        (name, percent(accuracy.top1), _interval(accuracy), percent(accuracy.top5))
        for name, accuracy in comparison.accuracy.items()
    ]
    caption = f"Accuracy on {max(counts)} labelled {comparison.counted}"
    return table(("program", "top-1>", "95 % interval>", "top-5>"), rows, caption)


def _interval(accuracy: Accuracy) -> str:
    low, high = accuracy.interval()
    return f"{percent(low)} to {percent(high)}"


def flip_table(comparison: Comparison) -> list[Block]:
    """Table of the samples on which programs are right and wrong in turn, and whether it is only noise."""
    rows = [
        (
            p.subject,
            p.reference,
            str(p.flips.lost),
            str(p.flips.won),
            f"{p.flips.p_value:.3g}",
            verdict(p.flips),
        )
        for p in comparison.pairings
        if p.flips is not None
    ]
    which = f"labelled {comparison.counted}"
    caption = f"Flips: {which} that only the reference gets right (lost), and only the program (won)"
    note = Paragraph(
        f"p: McNemar's exact test on the flips; a difference with p above {NOISE:g} is within the noise of "
        "these samples."
    )
    titles = ("program", "reference", "lost>", "won>", "p>", "accuracy")
    return [table(titles, rows, caption), note] if rows else []


def verdict(flips: Flips) -> str:
    """Verdict on a program's accuracy from its flips."""
    if flips.p_value > NOISE:
        return "no difference beyond noise"
    return "worse" if flips.lost > flips.won else "better"


def metric_table(figures: MetricFigures) -> Grid:
    """The metric that was asked for, of every program."""
    rows = [(name, f"{value:.6g}") for name, value in figures.values.items()]
    better = "lower" if figures.lower_is_better else "higher"
    return table(("program", f"{figures.name}>"), rows, f"Metric, {better} is better")


def spread_tables(figures: MetricFigures) -> list[Grid]:
    """Tables of the positions whose mean a metric is: the largest, and means along the positions."""
    ends: list[tuple[str, ...]] = []
    along: list[tuple[str, ...]] = []
    for name, spread in figures.spreads.items():
        place = f"{spread.sample}, {spread.position}"
        ends.append((name, f"{spread.high:.6g}", f"{spread.largest:.6g}", place))
        if spread.quarters:
            along.append((name, *(f"{mean:.6g}" for mean in spread.quarters)))
    tables = []
    if ends:
        places = ("program", "99 % below>", "largest>", "sample, position")
        tables.append(table(places, ends, f"{figures.name} by position"))
    if along:
        parts = ("program", "first quarter>", "second>", "third>", "last>")
        tables.append(table(parts, along, f"{figures.name} along the positions"))
    return tables


def agreement_table(comparison: Comparison) -> Grid:
    """Table of how often programs choose the same class."""
    rows = [
        (p.subject, p.reference, percent(p.agreement.top1), percent(p.agreement.top5))
        for p in comparison.pairings
        if p.agreement is not None
    ]
    return table(
        ("program", "reference", "top-1>", "top-5>"),
        rows,
        f"Agreement of {comparison.counted}: the same best class, and the reference's best class among the "
        "best five",
    )


def error_table(pairing: Pairing) -> Grid:
    """Errors of every output, and of all together where there are several."""
    named = list(pairing.outputs.items())
    if len(named) > 1:
        named.append(("all", pairing.overall))
    rows = [(name, *_figures(errors)) for name, errors in named]
    titles = ("output", "SQNR>", "cosine>", "max error>", "relative>", "RMSE>")
    return table(titles, rows, f"Errors of {pairing.subject} against {pairing.reference}")


def _figures(errors: ErrorSummary) -> tuple[str, ...]:
    return (
        decibels(errors.sqnr_db),
        f"{errors.cosine:.6f}",
        significant(errors.max_abs),
        significant(errors.relative),
        significant(errors.rmse),
    )

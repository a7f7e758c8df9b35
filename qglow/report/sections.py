"""Sections of a document for each result: comparison, latency, model, settings, layers."""

from __future__ import annotations

from qglow.display.blocks import (
    Block,
    Grid,
    Listing,
    Paragraph,
    Section,
    decibels,
    facts,
    milliseconds,
    percent,
    significant,
    table,
)
from qglow.report.bench import MIN_ALTERNATIONS, BenchResult
from qglow.report.comparison import Accuracy, Comparison, Pairing
from qglow.report.layers import LayerError, LayerReport
from qglow.report.metrics import ErrorSummary, StepSummary
from qglow.report.significance import NOISE, Flips
from qglow.report.task_metric import MetricFigures


def comparison_section(comparison: Comparison) -> Section:
    """Accuracy of every program, agreement, and errors of every output."""
    blocks: list[Block] = []
    if comparison.accuracy:
        blocks.append(accuracy_table(comparison))
        blocks += flip_table(comparison)
    if comparison.metric is not None:
        blocks.append(metric_table(comparison.metric))
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


def bench_section(result: BenchResult, base: str | None = None) -> Section:
    """Latencies, and how many times as long each takes as `base` (the first by default).

    Ratios are left out, with the reason, after too few alternations.
    """
    base = base or next(iter(result.latencies))
    rows = [
        (x.name, milliseconds(x.median_ms), milliseconds(x.p10_ms), milliseconds(x.p90_ms))
        for x in result.latencies.values()
    ]
    titles = ("program", "median>", "p10>", "p90>")
    if result.alternations < MIN_ALTERNATIONS:
        note = f"No ratios: {result.alternations} alternations are fewer than {MIN_ALTERNATIONS}."
        return Section("Latency", (table(titles, rows), Paragraph(note)))
    ratios = [_ratio_cells(result, name, base) for name in result.latencies]
    threads = "one thread" if result.threads == 1 else f"up to {result.threads} threads"
    caption = f"One call on {threads}, {result.alternations} alternations"
    titled = (*titles, f"relative to {base}>", "p10 to p90>")
    body = [(*row, *cells) for row, cells in zip(rows, ratios, strict=True)]
    return Section("Latency", (table(titled, body, caption),))


def _ratio_cells(result: BenchResult, name: str, base: str) -> tuple[str, str]:
    if name == base:
        return "1", ""
    ratio = result.ratio(name, base)
    return f"{ratio.ratio:.2f}", f"{ratio.low:.2f} to {ratio.high:.2f}"


def model_section(file: str, pairs: list[tuple[str, str]]) -> Section:
    """Section that names the model's file, with further facts."""
    return Section("Model", (facts([("file", file), *pairs]),))


def settings_section(recipe: str, pipeline: str) -> Section:
    """The effective recipe and the passes, as they can be given again."""
    blocks: list[Block] = [Paragraph("Effective recipe:"), Listing(recipe)] if recipe else []
    if pipeline:
        blocks += [Paragraph("Graph passes:"), Listing(pipeline)]
    return Section("Settings", tuple(blocks))


def layer_section(report: LayerReport) -> Section:
    """Layers by what their own quantization costs, the most expensive first."""
    titles = ("node", "operator", "isolated>", "accumulated>", "rounding>", "equal>", "step>")
    note = Paragraph(
        "isolated: SQNR in dB of the int8 node on float inputs. accumulated: SQNR in dB of the running "
        "program up to there. rounding: RMSE of the result over its scale, 0.29 where int8 only rounds, "
        "above 0.5 where it clips. equal, step: elements equal to onnxruntime's on its own integers, and the "
        "largest difference; its optimised run for convolutions, matrix products, pools and Concat, the "
        "plain one for the others."
    )
    rows = [_layer_row(layer) for layer in report.ranked()]
    totals = Paragraph(
        f"Elements equal to onnxruntime's: {_total(report.matches(True))} of its optimised run, "
        f"{_total(report.matches(False))} of its plain run."
    )
    return Section(f"Layers over {report.samples} samples", (note, table(titles, rows), totals))


def _layer_row(layer: LayerError) -> tuple[str, ...]:
    match = layer.match
    return (
        layer.node,
        layer.operator,
        _level(layer.isolated),
        _level(layer.accumulated),
        "" if layer.rounding is None else f"{layer.rounding:.3f}",
        _equal(match) if match is not None else _within(layer.float_match),
        "" if match is None else str(match.max_step),
    )


def _level(errors: ErrorSummary | None) -> str:
    return "" if errors is None else decibels(errors.sqnr_db).removesuffix(" dB")


def _total(match: StepSummary) -> str:
    if not match.elements:
        return "none were compared"
    step = f", the rest within {match.max_step} steps" if match.different else ""
    return f"{_equal(match)} of {match.elements}{step}"


def _within(relative: float | None) -> str:
    """A float result differs by at most this, relative to its range."""
    return "" if relative is None else f"to {relative:.0e}"


def _equal(match: StepSummary) -> str:
    """Never rounded up to all."""
    return "all" if not match.different else f"{int(1e6 * match.equal) / 1e4:.4f} %"

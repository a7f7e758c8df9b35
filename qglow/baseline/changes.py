"""Changes since the baseline, latencies, and the layers that lose most, as sections of a document."""

from __future__ import annotations

from collections.abc import Iterator

from qglow.baseline.entries import Measured
from qglow.baseline.sections import baseline_section
from qglow.baseline.verdicts import BaselineReport, Outcome
from qglow.display.blocks import Block, Paragraph, Section, byte_count, decibels, milliseconds, table
from qglow.report.latencies import RIVALS
from qglow.report.metrics import ErrorSummary

WORST = 5
"""Layers of a model that are shown."""

_COUNTS = {
    "labelled": "labelled samples",
    "samples": "samples",
    "int8_nodes": "int8 nodes",
    "float_nodes": "float nodes",
    "islands": "int8 regions",
}
_BYTES = {"bytes": "constants", "artefact_bytes": "artefact", "arena_bytes": "arena"}
_RATIOS = {f"ratio_{kind}": f"latency / {name}" for kind, name in RIVALS.items()}


def summary_sections(report: BaselineReport) -> tuple[Section, ...]:
    """Everything that a person who looks at a build wants to know, the verdicts first."""
    found = [baseline_section(report), *latency_section(report), changes_section(report)]
    return (*found, *_warnings(report), *_layers(report))


def latency_section(report: BaselineReport) -> list[Section]:
    """Latencies beside onnxruntime's, where an entry limits them."""
    rows = [
        (
            outcome.entry.name,
            outcome.costs.kernels,
            milliseconds(latency.milliseconds),
            RIVALS[kind],
            milliseconds(latency.rival_milliseconds),
            f"{latency.ratio.median:.3g}",
            f"{latency.ratio.low:.3g} to {latency.ratio.high:.3g}",
            str(latency.ratio.turns),
        )
        for outcome in report.outcomes
        if outcome.costs is not None
        for kind, latency in outcome.costs.latencies.items()
    ]
    titles = ("model", "kernels", "qglow int8>", "beside", "takes>", "ratio>", "99 % interval>", "turns>")
    return [Section("Latency", (table(titles, rows),))] if rows else []


def changes_section(report: BaselineReport) -> Section:
    """Figures that are not those of the baseline."""
    rows = [(outcome.entry.name, *change) for outcome in report.outcomes for change in _changes(outcome)]
    blocks: tuple[Block, ...] = (Paragraph("No figure has changed."),)
    if rows:
        blocks = (table(("model", "figure", "baseline>", "now>", "change>"), rows),)
    return Section("Changes since the baseline", blocks)


def _changes(outcome: Outcome) -> Iterator[tuple[str, str, str, str]]:
    """Figure, value in the baseline, value now, and the difference."""
    before, now = outcome.entry.measured, outcome.measured
    if before is None or now is None:
        return
    for name, title, old, new in _pairs(outcome.entry.metric, before, now):
        if old == new or (name in _RATIOS and _is_noise(outcome, name, old)):
            continue
        if name in _BYTES:
            yield title, byte_count(int(old)), byte_count(int(new)), _share(old, new)
        elif name in _RATIOS:
            yield title, f"{old:.3g}", f"{new:.3g}", _share(old, new)
        else:
            yield title, f"{old:g}", f"{new:g}", f"{new - old:+.4g}"


def _pairs(metric: str, before: Measured, now: Measured) -> Iterator[tuple[str, str, float, float]]:
    """Field, title and values of the figures that both have. Ratios of other kernels are left out."""
    titles = {"value": metric, "reference": f"{metric} of the float model", **_COUNTS, **_BYTES}
    if before.kernels == now.kernels:
        titles |= _RATIOS
    for name, title in titles.items():
        old, new = getattr(before, name), getattr(now, name)
        if old is not None and new is not None:
            yield name, title, old, new


def _is_noise(outcome: Outcome, name: str, old: float) -> bool:
    """Whether the interval of a ratio holds what it was."""
    latencies = {} if outcome.costs is None else outcome.costs.latencies
    latency = latencies.get(name.removeprefix("ratio_"))
    return latency is not None and latency.ratio.low <= old <= latency.ratio.high


def _share(old: float, new: float) -> str:
    return f"{100.0 * (new / old - 1.0):+.1f} %" if old else ""


def _warnings(report: BaselineReport) -> list[Section]:
    texts = tuple(map(Paragraph, report.warnings))
    return [Section("Warnings", texts)] if texts else []


def _layers(report: BaselineReport) -> list[Section]:
    """Layers that lose most of the models that changed."""
    rows = [
        (outcome.entry.name, layer.node, layer.operator, _level(layer.isolated), _level(layer.accumulated))
        for outcome in report.outcomes
        if outcome.layers is not None
        for layer in [x for x in outcome.layers.ranked() if x.isolated is not None][:WORST]
    ]
    if not rows:
        return []
    note = Paragraph(
        "SQNR of the layers that lose most in the models whose figures have changed: of the int8 layer on "
        "float inputs (alone), and of the running program up to there."
    )
    titles = ("model", "node", "operator", "alone>", "up to there>")
    return [Section("Worst layers", (table(titles, rows), note))]


def _level(errors: ErrorSummary | None) -> str:
    return "" if errors is None else decibels(errors.sqnr_db)

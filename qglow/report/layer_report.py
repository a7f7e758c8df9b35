"""Errors of every node of an int8 program."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from qglow.core.types import TensorType
from qglow.display.blocks import Paragraph, Section, decibels, table
from qglow.display.frames import frame
from qglow.display.lines import brief, counted
from qglow.display.plots import draw_bars
from qglow.display.shown import Shown
from qglow.report.metrics import ErrorSummary, StepSummary

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes


@dataclass(frozen=True, slots=True)
class LayerError:
    """One node of the int8 graph, in int8 or with weights in blocks.

    match: its integers against onnxruntime's on the exported QDQ model, from onnxruntime's own
    inputs; None if the result is float. float_match: the same for a float result, as the largest
    difference relative to max(range, max|y|). optimized: whether that was onnxruntime's optimised
    run, which has int8 kernels, or the plain one, which dequantizes and quantizes around a float node.
    isolated: the int8 node on float inputs, against the float node. accumulated: the running program
    against the float model; None if the program keeps no such value. rounding: RMSE over scale of
    the float result as int8 alone: 0.29 is pure rounding, above 0.5 something clips. saturated: share of
    its elements, 0 to 1, that int8 cannot reach. Both are None if the result is float.
    """

    node: str
    operator: str
    result: TensorType
    match: StepSummary | None
    float_match: float | None
    optimized: bool
    isolated: ErrorSummary | None
    accumulated: ErrorSummary | None
    rounding: float | None
    saturated: float | None


@dataclass(frozen=True, repr=False)
class LayerReport(Shown):
    """Errors of every int8 node, in the order of the graph, measured over `samples` samples.

    Products with weights in blocks are among them.
    """

    samples: int
    layers: tuple[LayerError, ...]

    def __repr__(self) -> str:
        worst = next((x for x in self.ranked() if x.isolated is not None), None)
        ending = (
            "" if worst is None else f"; '{brief(worst.node)}' loses most, {_level(worst.isolated)} dB alone"
        )
        nodes, samples = counted(len(self.layers), "node"), counted(self.samples, "sample")
        return f"LayerReport({nodes} over {samples}{ending})"

    def _sections(self) -> tuple[Section, ...]:
        return (layer_section(self),)

    def to_frame(self) -> pandas.DataFrame:
        """One row for each node, in the order of the graph. Raises UsageError if pandas is not installed."""
        columns = ("node", "operator", "isolated_db", "accumulated_db", "rounding", "saturated")
        rows = (
            (x.node, x.operator, _sqnr(x.isolated), _sqnr(x.accumulated), x.rounding, x.saturated)
            for x in self.layers
        )
        return frame(columns, rows)

    def plot(self, axes: Axes | None = None, *, most: int = 40) -> Axes:
        """Draw the SQNR of the nodes, alone and up to there, in the order of the graph.

        most: how many nodes, those that lose most. axes: where to draw (default: a new figure). Raises
        UsageError if matplotlib is not installed.
        """
        wanted = {x.node for x in self.ranked()[:most]}
        shown = [x for x in self.layers if x.node in wanted]
        series = {
            "the node alone": [_sqnr(x.isolated) for x in shown],
            "up to here": [_sqnr(x.accumulated) for x in shown],
        }
        return draw_bars(axes, [x.node for x in shown], series, "SQNR in dB")

    def ranked(self) -> list[LayerError]:
        """The layers, the one whose own quantization costs most first."""
        return sorted(self.layers, key=lambda x: math.inf if x.isolated is None else x.isolated.sqnr_db)

    def matches(self, optimized: bool) -> StepSummary:
        """All integers compared with onnxruntime's optimised, or with its plain run."""
        found = [x.match for x in self.layers if x.match is not None and x.optimized == optimized]
        return StepSummary(
            sum(match.elements for match in found),
            sum(match.different for match in found),
            max((match.max_step for match in found), default=0),
        )


def layer_section(report: LayerReport) -> Section:
    """Layers by what their own quantization costs, the most expensive first."""
    titles = ("node", "operator", "isolated>", "accumulated>", "rounding>", "equal>", "step>")
    note = Paragraph(
        "isolated: SQNR in dB of the int8 node on float inputs. accumulated: SQNR in dB of the running "
        "program up to there. rounding: RMSE of the result over its scale, 0.29 where int8 only rounds, "
        "above 0.5 where it clips. equal, step: elements equal to onnxruntime's on its own integers, and the "
        "largest difference; its optimised run for convolutions, matrix products, pools and "
        "concatenations, the plain one for the others."
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


def _sqnr(errors: ErrorSummary | None) -> float | None:
    return None if errors is None else errors.sqnr_db


def _level(errors: ErrorSummary | None) -> str:
    return "" if errors is None else decibels(errors.sqnr_db).removesuffix(" dB")


def _total(match: StepSummary) -> str:
    if not match.elements:
        return "none were compared"
    step = f", the rest within {match.max_step} steps" if match.different else ""
    return f"{_equal(match)} of {match.elements}{step}"


def _within(relative: float | None) -> str:
    """A float result differs by at most this, relative to its range; "all" where nothing differs."""
    if relative is None:
        return ""
    return f"to {relative:.0e}" if relative else "all"


def _equal(match: StepSummary) -> str:
    """Never rounded up to all."""
    return "all" if not match.different else f"{int(1e6 * match.equal) / 1e4:.4f} %"

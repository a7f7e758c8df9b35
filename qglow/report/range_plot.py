"""Histogram of an int8 value with the range that was chosen for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qglow.core.errors import UsageError
from qglow.display.lines import near
from qglow.display.plots import draw_histogram
from qglow.graph.graph import Graph
from qglow.quantization.report import QuantizationReport
from qglow.recipe.matching import means

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw_range(graph: Graph, report: QuantizationReport | None, value: str, axes: Axes | None) -> Axes:
    """Draw a value, named by itself or by the node that computes it. Raises UsageError if it has no range."""
    known = {} if report is None else {tensor.value: tensor for tensor in report.tensors}
    by_node = {node.name: node.outputs[0].name for node in graph.nodes if node.outputs}
    named = {n: v for n, v in by_node.items() if v in known} | {tensor: tensor for tensor in known}
    called = value if value in named else next((name for name in named if means(value, name)), None)
    if called is None:
        raise UsageError(
            f"no int8 value is called '{value}', or no profile told its range{near(value, named)}",
            field="value",
        )
    tensor = known[named[called]]
    count = len(tensor.counts)
    step = (tensor.seen_high - tensor.seen_low) / max(count, 1)
    edges = [tensor.seen_low + step * number for number in range(count + 1)]
    return draw_histogram(axes, tensor.value, edges, tensor.counts, (tensor.low, tensor.high))

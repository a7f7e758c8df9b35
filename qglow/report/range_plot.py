"""Histogram of an int8 value with the range that was chosen for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qglow.core.errors import UsageError
from qglow.display.lines import near
from qglow.display.plots import draw_histogram
from qglow.graph.graph import Graph
from qglow.quantization.report import QuantizationReport

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw_range(graph: Graph, report: QuantizationReport | None, value: str, axes: Axes | None) -> Axes:
    """Draw a value, named by itself or by the node that computes it. Raises UsageError if it has no range."""
    known = {} if report is None else {tensor.value: tensor for tensor in report.tensors}
    by_node = {node.name: node.outputs[0].name for node in graph.nodes if node.outputs}
    name = value if value in known else by_node.get(value, value)
    if name not in known:
        raise UsageError(
            f"no int8 value is called '{value}', or no profile told its range{near(value, known)}",
            field="value",
        )
    tensor, count = known[name], len(known[name].counts)
    step = (tensor.seen_high - tensor.seen_low) / max(count, 1)
    edges = [tensor.seen_low + step * number for number in range(count + 1)]
    return draw_histogram(axes, name, edges, tensor.counts, (tensor.low, tensor.high))

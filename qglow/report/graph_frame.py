"""Nodes of a graph as a data frame."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from qglow.core.types import Quantization
from qglow.display.frames import frame
from qglow.graph.graph import Graph
from qglow.quantization.report import QuantizationReport

if TYPE_CHECKING:
    import pandas

_NODE = ("node", "operator", "value", "type", "shape")
_PARAMETERS = ("scale", "zero_point", "reason")


def graph_frame(graph: Graph) -> pandas.DataFrame:
    """One row for each node and its first result. Raises UsageError if pandas is not installed."""
    return frame(_NODE, _rows(graph))


def int8_frame(graph: Graph, report: QuantizationReport | None) -> pandas.DataFrame:
    """The same with parameters of results in integers, and the reason why a node stays float.

    scale, zero_point: None where the result is float or has several.
    """
    reasons = {} if report is None else {node.name: node.reason for node in report.float_nodes}
    rows = (
        (*row, *_parameters(node.outputs[0].type.quantization), reasons.get(node.name, ""))
        for node, row in zip((n for n in graph.nodes if n.outputs), _rows(graph), strict=True)
    )
    return frame((*_NODE, *_PARAMETERS), rows)


def _rows(graph: Graph) -> Iterator[tuple[object, ...]]:
    for node in graph.nodes:
        for value in node.outputs[:1]:
            yield node.name, node.operator.name, value.name, value.type.element.value, value.type.shape


def _parameters(found: Quantization | None) -> tuple[object, object]:
    if found is None or found.axis is not None:
        return None, None
    return found.scale, found.zero_point

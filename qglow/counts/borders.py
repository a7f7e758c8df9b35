"""Borders of constants, which are operands of a concatenation where the axis that they extend is counted."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from qglow.core.types import Array
from qglow.counts.twins import twins_of
from qglow.graph.graph import Graph, Node, constant
from qglow.graph.ops.shape import Concat
from qglow.graph.rewriting import operand
from qglow.graph.traits import AxisBorder
from qglow.numerics.quantize import quantize_by


def join_borders(graphs: Sequence[Graph]) -> None:
    """Turn a border along one axis into an operand of Concat, where sizes decide the extent of that axis.

    graphs: the same model in several sizes, all of which are changed alike. The border then lies behind the
    live places, wherever these end. A shift of tokens by one, as in MobileBERT, is a slice and such a border.
    """
    for twins in twins_of(graphs):
        borders = {_border(node) for node in twins}
        border = borders.pop()
        if borders or border is None:
            continue
        shapes = [node.output.type.shape for node in twins]
        beside = {(*shape[: border.axis], *shape[border.axis + 1 :]) for shape in shapes}
        if len(set(shapes)) > 1 and len(beside) == 1:
            for graph, node in zip(graphs, twins, strict=True):
                _join(graph, node, border)


def _border(node: Node) -> AxisBorder | None:
    """The border that a node adds to an operand with the same parameters; None where it adds none."""
    x = node.inputs[0] if node.inputs else None
    alike = x is not None and x.type.quantization == node.output.type.quantization
    return node.operator.axis_border if alike else None


def _join(graph: Graph, node: Node, border: AxisBorder) -> None:
    x = operand(node, 0)
    parts = [x]
    for part, extent in (("before", border.before), ("behind", border.behind)):
        if extent:
            shape = (*x.type.shape[: border.axis], extent, *x.type.shape[border.axis + 1 :])
            name = graph.unique_name(f"{node.name}__{part}")
            added = constant(name, _filled(node, border.value, shape), x.type.quantization)
            parts = [added, x] if part == "before" else [*parts, added]
    node.operator, node.inputs = Concat(border.axis), tuple(parts)


def _filled(node: Node, value: float, shape: Sequence[int]) -> Array:
    kind = node.output.type
    if kind.quantization is not None:
        return quantize_by(np.full(shape, value, np.float32), kind.quantization)
    return np.full(shape, value).astype(kind.element.dtype)

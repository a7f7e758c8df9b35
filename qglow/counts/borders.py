"""Borders of constants, which are operands of a concatenation where the axis that they extend is counted."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from qglow.core.types import Array
from qglow.counts.twins import twins_of
from qglow.graph.graph import Graph, Node, Value, constant
from qglow.graph.ops.shape import Concat
from qglow.graph.rewriting import operand
from qglow.graph.traits import AxisBorder
from qglow.numerics.quantize import quantize_by


def join_borders(graphs: Sequence[Graph]) -> set[Value]:
    """Turn a border along one axis into an operand of Concat, where sizes decide the extent of that axis.

    graphs: the same model in several sizes, the bound first, all of which are changed alike. Returns borders
    of the bound, constants of one number. The border then lies behind the live places, wherever these end. A
    shift of tokens by one, as in MobileBERT, is a slice and such a border.
    """
    made: set[Value] = set()
    for twins in twins_of(graphs):
        borders = {_border(node) for node in twins}
        border = borders.pop()
        if borders or border is None:
            continue
        if len({node.output.type.shape[border.axis] for node in twins}) > 1:
            added = [_join(graph, node, border) for graph, node in zip(graphs, twins, strict=True)]
            made.update(added[0])
    return made


def _border(node: Node) -> AxisBorder | None:
    """The border that a node adds to an operand with the same parameters; None where it adds none."""
    x = node.inputs[0] if node.inputs else None
    alike = x is not None and x.type.quantization == node.output.type.quantization
    return node.operator.axis_border if alike else None


def _join(graph: Graph, node: Node, border: AxisBorder) -> list[Value]:
    x = operand(node, 0)
    before, behind = (
        [_border_of(graph, node, border, part, extent)] if extent else []
        for part, extent in (("before", border.before), ("behind", border.behind))
    )
    node.operator, node.inputs = Concat(border.axis), (*before, x, *behind)
    return [*before, *behind]


def _border_of(graph: Graph, node: Node, border: AxisBorder, part: str, extent: int) -> Value:
    kind = operand(node, 0).type
    shape = (*kind.shape[: border.axis], extent, *kind.shape[border.axis + 1 :])
    data = _filled(node, border.value, shape)
    return constant(graph.unique_name(f"{node.name}__{part}"), data, kind.quantization)


def _filled(node: Node, value: float, shape: Sequence[int]) -> Array:
    kind = node.output.type
    if kind.quantization is not None:
        return quantize_by(np.full(shape, value, np.float32), kind.quantization)
    return np.full(shape, value).astype(kind.element.dtype)

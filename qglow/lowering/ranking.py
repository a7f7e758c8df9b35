"""Indices and values of the largest or smallest elements along the middle of [outer, extent, inner]."""

from __future__ import annotations

from qglow.graph.graph import Node
from qglow.graph.ops import ranking as graph
from qglow.instructions.ops.ranking import FirstIndices, FirstValues
from qglow.lowering.context import Lowering
from qglow.lowering.reduce import reduction_operands
from qglow.lowering.rules import lowers


@lowers(graph.ArgMax, graph.ArgMin)
def lower_place(lowering: Lowering, node: Node, operator: graph.FirstPlace) -> None:
    """Lower to one firstindices."""
    rows, result = reduction_operands(lowering, node, (operator.axis,), operator.keepdims)
    lowering.emit(FirstIndices(largest=operator.largest, last=operator.last), result, rows)


@lowers(graph.TopK)
def lower_top_k(lowering: Lowering, node: Node, operator: graph.TopK) -> None:
    """Lower to one firstvalues."""
    rows, result = reduction_operands(lowering, node, (operator.axis,), True, operator.k)
    lowering.emit(FirstValues(largest=operator.largest), result, rows)


@lowers(graph.TopKIndices)
def lower_top_k_indices(lowering: Lowering, node: Node, operator: graph.TopKIndices) -> None:
    """Lower to one firstindices."""
    rows, result = reduction_operands(lowering, node, (operator.axis,), True, operator.k)
    lowering.emit(FirstIndices(largest=operator.largest), result, rows)

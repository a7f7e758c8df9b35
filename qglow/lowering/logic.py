"""Comparisons, booleans (bytes of 0 or 1) and conversions between element types."""

from __future__ import annotations

import numpy as np

from qglow.graph.graph import Node
from qglow.graph.ops import logic as graph
from qglow.graph.ops.shape import Cast
from qglow.instructions.ops import logic as instructions
from qglow.instructions.ops.selection import ElementMax, ElementMin
from qglow.lowering.context import Lowering
from qglow.lowering.elementwise import lower_elementwise
from qglow.lowering.rules import lowers


@lowers(graph.Compare)
def lower_compare(lowering: Lowering, node: Node, operator: graph.Compare) -> None:
    """Lower to one compare."""
    lower_elementwise(lowering, node, instructions.Compare(relation=operator.relation))


@lowers(graph.Whole)
def lower_whole(lowering: Lowering, node: Node, operator: graph.Whole) -> None:
    """Lower to one instruction."""
    lower_elementwise(lowering, node, instructions.Whole(operation=operator.operation))


@lowers(graph.And)
def lower_and(lowering: Lowering, node: Node, operator: graph.And) -> None:
    """Lower to the smaller of two booleans."""
    lower_elementwise(lowering, node, ElementMin())


@lowers(graph.Or)
def lower_or(lowering: Lowering, node: Node, operator: graph.Or) -> None:
    """Lower to the larger of two booleans."""
    lower_elementwise(lowering, node, ElementMax())


@lowers(graph.Not)
def lower_not(lowering: Lowering, node: Node, operator: graph.Not) -> None:
    """Lower to a comparison with false."""
    x = node.inputs[0]
    assert x is not None
    source, order = lowering.read(x), lowering.order(x)
    dest = lowering.write(node.output, order)
    false = lowering.constant(f"{node.name}.false", np.zeros((1,) * len(order), np.bool_))
    lowering.emit(instructions.Compare(relation="equal"), dest, source, false)


@lowers(Cast)
def lower_cast(lowering: Lowering, node: Node, operator: Cast) -> None:
    """Lower to one cast, in the order in which the value lies."""
    x = node.inputs[0]
    assert x is not None
    source, order = lowering.read(x), lowering.order(x)
    lowering.emit(instructions.Cast(), lowering.write(node.output, order), source)

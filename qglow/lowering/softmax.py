"""Softmax over the innermost axis of its buffer."""

from __future__ import annotations

from qglow.graph.graph import Node
from qglow.graph.ops import softmax as graph
from qglow.instructions.ops.softmax import Softmax
from qglow.lowering.context import Lowering
from qglow.lowering.rules import lowers


@lowers(graph.Softmax, graph.LogSoftmax)
def lower_softmax(lowering: Lowering, node: Node, operator: graph.Normalizing) -> None:
    """Lower to one softmax; the value is brought to an order that ends with the axis."""
    x = node.inputs[0]
    assert x is not None
    rank = len(x.type.shape)
    axis = operator.axis % rank
    order = (*(a for a in range(rank) if a != axis), axis)
    source = lowering.read(x, order)
    dest = lowering.write(node.output, order)
    logarithm = isinstance(operator, graph.LogSoftmax)
    masked_to_zero = isinstance(operator, graph.Softmax) and operator.masked_to_zero
    lowering.emit(Softmax(rank - 1, logarithm, masked_to_zero), dest, source)

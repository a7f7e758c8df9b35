"""Softmax over the innermost axis of its buffer."""

from __future__ import annotations

from qglow.graph.graph import Node
from qglow.graph.ops import softmax as graph
from qglow.instructions.ops.softmax import Softmax
from qglow.lowering.context import Lowering
from qglow.lowering.rules import lowers


@lowers(graph.Softmax)
def lower_softmax(lowering: Lowering, node: Node, operator: graph.Softmax) -> None:
    """Lower to one softmax."""
    _lower(lowering, node, operator, masked_to_zero=operator.masked_to_zero)


@lowers(graph.LogSoftmax)
def lower_log_softmax(lowering: Lowering, node: Node, operator: graph.LogSoftmax) -> None:
    """Lower to the logarithm of one softmax."""
    _lower(lowering, node, operator, logarithm=True)


def _lower(
    lowering: Lowering,
    node: Node,
    operator: graph.Normalizing,
    *,
    logarithm: bool = False,
    masked_to_zero: bool = False,
) -> None:
    """Emit a softmax; the value is brought to an order that ends with the axis."""
    x = node.inputs[0]
    assert x is not None
    rank = len(x.type.shape)
    axis = operator.axis % rank
    order = (*(a for a in range(rank) if a != axis), axis)
    source = lowering.read(x, order)
    dest = lowering.write(node.output, order)
    lowering.emit(Softmax(rank - 1, logarithm, masked_to_zero), dest, source)

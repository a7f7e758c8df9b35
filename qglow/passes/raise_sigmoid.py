"""1 / (1 + e^-x), written out, as one Sigmoid: e^-x has no use for the levels of int8.

Segmentation heads write their steep step so (differentiable binarization, M. Liao et al., arXiv:1911.08947).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from qglow.core.passes import Refused
from qglow.graph.graph import Graph, Node, Value
from qglow.graph.operator import Operator
from qglow.graph.ops.elementwise import Add, Div, Mul
from qglow.graph.ops.functions import Exp, Neg, Reciprocal, Sigmoid
from qglow.graph.rewriting import (
    Outcome,
    RewritePass,
    change,
    new_constant,
    operand,
    private,
    producer_of,
    remove_unread,
)
from qglow.passes.matching import holds, orders


@dataclass(frozen=True)
class RaiseSigmoid(RewritePass):
    """Reciprocal of 1 + Exp, or 1 divided by it, becomes the Sigmoid of what Exp reads, negated."""

    name: ClassVar[str] = "raise-sigmoid"

    def rewrite(self, node: Node, graph: Graph) -> Outcome:
        """Raise the pattern that ends in this node."""
        parts = _parts(node)
        if parts is None:
            return None
        refusal = next((r for r in (private(graph, part.output) for part in parts) if r is not None), None)
        if refusal is not None:
            return refusal
        x = operand(parts[1], 0)
        if x.type != node.output.type or not x.type.is_float:
            return Refused(f"%{x.name} is broadcast or not float")
        change(node, Sigmoid(), [_negated(graph, node, x)])
        for part in parts:
            remove_unread(graph, part)
        return "1 / (1 + exp) becomes Sigmoid"


def _parts(node: Node) -> tuple[Node, Node] | None:
    """The Add and the Exp of 1 / (1 + exp)."""
    if node.operator == Reciprocal():
        value = operand(node, 0)
    elif node.operator == Div() and holds(operand(node, 0), 1.0):
        value = operand(node, 1)
    else:
        return None
    add = producer_of(value, Add)
    if add is None or add.operator != Add():
        return None
    for one, power in orders(add):
        exp = producer_of(power, Exp)
        if holds(one, 1.0) and exp is not None:
            return add, exp
    return None


def _negated(graph: Graph, node: Node, x: Value) -> Value:
    """Return -x: what a Neg reads, a product with the negated factor, or a new Neg."""
    producer = x.producer
    if producer is not None and producer.operator == Neg():
        return operand(producer, 0)
    operator: Operator = Neg()
    inputs = [x]
    if producer is not None and producer.operator == Mul():
        for factor, other in orders(producer):
            if factor.data is not None and other.type == x.type:
                opposite = new_constant(graph, f"{factor.name}.negated", np.negative(factor.data))
                operator, inputs = Mul(), [other, opposite]
                break
    result = Value(graph.unique_name(f"{x.name}.negated"), x.type)
    graph.insert_before(node, Node(graph.unique_name(f"{node.name}.negated"), operator, inputs, [result]))
    return result

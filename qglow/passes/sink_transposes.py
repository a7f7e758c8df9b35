"""Transposes move down, towards others that undo them; operators before and after them can then fuse."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from qglow.core.passes import Refused
from qglow.graph.graph import Graph, Node, Value
from qglow.graph.operator import Operator
from qglow.graph.ops.shape import Transpose
from qglow.graph.rewriting import (
    UNMOVED,
    Outcome,
    RewritePass,
    bypass,
    new_constant,
    operand,
    private,
    producer_of,
    sink,
)
from qglow.passes.simplify_algebra import join_transposes

Perm = tuple[int, ...]


@dataclass(frozen=True)
class SinkTransposes(RewritePass):
    """`f(transpose(x))` is `transpose(f'(x))` where an operator says what f' is.

    Pairs that meet are joined, and what puts axes back in order is removed.
    """

    name: ClassVar[str] = "sink-transposes"

    def rewrite(self, node: Node, graph: Graph) -> Outcome:
        """Move the Transpose before one node behind it."""
        if isinstance(node.operator, Transpose):
            return _cancel(node, graph) or join_transposes(node, graph)
        if len(node.outputs) != 1 or node.output.type.is_quantized or node.inputs[:1] in ((), (None,)):
            return None
        values = _moved_together(node)
        transposes = (producer_of(value, Transpose) for value in values)
        mover = next((found for found in transposes if found is not None), None)
        adapted = None if mover is None else node.operator.transposed(_perm(mover))
        if mover is None or adapted is None:
            return None
        movers = _common_movers(graph, values)
        if isinstance(movers, Refused):
            return movers
        if isinstance(adapted, str):
            return Refused(f"Transpose '{mover.name}' {adapted}")
        return _below(graph, movers, node, adapted)


def _cancel(node: Node, graph: Graph) -> Outcome:
    assert isinstance(node.operator, Transpose)
    if node.operator.perm != tuple(range(len(node.operator.perm))):
        return None
    return bypass(graph, node, operand(node, 0)) or "Transpose changes nothing"


def _moved_together(node: Node) -> list[Value]:
    """The operands that have to be transposed alike for the transpose to move behind the node.

    All computed ones of an elementwise operator, whose constants can be transposed back; all of an operator
    of any number of operands; the first one of others.
    """
    if not node.operator.elementwise:
        count = len(node.inputs) if node.operator.operands[0].endswith("*") else 1
        return [operand(node, index) for index in range(count)]
    return [value for value in node.inputs if value is not None and not value.is_constant]


def _below(graph: Graph, movers: list[Node], node: Node, adapted: Operator) -> Outcome:
    """Move one of the Transposes behind the node; the others are no longer read."""
    mover, perm = movers[0], _perm(movers[0])
    elementwise = node.operator.elementwise
    if elementwise and any(value is not None and len(value.type.shape) > len(perm) for value in node.inputs):
        return Refused("a constant has more axes than the transposed operand")
    inputs = list(node.inputs)
    for index, value in enumerate(inputs):
        if value is not None and value.producer in movers:
            inputs[index] = operand(value.producer, 0)
        elif value is not None and elementwise:
            inputs[index] = _untransposed(graph, value, perm)
    for other in dict.fromkeys(movers):
        if other is not mover:
            node.inputs = tuple(value for value in node.inputs if value is not other.output)
            graph.remove(other)
    sink(graph, mover, node, inputs, adapted)
    return f"moved above Transpose '{mover.name}'"


def _common_movers(graph: Graph, values: list[Value]) -> list[Node] | Refused:
    """The Transposes that give all the values, if they are of one permutation and nobody else reads them."""
    movers = [producer_of(value, Transpose) for value in values]
    found = [mover for mover in movers if mover is not None]
    if len(found) < len(movers):
        return Refused("not all its operands are transposed")
    if len({_perm(mover) for mover in found}) > 1:
        return Refused("its operands are transposed in different ways")
    refusals = [private(graph, mover.output) for mover in found]
    return next((refusal for refusal in refusals if refusal is not None), None) or found


def _untransposed(graph: Graph, value: Value, perm: Perm) -> Value:
    """A constant transposed by the inverse of `perm`, to be read before the Transpose instead of after it."""
    if value.type.size == 1 or value.data is None:
        return value
    shape = (1,) * (len(perm) - value.data.ndim) + value.data.shape
    inverse = tuple(perm.index(axis) for axis in range(len(perm)))
    return new_constant(graph, value.name + UNMOVED, np.transpose(value.data.reshape(shape), inverse))


def _perm(mover: Node) -> Perm:
    assert isinstance(mover.operator, Transpose)
    return mover.operator.perm

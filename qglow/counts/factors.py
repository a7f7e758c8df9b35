"""Factors that passes computed of numbers which sizes decide, such as n / (n - 1) of a variance."""

from __future__ import annotations

from collections.abc import Sequence

from qglow.counts.twins import twins_of
from qglow.graph.graph import Graph, Node, Value, constant
from qglow.graph.operator import Operator
from qglow.graph.ops.shape import Reshape
from qglow.graph.rewriting import computed_before, operand


def compute_factors(graphs: Sequence[Graph]) -> None:
    """Let factors of channels be results of nodes that compute them, where sizes decide them.

    graphs: the same model in several sizes, all of which are changed alike. What these nodes read are tensors
    of the file. `x * r + t` is then a Mul and an Add, whose float32 results are the very same.
    """
    for twins in twins_of(graphs):
        factors = [found for node in twins if (found := _factors(node)) is not None]
        if len(factors) < len(twins) or len({_bytes(found) for found in factors}) == 1:
            continue
        if len({_bytes(operand(node, 2)) for node in twins}) == 1:
            for graph, node, found in zip(graphs, twins, factors, strict=True):
                _Work(graph, node).split(found)


def _factors(node: Node) -> Value | None:
    """The factors of a node of floats, if it is known what computed them; else None."""
    if node.operator.factor_and_summand is None:
        return None
    x, factors = operand(node, 0), operand(node, 1)
    known = factors.origin is not None and operand(node, 2).is_constant
    return factors if known and not (x.type.is_quantized or node.output.type.is_quantized) else None


def _bytes(value: Value) -> bytes:
    return b"" if value.data is None else value.data.tobytes()


class _Work:
    """The nodes in front of one that multiplies and adds."""

    def __init__(self, graph: Graph, node: Node) -> None:
        self._graph, self._node = graph, node

    def split(self, factors: Value) -> None:
        """Multiply by factors that nodes compute, and then add."""
        node = self._node
        steps, x, summands = node.operator.factor_and_summand, operand(node, 0), operand(node, 2)
        assert steps is not None and summands.data is not None, "the node has numbers"
        shape = (-1,) + (1,) * (len(x.type.shape) - 2)
        numbers = self._computed(factors)
        if len(x.type.shape) > 2:
            numbers = self._add("factors", Reshape((factors.type.size, *shape[1:])), numbers)
        added = constant(self._graph.unique_name(f"{node.name}__t"), summands.data.reshape(shape))
        node.inputs = (self._add("scaled", steps[0], x, numbers), added)
        node.operator = steps[1]

    def _computed(self, value: Value) -> Value:
        """Result of the nodes that compute a constant, or the tensor of the file that it is."""
        if value.origin is not None:
            inputs = [self._computed(part) for part in value.origin.inputs]
            return self._add("factors", value.origin.operator, *inputs)
        same = (known for known in self._graph.values_named(value.name) if known.data is value.data)
        return next(same, value)

    def _add(self, part: str, operator: Operator, *inputs: Value) -> Value:
        return computed_before(self._graph, self._node, part, operator, *inputs)

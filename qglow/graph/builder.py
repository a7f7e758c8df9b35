"""Graphs written in Python, node by node, with inferred types."""

from __future__ import annotations

from collections.abc import Sequence

from qglow.core.types import Array, Quantization, TensorType
from qglow.graph.graph import Graph, Node, Value, constant
from qglow.graph.operator import Operator, OperatorTypeError


class GraphBuilder:
    """Collects values and nodes; `finish` gives the graph.

    Nodes are called `Op_k`, k counting the nodes of that operator.
    """

    def __init__(self, name: str) -> None:
        self._graph = Graph(name, [], [], [])
        self._taken: set[str] = set()
        self._counts: dict[str, int] = {}

    def input(self, name: str, kind: TensorType) -> Value:
        """Add an input to the graph."""
        value = Value(self._take(name), kind)
        self._graph.inputs.append(value)
        return value

    def constant(self, name: str, array: Array, quantization: Quantization | None = None) -> Value:
        """A constant with the array's element type."""
        return constant(self._take(name), array, quantization)

    def node(
        self,
        operator: Operator,
        *inputs: Value | None,
        name: str | None = None,
        output_types: Sequence[TensorType] | None = None,
    ) -> Value:
        """Append a node with one output, and return that output.

        It is called `name`, or the node's name in lower case. Its type is inferred unless given. Raises
        OperatorTypeError, naming the node.
        """
        return self.append(operator, *inputs, name=name, output_types=output_types).output

    def append(
        self,
        operator: Operator,
        *inputs: Value | None,
        name: str | None = None,
        output_types: Sequence[TensorType] | None = None,
    ) -> Node:
        """Append a node like `node`, for any number of outputs, and return the node itself."""
        count = self._counts.get(operator.name, 0)
        self._counts[operator.name] = count + 1
        wanted = f"{operator.name}_{count}"
        try:
            types = operator.infer([None if v is None else v.type for v in inputs])
        except OperatorTypeError as error:
            raise OperatorTypeError(f"{operator.name} '{wanted}': {error}") from error
        outputs = [
            Value(self._take((name or wanted.lower()) + (f".{index}" if index else "")), kind)
            for index, kind in enumerate(output_types or types)
        ]
        node = Node(self._take(wanted), operator, inputs, outputs)
        self._graph.nodes.append(node)
        return node

    def finish(self, *outputs: Value) -> Graph:
        """The graph with these outputs."""
        self._graph.outputs = list(outputs)
        return self._graph

    def _take(self, wanted: str) -> str:
        name, count = wanted, 0
        while name in self._taken:
            count += 1
            name = f"{wanted}__{count}"
        self._taken.add(name)
        return name

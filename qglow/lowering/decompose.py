"""Decomposition of operators into simpler ones, where the target does not implement them.

The last node of a decomposition produces the very value that the operator produced, so that profiled
statistics and names keep their identity.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from qglow.core.types import Array
from qglow.graph.graph import Graph, Node, Value, constant
from qglow.graph.operator import Operator
from qglow.graph.rule_tables import fills
from qglow.lowering.backend import Backend


@dataclass
class Parts:
    """The nodes that replace `node`, in order. All but the last keep the parameters of their operand."""

    node: Node
    graph: Graph
    nodes: list[Node] = field(default_factory=list)

    def operand(self, index: int = 0) -> Value:
        """A required operand of the node."""
        value = self.node.inputs[index]
        assert value is not None, f"{self.node} lacks operand {index}"
        return value

    def constant(self, part: str, data: Array) -> Value:
        """A constant that only the parts read."""
        return constant(self.graph.unique_name(f"{self.node.name}.{part}"), data)

    def add(self, part: str, operator: Operator, *inputs: Value) -> Value:
        """Append a node that is not the last one, and return its result."""
        (kind,) = operator.infer([value.type for value in inputs])
        quantization = inputs[0].type.quantization
        if quantization is not None:
            kind = kind.quantized(quantization)
        output = self.node.output.name
        result = Value(self.graph.unique_name(f"{output}.{part}"), kind)
        name = f"{self.node.name}.{part}"
        self.nodes.append(Node(name, operator, inputs, [result]))
        return result

    def finish(self, operator: Operator, *inputs: Value | None) -> list[Node]:
        """Append the last node, which produces the outputs of the replaced one, and return all nodes."""
        self.nodes.append(Node(self.node.name, operator, inputs, self.node.outputs))
        return self.nodes


Op = TypeVar("Op", bound=Operator)
Decomposition = Callable[[Op, Parts], list[Node]]
"""Rule of an operator class: returns the nodes that replace a node, from `Parts.finish`."""

DECOMPOSITIONS: dict[type[Operator], Decomposition[Any]] = {}


def decomposes(*operators: type[Op]) -> Callable[[Decomposition[Op]], Decomposition[Op]]:
    """Decorator: the function writes these operators as simpler ones, which need no kernel of their own.

    Raises ValueError if one of them has a decomposition already.
    """
    return fills(DECOMPOSITIONS, operators, "decompositions")


def decompose(graph: Graph, backend: Backend) -> None:
    """Replace, in place, every operator that has a decomposition and that the target does not implement.

    The new nodes are decomposed in turn, except those of an operator class that they came from. An int8
    function of one operand stays whole, because it becomes one look-up table. Raises UnsupportedError if
    an operator cannot be decomposed as it is used.
    """
    done: dict[Node, frozenset[type[Operator]]] = {}
    waiting = list(reversed(graph.nodes))
    while waiting:
        node = waiting.pop()
        kind, before = type(node.operator), done.pop(node, frozenset())
        rule = DECOMPOSITIONS.get(kind)
        if rule is None or kind in before or backend.wants_whole(node.operator) or is_table(node):
            continue
        parts = _replace(graph, node, rule)
        done.update(dict.fromkeys(parts, before | {kind}))
        waiting += reversed(parts)


def decompose_node(graph: Graph, node: Node) -> None:
    """Replace one node, in place, if its operator has a decomposition."""
    rule = DECOMPOSITIONS.get(type(node.operator))
    if rule is not None:
        _replace(graph, node, rule)


def _replace(graph: Graph, node: Node, rule: Decomposition[Any]) -> list[Node]:
    parts = rule(node.operator, Parts(node, graph))
    node.inputs = ()
    graph.nodes.replace(node, parts)
    return parts


def is_table(node: Node) -> bool:
    """Whether a node is a function of one int8 operand with an int8 result: a table of 256 entries."""
    values = [node.inputs[0], *node.outputs] if node.operator.is_tabulated else []
    return bool(values) and all(value is not None and value.type.is_quantized for value in values)

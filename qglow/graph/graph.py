"""The high-level IR: values, nodes and graphs, with use lists kept up to date.

A graph is a list of nodes in topological order. A value is produced by a node, or is an
input of the graph, or is a constant that carries its data.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from qglow.core.types import Array, ElementType, Quantization, TensorType
from qglow.graph.operator import Operator


class Value:
    """A tensor in the graph. `uses` lists (node, operand index) pairs, kept by Node."""

    __slots__ = ("data", "index", "name", "producer", "type", "uses")

    def __init__(self, name: str, kind: TensorType, data: Array | None = None) -> None:
        self.name = name
        self.type = kind
        self.data = data
        self.producer: Node | None = None
        self.index = 0
        self.uses: list[tuple[Node, int]] = []

    @property
    def is_constant(self) -> bool:
        """Whether it carries data."""
        return self.data is not None

    def users(self) -> list[Node]:
        """The nodes that read it, each once, in order of first use."""
        return list(dict.fromkeys(node for node, _ in self.uses))

    def __repr__(self) -> str:
        return f"%{self.name}: {self.type}"


class Node:
    """An operator applied to values."""

    __slots__ = ("_inputs", "name", "operator", "outputs")

    def __init__(
        self, name: str, operator: Operator, inputs: Sequence[Value | None], outputs: Sequence[Value]
    ) -> None:
        self.name = name
        self.operator = operator
        self.outputs = tuple(outputs)
        self._inputs: tuple[Value | None, ...] = ()
        for index, value in enumerate(self.outputs):
            value.producer, value.index = self, index
        self.inputs = tuple(inputs)

    @property
    def inputs(self) -> tuple[Value | None, ...]:
        """The operands; an absent optional one is None. Assigning keeps use lists right."""
        return self._inputs

    @inputs.setter
    def inputs(self, values: Sequence[Value | None]) -> None:
        for old in {v for v in self._inputs if v is not None}:
            old.uses = [use for use in old.uses if use[0] is not self]
        self._inputs = tuple(values)
        for index, value in enumerate(self._inputs):
            if value is not None:
                value.uses.append((self, index))

    @property
    def output(self) -> Value:
        """The first output."""
        return self.outputs[0]

    def operand(self, name: str) -> Value | None:
        """The operand of this declared name; None where it is absent."""
        for index, declared in enumerate(self.operator.operands):
            if declared.rstrip("?*") == name:
                return self._inputs[index] if index < len(self._inputs) else None
        raise KeyError(f"{self.operator.name} declares no operand {name}")

    def input_types(self) -> list[TensorType | None]:
        """Types of the operands."""
        return [None if v is None else v.type for v in self._inputs]

    def output_types(self) -> list[TensorType]:
        """Types of the outputs."""
        return [v.type for v in self.outputs]

    def __repr__(self) -> str:
        return f"{self.operator.name} '{self.name}'"


@dataclass
class Graph:
    """A function from inputs to outputs. `nodes` is in topological order."""

    name: str
    inputs: list[Value]
    outputs: list[Value]
    nodes: list[Node]

    def values(self) -> Iterator[Value]:
        """Every value once: inputs, then constants and node outputs in order of first need."""
        yield from dict.fromkeys(self._all_mentions())

    def constants(self) -> list[Value]:
        """Every constant that a node reads or the graph returns."""
        return [v for v in self.values() if v.is_constant]

    def value(self, name: str) -> Value:
        """The value of this name. Raises KeyError."""
        for value in self.values():
            if value.name == name:
                return value
        raise KeyError(name)

    def node(self, name: str) -> Node:
        """The node of this name. Raises KeyError."""
        for node in self.nodes:
            if node.name == name:
                return node
        raise KeyError(name)

    def is_output(self, value: Value) -> bool:
        """Whether the graph returns the value."""
        return any(value is output for output in self.outputs)

    def replace_value(self, old: Value, new: Value) -> None:
        """Let every user of `old`, and the graph's outputs, take `new`."""
        for node in old.users():
            node.inputs = tuple(new if v is old else v for v in node.inputs)
        self.outputs = [new if v is old else v for v in self.outputs]

    def insert_before(self, anchor: Node | None, node: Node) -> Node:
        """Insert a node before `anchor`, or at the end where it is None."""
        index = len(self.nodes) if anchor is None else self.nodes.index(anchor)
        self.nodes.insert(index, node)
        return node

    def insert_after(self, anchor: Node, node: Node) -> Node:
        """Insert a node after `anchor`."""
        self.nodes.insert(self.nodes.index(anchor) + 1, node)
        return node

    def remove(self, node: Node) -> None:
        """Remove a node whose outputs nobody uses. Raises ValueError otherwise."""
        for value in node.outputs:
            if value.uses or self.is_output(value):
                raise ValueError(f"{node} still has users")
        node.inputs = ()
        self.nodes.remove(node)

    def unique_name(self, wanted: str) -> str:
        """`wanted`, or `wanted` with a number, whichever no node or value has."""
        taken = {v.name for v in self._all_mentions()} | {n.name for n in self.nodes}
        name, count = wanted, 0
        while name in taken:
            count += 1
            name = f"{wanted}__{count}"
        return name

    def sort(self) -> None:
        """Restore topological order, changing it as little as possible. Raises ValueError on a cycle."""
        done: set[Value] = set(self.inputs)
        waiting, ordered = list(self.nodes), []
        while waiting:
            ready = [n for n in waiting if self._is_ready(n, done)]
            if not ready:
                raise ValueError(f"graph {self.name} has a cycle through {waiting[0]}")
            later = []
            for node in waiting:
                if self._is_ready(node, done):
                    ordered.append(node)
                    done.update(node.outputs)
                else:
                    later.append(node)
            waiting = later
        self.nodes = ordered

    def copy(self) -> Graph:
        """A deep copy that shares constants' data."""
        twins: dict[Value, Value] = {}

        def twin(value: Value) -> Value:
            if value not in twins:
                twins[value] = Value(value.name, value.type, value.data)
            return twins[value]

        inputs = [twin(v) for v in self.inputs]
        nodes = [
            Node(
                n.name,
                n.operator,
                [None if v is None else twin(v) for v in n.inputs],
                [twin(v) for v in n.outputs],
            )
            for n in self.nodes
        ]
        return Graph(self.name, inputs, [twin(v) for v in self.outputs], nodes)

    def _all_mentions(self) -> Iterator[Value]:
        yield from self.inputs
        for node in self.nodes:
            yield from (v for v in node.inputs if v is not None)
            yield from node.outputs
        yield from self.outputs

    @staticmethod
    def _is_ready(node: Node, done: set[Value]) -> bool:
        return all(v is None or v.is_constant or v in done for v in node.inputs)


def constant(name: str, data: Array, quantization: Quantization | None = None) -> Value:
    """A constant value; its element type is the array's."""
    return Value(name, TensorType(ElementType.of(data.dtype), tuple(data.shape), quantization), data)


def names(values: Iterable[Value]) -> list[str]:
    """Names of values, in order."""
    return [v.name for v in values]

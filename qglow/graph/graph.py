"""The high-level IR: values, nodes and graphs, with use lists kept up to date.

A graph is a list of nodes in topological order. A value is produced by a node, or is an
input of the graph, or is a constant that carries its data.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from qglow.core.ordered import Ordered
from qglow.core.types import Array, ElementType, Quantization, TensorType
from qglow.graph.operator import Operator
from qglow.host.tail import HostedTail


class Value:
    """A tensor in the graph. `uses` holds (node, operand index) pairs in order, kept by Node.

    origin: what computed a constant of other constants, if that is remembered.
    """

    __slots__ = ("_name", "data", "index", "origin", "producer", "type", "uses")

    def __init__(
        self, name: str, kind: TensorType, data: Array | None = None, origin: Origin | None = None
    ) -> None:
        self._name = name
        self.type = kind
        self.data = data
        self.origin = origin
        self.producer: Node | None = None
        self.index = 0
        self.uses: dict[tuple[Node, int], None] = {}

    @property
    def name(self) -> str:
        """The name. Assigning updates the name index of the graphs whose nodes compute or read the value."""
        return self._name

    @name.setter
    def name(self, name: str) -> None:
        self._name = name
        for node in (self.producer, *self.users()):
            if node is not None:
                node.tell(self)

    @property
    def is_constant(self) -> bool:
        """Whether it carries data."""
        return self.data is not None

    def users(self) -> list[Node]:
        """The nodes that read it, each once, in order of first use."""
        return list(dict.fromkeys(node for node, _ in self.uses))

    def __repr__(self) -> str:
        return f"%{self.name}: {self.type}"


class Origin:
    """The operator and the operands, constants of no graph, that a constant has all bits of its data from."""

    __slots__ = ("inputs", "operator")

    def __init__(self, operator: Operator, *inputs: Value) -> None:
        self.operator = operator
        self.inputs = tuple(Value(v.name, v.type, v.data, v.origin) for v in inputs)


class Node:
    """An operator applied to values."""

    __slots__ = ("_inputs", "_name", "_outputs", "graph", "operator")

    def __init__(
        self, name: str, operator: Operator, inputs: Sequence[Value | None], outputs: Sequence[Value]
    ) -> None:
        self.graph: Graph | None = None
        self._name = name
        self.operator = operator
        self._outputs = tuple(outputs)
        self._inputs: tuple[Value | None, ...] = ()
        for index, value in enumerate(self.outputs):
            value.producer, value.index = self, index
        self.inputs = tuple(inputs)

    @property
    def name(self) -> str:
        """The name. Assigning updates the name index of the node's graph."""
        return self._name

    @name.setter
    def name(self, name: str) -> None:
        self._name = name
        self.tell(self)

    def tell(self, *named: Value | Node | None) -> None:
        """Add these values and nodes to the name index of the node's graph, if it is in one."""
        if self.graph is not None:
            self.graph.learn_names(named)

    @property
    def inputs(self) -> tuple[Value | None, ...]:
        """The operands; an absent optional one is None. Assigning updates use lists."""
        return self._inputs

    @inputs.setter
    def inputs(self, values: Sequence[Value | None]) -> None:
        for index, old in enumerate(self._inputs):
            if old is not None:
                old.uses.pop((self, index), None)
                if old.is_constant and not old.uses and self.graph is not None:
                    self.graph.forget_name(old)
        self._inputs = tuple(values)
        for index, value in enumerate(self._inputs):
            if value is not None:
                value.uses[self, index] = None
        self.tell(*self._inputs)

    @property
    def outputs(self) -> tuple[Value, ...]:
        """The results. Code that assigns them must set their `producer` and `index`."""
        return self._outputs

    @outputs.setter
    def outputs(self, values: Sequence[Value]) -> None:
        self._outputs = tuple(values)
        self.tell(*self._outputs)

    @property
    def output(self) -> Value:
        """The first output."""
        return self.outputs[0]

    def operand(self, name: str) -> Value | None:
        """The operand of this declared name; None if it is absent."""
        index = self.operator.place_of(name)
        return self._inputs[index] if index < len(self._inputs) else None

    def input_types(self) -> list[TensorType | None]:
        """Types of the operands."""
        return [None if v is None else v.type for v in self._inputs]

    def output_types(self) -> list[TensorType]:
        """Types of the outputs."""
        return [v.type for v in self.outputs]

    def __repr__(self) -> str:
        return f"{self.operator.name} '{self.name}'"


class Nodes(Ordered[Node]):
    """The nodes of a graph, in its order. Each refers to the graph while it is in it."""

    def __init__(self, graph: Graph, nodes: Iterable[Node]) -> None:
        self._graph = graph
        super().__init__(nodes)

    def _insert(self, before: Node | None, item: Node, after: Node | None) -> None:
        super()._insert(before, item, after)
        item.graph = self._graph
        item.tell(item, *item.inputs, *item.outputs)

    def remove(self, item: Node) -> None:
        """Remove a node. Raises KeyError for one that is not there."""
        super().remove(item)
        item.graph = None


class Graph:
    """A function from inputs to outputs. `nodes` is in topological order.

    tail: nodes that onnxruntime runs on some of the inputs and outputs once these are there, because data
    decides the shapes of what they give; None for a graph that is the whole model. No pass changes it, and
    what it reads stays float under its name.

    Look-ups by name use an index of candidates, which may be outdated: each is checked when it is found.
    """

    def __init__(
        self,
        name: str,
        inputs: list[Value],
        outputs: list[Value],
        nodes: Iterable[Node],
        tail: HostedTail | None = None,
    ) -> None:
        self.name = name
        self.tail = tail
        self.inputs = inputs
        self.outputs = outputs
        self._named: dict[str, dict[Value | Node, None]] = {}
        self._nodes = Nodes(self, nodes)

    @property
    def nodes(self) -> Nodes:
        """The nodes. Assigning replaces them by others, or by the same in another order."""
        return self._nodes

    @nodes.setter
    def nodes(self, nodes: Iterable[Node]) -> None:
        wanted = list(nodes)
        for node in self._nodes:
            node.graph = None
        self._nodes = Nodes(self, wanted)

    @property
    def has_blocks(self) -> bool:
        """Whether weights or a table of a node are integers in blocks."""
        return any(node.operator.weight_blocks or node.operator.table_blocks for node in self._nodes)

    def learn_names(self, named: Iterable[Value | Node | None]) -> None:
        """Add nodes and values to the name index. The graph's nodes call this."""
        for one in named:
            if one is not None:
                self._named.setdefault(one.name, {})[one] = None

    def forget_name(self, constant: Value) -> None:
        """Remove a constant without readers from the name index: its data may be large. Nodes call this."""
        self._named.get(constant.name, {}).pop(constant, None)

    def nodes_named(self, name: str) -> list[Node]:
        """Every node of this name, in no order."""
        found = self._named.get(name, ())
        return [one for one in found if isinstance(one, Node) and one.name == name and one.graph is self]

    def values_named(self, name: str) -> list[Value]:
        """Every value of this name that a node computes or reads, or an input or output, in no order."""
        found = [one for one in self._named.get(name, ()) if isinstance(one, Value)]
        inside = [one for one in found if one.name == name and self._is_at_a_node(one)]
        outside = [one for one in (*self.inputs, *self.outputs) if one.name == name]
        return list(dict.fromkeys([*inside, *outside]))

    def _is_at_a_node(self, value: Value) -> bool:
        node = value.producer
        if node is not None and node.graph is self and any(value is output for output in node.outputs):
            return True
        return any(node.graph is self for node, _ in value.uses)

    def values(self) -> Iterator[Value]:
        """Every value once: inputs, then constants and node outputs in order of first need."""
        yield from dict.fromkeys(self._all_mentions())

    def constants(self) -> list[Value]:
        """Every constant that a node reads or the graph returns."""
        return [v for v in self.values() if v.is_constant]

    def value(self, name: str) -> Value:
        """The value of this name. Raises KeyError."""
        for value in self.values_named(name):
            return value
        raise KeyError(name)

    def node(self, name: str) -> Node:
        """The node of this name. Raises KeyError."""
        for node in self.nodes_named(name):
            return node
        raise KeyError(name)

    def is_output(self, value: Value) -> bool:
        """Whether the graph returns the value."""
        return any(value is output for output in self.outputs)

    def regions(self) -> list[Graph]:
        """The graphs that its nodes run, in the order of the nodes; not those inside of these."""
        return [
            region for node in self._nodes if node.operator.region_names for region in node.operator.regions
        ]

    def replace_value(self, old: Value, new: Value) -> None:
        """Replace `old` by `new` in the operands of all nodes and in the graph's outputs."""
        for node in old.users():
            node.inputs = tuple(new if v is old else v for v in node.inputs)
        self.outputs = [new if v is old else v for v in self.outputs]

    def insert_before(self, anchor: Node | None, node: Node) -> Node:
        """Insert a node before `anchor`, or at the end where it is None."""
        self.nodes.insert_before(anchor, node)
        return node

    def insert_after(self, anchor: Node, node: Node) -> Node:
        """Insert a node after `anchor`."""
        self.nodes.insert_after(anchor, node)
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
        name, count = wanted, 0
        while self.nodes_named(name) or self.values_named(name):
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
        """A deep copy, regions included, that shares constants' data."""
        twins: dict[Value, Value] = {}

        def twin(value: Value) -> Value:
            if value not in twins:
                twins[value] = Value(value.name, value.type, value.data, value.origin)
            return twins[value]

        inputs = [twin(v) for v in self.inputs]
        nodes = [
            Node(
                n.name,
                n.operator.with_regions([region.copy() for region in n.operator.regions])
                if n.operator.region_names
                else n.operator,
                [None if v is None else twin(v) for v in n.inputs],
                [twin(v) for v in n.outputs],
            )
            for n in self.nodes
        ]
        return Graph(self.name, inputs, [twin(v) for v in self.outputs], nodes, self.tail)

    def _all_mentions(self) -> Iterator[Value]:
        yield from self.inputs
        for node in self.nodes:
            yield from (v for v in node.inputs if v is not None)
            yield from node.outputs
        yield from self.outputs

    @staticmethod
    def _is_ready(node: Node, done: set[Value]) -> bool:
        return all(v is None or v.is_constant or v in done for v in node.inputs)


def nested(graph: Graph, path: str = "") -> Iterator[tuple[str, Graph]]:
    """A graph and all regions inside of it, each with what precedes names of its values and nodes.

    Names are unique within one graph: "" comes with the graph itself, and "node.region/" with a region.
    """
    yield path, graph
    for node in graph.nodes:
        for name, region in zip(node.operator.region_names, node.operator.regions, strict=True):
            yield from nested(region, f"{path}{node.name}.{name}/")


def constant(name: str, data: Array, quantization: Quantization | None = None) -> Value:
    """A constant value; its element type is the array's."""
    return Value(name, TensorType(ElementType.of(data.dtype), tuple(data.shape), quantization), data)


def names(values: Iterable[Value]) -> list[str]:
    """Names of values, in order."""
    return [v.name for v in values]


def typed_outputs(graph: Graph) -> dict[str, TensorType]:
    """Names and types of the model's outputs with static types, in its order."""
    types = {value.name: value.type for value in graph.outputs}
    return types if graph.tail is None else {n: types[n] for n in graph.tail.outputs if n in types}


def untyped_outputs(graph: Graph) -> tuple[str, ...]:
    """Names of the model's outputs whose shapes data decides."""
    return () if graph.tail is None else graph.tail.results


def unsigned_interface(graph: Graph) -> set[str]:
    """Names of the inputs and outputs that are uint8 for callers."""
    return {value.name for value in (*graph.inputs, *graph.outputs) if value.type.unsigned}


def mark_unsigned(graph: Graph, names: Collection[str]) -> None:
    """Let the int8 inputs and outputs of these names be uint8 for callers."""
    for value in (*graph.inputs, *graph.outputs):
        quantization = value.type.quantization
        if value.name in names and quantization is not None and not quantization.is_wide:
            value.type = replace(value.type, unsigned=True)

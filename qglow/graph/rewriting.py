"""Rewriting of graphs: the loop that applies rules, and the edits that rules use."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from qglow.core.errors import InternalError
from qglow.core.passes import Pass, PassLog, Refused
from qglow.core.types import Array
from qglow.graph.graph import Graph, Node, Value, constant
from qglow.graph.operator import Operator

Outcome = str | Refused | None
"""What a rule did, in words; why it refused although its pattern matched; or None without a match."""

UNMOVED = ".unmoved"
"""What the name of a value ends in that was computed before its elements are moved to their places."""
_MOST_SWEEPS = 1000


@dataclass(frozen=True)
class RewritePass(Pass[Graph]):
    """A pass that offers every node to one rule until nothing changes any more."""

    @abstractmethod
    def rewrite(self, node: Node, graph: Graph) -> Outcome:
        """Do at most one rewrite that starts at `node`, in place."""

    def run(self, ir: Graph, log: PassLog) -> None:
        """Sweep over the nodes in order until a sweep changes nothing or the budget is used up.

        Only the refusals of the last sweep are logged: earlier ones may have been overcome.
        """
        for _ in range(_MOST_SWEEPS):
            if not self._sweep(ir, log):
                return
        raise InternalError(f"pass {self.name} does not come to an end on graph {ir.name}")

    def _sweep(self, graph: Graph, log: PassLog) -> bool:
        changed = False
        refusals: list[tuple[str, str]] = []
        for node in list(graph.nodes):
            if log.exhausted:
                return False
            if node not in graph.nodes:
                continue
            outcome = self.rewrite(node, graph)
            if isinstance(outcome, Refused):
                refusals.append((node.name, outcome.reason))
            elif outcome is not None:
                log.applied(node.name, outcome)
                changed = True
        if not changed:
            for where, reason in refusals:
                log.refused(where, reason)
        return changed


def operand(node: Node, index: int = 0) -> Value:
    """A required operand."""
    value = node.inputs[index]
    if value is None:
        raise InternalError(f"{node} lacks operand {index}")
    return value


def producer_of(value: Value, *operators: type[Operator]) -> Node | None:
    """The node that computes the value, where its operator is one of these."""
    node = value.producer
    return node if node is not None and isinstance(node.operator, operators) else None


def private(graph: Graph, value: Value) -> Refused | None:
    """Reason why a value may not disappear into its only user: others see it. None if it may."""
    if graph.is_output(value):
        return Refused(f"%{value.name} is an output of the graph")
    users = value.users()
    if len(users) > 1:
        return Refused(f"%{value.name} has {len(users)} users")
    return None


def only_user(graph: Graph, value: Value) -> Node | None:
    """The node that reads a value, if there is one, no other does, and the graph does not return it."""
    users = [] if graph.is_output(value) else value.users()
    return users[0] if len(users) == 1 else None


def other_operand(node: Node, value: Value) -> Value | None:
    """The other operand of a node that has two, one of which is the value; None if it is no such node."""
    if len(node.inputs) != 2 or node.inputs.count(value) != 1:
        return None
    return next(v for v in node.inputs if v is not value)


def is_constant_row(value: Value | None, columns: int) -> bool:
    """Whether a value is a constant with one float for each element of the last axis."""
    if value is None or value.data is None or not value.type.is_float:
        return False
    *outer, last = value.type.shape or (0,)
    return last == columns and all(extent == 1 for extent in outer)


def enclosed(graph: Graph, parts: Sequence[Node], last: Node) -> Refused | None:
    """Reason why nodes may not disappear into `last`: others see their results. None if they may."""
    inside = {*parts, last}
    for value in (value for part in parts for value in part.outputs):
        if graph.is_output(value):
            return Refused(f"%{value.name} is an output of the graph")
        reader = next((user for user in value.users() if user not in inside), None)
        if reader is not None:
            return Refused(f"%{value.name} is read by {reader.name} too")
    return None


def dequantized_constant(value: Value | None) -> Value | None:
    """The integers that a value is dequantized from, where these are constant."""
    if value is None or value.producer is None or not value.producer.operator.dequantizes:
        return None
    source = value.producer.inputs[0]
    return source if source is not None and source.is_constant else None


def constant_data(value: Value | None) -> Array | None:
    """Data of a constant; None for an absent or computed value."""
    return None if value is None else value.data


def new_constant(graph: Graph, wanted: str, data: Array) -> Value:
    """A constant called `wanted`, with a number if that name is taken."""
    return constant(graph.unique_name(wanted), np.asarray(data, order="C"))


def computed_before(graph: Graph, node: Node, part: str, operator: Operator, *inputs: Value) -> Value:
    """Result of a new node in front of another one, which is named after it and a part."""
    name = graph.unique_name(f"{node.name}__{part}")
    (kind,) = operator.infer([value.type for value in inputs])
    result = Value(name, kind)
    graph.insert_before(node, Node(name, operator, inputs, (result,)))
    return result


def change(node: Node, operator: Operator, inputs: Sequence[Value | None] | None = None) -> Node:
    """Change a node in place to compute something else of the same type, under its name."""
    node.operator = operator
    if inputs is not None:
        node.inputs = tuple(inputs)
    return node


def give_result(node: Node, result: Value) -> None:
    """Replace the only result of a node; another node has to produce the old one."""
    node.outputs = (result,)
    result.producer, result.index = node, 0


def fuse(graph: Graph, first: Node, last: Node, operator: Operator, inputs: Sequence[Value | None]) -> Node:
    """Replace a producer and its only user by one node, which keeps the name of the first.

    It stands where the last stood and computes the very values of the last.
    """
    first.inputs = last.inputs = ()
    fused = Node(first.name, operator, inputs, last.outputs)
    graph.nodes.replace(last, [fused])
    graph.nodes.remove(first)
    return fused


def remove_unread(graph: Graph, node: Node) -> None:
    """Remove a node without readers, because it would count as a user of its operands."""
    if not any(value.uses or graph.is_output(value) for value in node.outputs):
        graph.remove(node)


def sink(graph: Graph, mover: Node, node: Node, inputs: Sequence[Value | None], operator: Operator) -> None:
    """Move `mover` from an operand of `node` to its result; `node` then computes `operator` of `inputs`.

    Both keep their names, and the result keeps its own; `mover` must have no other user.
    """
    result = node.output
    kinds = operator.infer([None if value is None else value.type for value in inputs])
    moved = Value(graph.unique_name(result.name + UNMOVED), kinds[0])
    node.operator, node.inputs = operator, tuple(inputs)
    node.outputs = (moved,)
    moved.producer, moved.index = node, 0
    graph.nodes.remove(mover)
    mover.inputs = (moved,)
    mover.outputs = (result,)
    result.producer, result.index = mover, 0
    graph.insert_after(node, mover)


def bypass(graph: Graph, node: Node, source: Value) -> Refused | None:
    """Remove a node whose only result equals `source`; None when done.

    An output of the graph keeps its name: `source` then takes that name. Refused if `source` is an input,
    a constant or an output, because its own name is visible to callers.
    """
    result = node.output
    if not graph.is_output(result):
        graph.replace_value(result, source)
        graph.remove(node)
        return None
    producer = source.producer
    if producer is None:
        what = "a constant" if source.is_constant else "an input of the graph"
        return Refused(f"%{result.name} is an output of the graph and %{source.name} {what}")
    if graph.is_output(source):
        return Refused(f"%{result.name} and %{source.name} are both outputs of the graph")
    node.inputs = ()
    graph.nodes.remove(node)
    graph.replace_value(source, result)
    outputs = list(producer.outputs)
    outputs[source.index] = result
    producer.outputs = tuple(outputs)
    result.producer, result.index = producer, source.index
    return None

"""Which int8 regions are worth their borders.

An island is a maximal set of connected int8 nodes. Its borders convert between float and int8.
The cost model counts float32 elements touched: a conversion touches each element of its
value once, and int8 saves most of that on elementwise work and movement. An island with a
convolution or a matrix product always pays: int8 is several times faster there and its weights
are a quarter of the size. A node at the end of an island whose table would only be undone by
a dequantize stays float, as does an island of light nodes that costs more than it saves.
"""

from __future__ import annotations

from collections.abc import Iterable

from qglow.graph.graph import Graph, Node, Value
from qglow.graph.operator import Accumulate, SameAs, Table
from qglow.quantization.placement import FloatReasons, data_operands, handles_reals

CONVERSION = 1.0
"""Cost of a conversion, an element."""
ELEMENTWISE_SAVING = 0.75
"""What int8 saves on elementwise work or movement, an element: a quarter of the bytes."""
SMALL_TAIL = 16384
"""Elements up to which a function at the end of an island is left in float."""

Island = list[Node]


def plan_islands(graph: Graph, reasons: FloatReasons) -> list[Island]:
    """The islands worth having; nodes given up are added to `reasons`."""
    _trim_tails(graph, reasons)
    islands = []
    for island in connected(graph, [n for n in graph.nodes if handles_reals(n) and n not in reasons]):
        refusal = _refusal(graph, island)
        if refusal is None:
            islands.append(island)
        else:
            reasons.update(dict.fromkeys(island, refusal))
    return islands


def connected(graph: Graph, nodes: Iterable[Node]) -> list[Island]:
    """The nodes in groups that are joined by values, groups and members in graph order."""
    order = {node: index for index, node in enumerate(graph.nodes)}
    waiting = set(nodes)
    islands = []
    for first in sorted(waiting, key=order.__getitem__):
        if first not in waiting:
            continue
        waiting.discard(first)
        island, border = [first], [first]
        while border:
            for node in _neighbours(border.pop()):
                if node in waiting:
                    waiting.discard(node)
                    island.append(node)
                    border.append(node)
        islands.append(sorted(island, key=order.__getitem__))
    return islands


def _neighbours(node: Node) -> list[Node]:
    found = [v.producer for v in _data(node) if v.producer is not None]
    return found + [user for v in node.outputs for user in v.users() if any(v is d for d in _data(user))]


def _data(node: Node) -> list[Value]:
    values = [node.inputs[i] for i in data_operands(node) if i < len(node.inputs)]
    return [v for v in values if v is not None and not v.is_constant]


def _trim_tails(graph: Graph, reasons: FloatReasons) -> None:
    """Give up small functions whose results leave int8 at once: their inputs can be float directly."""
    for node in reversed(graph.nodes):
        if node in reasons or not isinstance(node.operator.policy, Table) or not handles_reals(node):
            continue
        leaves = all(user in reasons for user in node.output.users())
        if leaves and node.output.type.size <= SMALL_TAIL and _could_be_float(graph, node.inputs[0], node):
            reasons[node] = "its result leaves int8 at once: a table would cost a conversion and save nothing"


def _could_be_float(graph: Graph, value: Value | None, user: Node) -> bool:
    """Whether the value's producer can give it in float for `user` alone."""
    if value is None or graph.is_output(value) or value.users() != [user]:
        return False
    producer = value.producer
    return producer is None or isinstance(producer.operator.policy, Accumulate)


def _refusal(graph: Graph, island: Island) -> str | None:
    if any(isinstance(node.operator.policy, Accumulate) for node in island):
        return None
    members = set(island)
    saving = ELEMENTWISE_SAVING * sum(node.output.type.size for node in island)
    entering = {v for node in island for v in _data(node) if v.producer not in members}
    leaving = {v for node in island for v in node.outputs if _leaves(graph, v, members)}
    cost = CONVERSION * sum(v.type.size for v in entering | leaving)
    if saving > cost:
        return None
    kind = "movement of" if all(isinstance(n.operator.policy, SameAs) for n in island) else "work on"
    return f"int8 would save {saving:.0f} in {kind} its elements and cost {cost:.0f} in conversions around it"


def _leaves(graph: Graph, value: Value, members: set[Node]) -> bool:
    return graph.is_output(value) or any(user not in members for user in value.users())

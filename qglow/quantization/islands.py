"""Which int8 regions are worth their borders.

An island is a maximal set of connected int8 nodes. Its borders convert between float and int8.
The cost model counts bytes that need not move. Costs: a conversion touches the float form of every
element that crosses a border, 4 bytes; where sums give float themselves nothing is converted. Gains:
an int8 node writes 3 bytes less an element of its result; a Conv or Gemm reads 3 bytes less a weight,
and each of its multiplications is worth a quarter of a byte, as vectors hold four times as many; so they
are in a product of two activations.
An island with weights always pays, whatever its size: they are a quarter. A node at the end of an
island whose table would only be undone by a dequantize stays float, as does an island of light nodes
that costs more than it gains, and what lies between such a product, which gives float itself, and a
float operator. Reports show both figures of every island, and the cost of every border.
"""

from __future__ import annotations

from collections.abc import Iterable

from qglow.graph.graph import Graph, Node, Value
from qglow.graph.operator import Accumulate, Products, ReadsIntegers, Rescaled, SameAs, Table, Unify
from qglow.quantization.placement import FloatReasons, data_operands, handles_reals

CONVERSION = 4
"""Cost of a conversion, bytes an element."""
SAVING = 3
"""What int8 saves on every element of a result and on every weight, in bytes."""
MULTIPLICATION = 0.25
"""What a multiplication in int8 is worth, in bytes."""
SMALL_TAIL = 16384
"""Elements up to which a function at the end of an island is left in float."""

Island = list[Node]


def plan_islands(graph: Graph, reasons: FloatReasons) -> list[Island]:
    """The islands worth having; nodes given up are added to `reasons`."""
    _trim_tails(graph, reasons)
    _release_products(graph, reasons)
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


def _release_products(graph: Graph, reasons: FloatReasons) -> None:
    """Give up light nodes between products and float operators, as between scores and their Softmax.

    A mask of large negative numbers in int8 would leave no steps for the scores.
    """
    for node in reversed(graph.nodes):
        if node in reasons or not handles_reals(node) or not _is_light(node):
            continue
        if not all(user in reasons for user in node.output.users()):
            continue
        roots = [root for value in _data(node) for root in _roots(graph, value, node, reasons)]
        products = [r for r in roots if r is not None and isinstance(r.operator.policy, Products)]
        if products and len(products) == sum(r not in reasons for r in roots if r is not None):
            reasons[node] = f"it lies between {products[0]}, which gives float itself, and float operators"


def _is_light(node: Node) -> bool:
    return isinstance(node.operator.policy, Rescaled | Table | Unify | SameAs)


def _roots(graph: Graph, value: Value, user: Node, reasons: FloatReasons) -> list[Node | None]:
    """What computes a value, seen through light nodes of one user; None for an input of the graph."""
    producer = value.producer
    single = value.users() == [user] and not graph.is_output(value)
    if producer is None or producer in reasons or not single or not _is_light(producer):
        # A product that others read too would have to give both int8 and float.
        return [producer]
    return [root for v in _data(producer) for root in _roots(graph, v, producer, reasons)]


def _refusal(graph: Graph, island: Island) -> str | None:
    if any(isinstance(node.operator.policy, Accumulate) for node in island):
        return None
    members = set(island)
    entering = {v for node in island for v in _data(node) if v.producer not in members}
    leaving = {v for n in island for v in n.outputs if _leaves(graph, v, members) and not _gives(v, members)}
    saved, cost = gain(island), CONVERSION * sum(v.type.size for v in entering | leaving)
    if saved > cost:
        return None
    kind = "movement of" if all(isinstance(n.operator.policy, SameAs) for n in island) else "work on"
    return f"int8 would save {saved} bytes in {kind} its elements and cost {cost} in conversions around it"


def _gives(value: Value, members: set[Node]) -> bool:
    """Whether the value is a product that nothing in the island reads: it is float without a conversion."""
    producer = value.producer
    assert producer is not None
    return isinstance(producer.operator.policy, Products) and not members.intersection(value.users())


def gain(island: Island) -> int:
    """Bytes that int8 is worth in these nodes, without their borders."""
    return sum(SAVING * node.output.type.size + _sums(node) for node in island)


def _sums(node: Node) -> int:
    """What int8 weights and multiplications are worth, in bytes."""
    policy = node.operator.policy
    if isinstance(policy, Products):
        left = node.inputs[0]
        assert left is not None
        return int(MULTIPLICATION * node.output.type.size * left.type.shape[-1])
    weights = node.operand(policy.w) if isinstance(policy, Accumulate) else None
    if weights is None or not weights.type.size:
        return 0
    channels = weights.type.shape[0 if len(weights.type.shape) == 4 else -1]
    products = node.output.type.size * weights.type.size // channels
    return SAVING * weights.type.size + int(MULTIPLICATION * products)


def _leaves(graph: Graph, value: Value, members: set[Node]) -> bool:
    """Whether anything outside reads the value in float."""
    others = [user for user in value.users() if user not in members]
    return graph.is_output(value) or any(not isinstance(u.operator.policy, ReadsIntegers) for u in others)

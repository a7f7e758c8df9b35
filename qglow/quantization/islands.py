"""Choice of the int8 regions that are worth the conversions at their borders.

An island is a maximal connected set of int8 nodes; values are converted between float and int8 at its
borders. The cost model counts bytes of memory traffic:

- Cost: a conversion reads or writes the float form of every element that crosses a border, 4 bytes each.
  A sum of products that gives float itself needs no conversion.
- Gain: an int8 node writes 3 bytes less per element of its result, and a sum of products reads 3 bytes
  less per weight. Each multiplication, with a weight or of two activations, counts as a quarter of a
  byte, because a vector holds four times as many int8 elements as floats.

An island with weights is always kept, whatever its size: its weights take a quarter of the memory. An
island of light nodes alone stays float unless it gains more than it costs. Two kinds of nodes are left in
float before islands are formed: small tabulated functions whose results are dequantized at once, and light
nodes between a product of two activations, which gives float itself, and a float operator. Reports show
cost and gain of every island, and the cost of every border.
"""

from __future__ import annotations

from collections.abc import Iterable

from qglow.graph.graph import Graph, Node, Value
from qglow.quantization.placement import FloatReasons, data_operands, handles_reals

CONVERSION = 4
"""Cost of a conversion, bytes an element."""
SAVING = 3
"""Bytes that int8 saves per element of a result and per weight."""
MULTIPLICATION = 0.25
"""Gain of a multiplication in int8, in bytes."""
SMALL_TAIL = 16384
"""Elements up to which a function at the end of an island is left in float."""

Island = list[Node]


def plan_islands(graph: Graph, reasons: FloatReasons) -> list[Island]:
    """Return the islands worth having; nodes that are left in float are added to `reasons`."""
    _trim_tails(graph, reasons)
    release_products(graph, reasons)
    islands = []
    for island in connected(graph, [n for n in graph.nodes if handles_reals(n) and n not in reasons]):
        refusal = _refusal(graph, island)
        if refusal is None:
            islands.append(island)
        else:
            reasons.update(dict.fromkeys(island, refusal))
    return islands


def connected(graph: Graph, nodes: Iterable[Node]) -> list[Island]:
    """Return the groups of nodes that values connect; groups and their members are in graph order."""
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
    """Leave small functions in float that only float nodes read and whose input can be given in float."""
    for node in reversed(graph.nodes):
        if node in reasons or not node.operator.is_tabulated or not handles_reals(node):
            continue
        leaves = all(user in reasons for user in node.output.users())
        if leaves and node.output.type.size <= SMALL_TAIL and _could_be_float(graph, node.inputs[0], node):
            reasons[node] = "its result leaves int8 at once: a table would cost a conversion and save nothing"


def _could_be_float(graph: Graph, value: Value | None, user: Node) -> bool:
    """Whether the value's producer can give it in float for `user` alone."""
    if value is None or graph.is_output(value) or value.users() != [user]:
        return False
    producer = value.producer
    return producer is None or producer.operator.accumulate is not None


def release_products(graph: Graph, reasons: FloatReasons) -> None:
    """Leave light nodes in float that lie between products of activations and float operators.

    An example is the mask of attention scores: its large negative numbers would leave the scores no
    levels in int8. The mask itself, which several layers may share, becomes float by a conversion: that pays
    as long as it has fewer elements than the products.
    """
    for node in reversed(graph.nodes):
        if node in reasons or not handles_reals(node) or not _is_light(node):
            continue
        if not all(user in reasons for user in node.output.users()):
            continue
        roots = [root for value in _data(node) for root in _roots(graph, value, node, reasons)]
        computed = {v: v.producer for v in roots if v.producer is not None and v.producer not in reasons}
        products = {v: node for v, node in computed.items() if node.operator.multiplies_activations}
        if products and _size(computed) < 2 * _size(products):
            first = next(iter(products.values()))
            reasons[node] = f"it lies between {first}, which gives float itself, and float operators"


def _size(values: Iterable[Value]) -> int:
    return sum(value.type.size for value in values)


def _is_light(node: Node) -> bool:
    return node.operator.is_light


def _roots(graph: Graph, value: Value, user: Node, reasons: FloatReasons) -> list[Value]:
    """Return what a value is computed from, looking through light nodes that have a single user."""
    roots: list[Value] = []
    waiting = [(value, user)]
    while waiting:
        value, user = waiting.pop()
        producer = value.producer
        single = value.users() == [user] and not graph.is_output(value)
        if producer is None or producer in reasons or not single or not _is_light(producer):
            # A product with other readers would have to give both int8 and float.
            roots.append(value)
        else:
            waiting += [(operand, producer) for operand in reversed(list(_data(producer)))]
    return roots


def _refusal(graph: Graph, island: Island) -> str | None:
    if any(node.operator.accumulate or node.operator.recurs for node in island):
        return None
    members = set(island)
    entering = {v for node in island for v in _data(node) if v.producer not in members}
    leaving = {v for v in (n.output for n in island) if _leaves(graph, v, members) and not _gives(v, members)}
    saved, cost = gain(island), CONVERSION * sum(v.type.size for v in entering | leaving)
    if saved > cost:
        return None
    kind = "movement of" if all(n.operator.kept_operand is not None for n in island) else "work on"
    return f"int8 would save {saved} bytes in {kind} its elements and cost {cost} in conversions around it"


def _gives(value: Value, members: set[Node]) -> bool:
    """Whether the value is a product of activations that nothing in the island reads.

    Such a product gives float without a conversion.
    """
    producer = value.producer
    assert producer is not None
    return producer.operator.multiplies_activations and not members.intersection(value.users())


def gain(island: Island) -> int:
    """Return the bytes that int8 saves in these nodes, without the cost of their borders."""
    return sum(SAVING * node.output.type.size + _sums(node) for node in island)


def _sums(node: Node) -> int:
    """Return the gain of a node's int8 weights and multiplications, in bytes."""
    operator = node.operator
    if operator.recurs is not None:
        w = node.operand(operator.recurs.w)
        steps, batch, _ = node.output.type.shape
        return (
            0 if w is None else w.type.size * SAVING + int(MULTIPLICATION * w.type.size * (steps - 1) * batch)
        )
    if operator.multiplies_activations:
        left = node.inputs[0]
        assert left is not None
        return int(MULTIPLICATION * node.output.type.size * left.type.shape[-1])
    weights = None if operator.accumulate is None else node.operand(operator.accumulate.w)
    if weights is None or operator.filters is None or not weights.type.size:
        return 0
    channels = weights.type.shape[operator.filters.outputs]
    products = node.output.type.size * weights.type.size // channels
    return SAVING * weights.type.size + int(MULTIPLICATION * products)


def _leaves(graph: Graph, value: Value, members: set[Node]) -> bool:
    """Whether anything outside reads the value in float."""
    others = [user for user in value.users() if user not in members]
    return graph.is_output(value) or any(not u.operator.reads_integers for u in others)

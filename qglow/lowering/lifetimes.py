"""Estimate of the memory that the nodes of a graph take in their order, before there are instructions."""

from __future__ import annotations

from qglow.graph.graph import Graph, Node, Value


def peak(graph: Graph) -> tuple[int, Node | None]:
    """The most bytes of activations that live at one time, and the node at which they do; None without any.

    Inputs and outputs of the graph are the caller's. Rearranged elements take no memory (most are views),
    parts of a concatenation lie in it, and elementwise results in the place of an operand that nothing else
    reads.
    """
    lives = _lifetimes(graph)
    nodes = list(graph.nodes)
    changes = [0] * (len(nodes) + 1)
    for size, start, end in lives:
        changes[start] += size
        changes[min(end, len(nodes) - 1) + 1] -= size
    live, best, where = 0, 0, None
    for number, node in enumerate(nodes):
        live += changes[number]
        if live > best:
            best, where = live, node
    return best, where


def _lifetimes(graph: Graph) -> list[tuple[int, int, int]]:
    """Bytes, first and last node of every piece of memory."""
    places = {node: number for number, node in enumerate(graph.nodes)}
    homes = _homes(graph, places)
    members: dict[Value, list[Value]] = {}
    for value in (value for node in graph.nodes for value in node.outputs):
        members.setdefault(_home(homes, value), []).append(value)
    found = []
    for home, values in members.items():
        outside = home.producer is None or any(graph.is_output(value) for value in values)
        if outside:
            continue
        starts = [places[value.producer] for value in values if value.producer is not None]
        ends = [places[user] for value in values for user in value.users()]
        found.append((home.type.byte_size, min(starts), max([*ends, *starts])))
    return found


def _homes(graph: Graph, places: dict[Node, int]) -> dict[Value, Value]:
    """The value in whose memory another one lies."""
    homes: dict[Value, Value] = {}
    for node in graph.nodes:
        operator = node.operator
        if operator.rearranges:
            source = node.inputs[0]
            if source is not None and not graph.is_output(node.output):
                homes[node.output] = source
        elif len(node.inputs) > 1 and operator.joined_axis(node.input_types()) is not None:
            for value in node.inputs:
                if value is not None and value.producer is not None and len(value.users()) == 1:
                    homes.setdefault(value, node.output)
        elif operator.elementwise or operator.aligned:
            _put_in_place(node, homes, places)
    return homes


def _put_in_place(node: Node, homes: dict[Value, Value], places: dict[Node, int]) -> None:
    for value in node.inputs:
        if value is None or value.producer is None or value in homes:
            continue
        last = max(places[user] for user in value.users())
        if last == places[node] and value.type.byte_size == node.output.type.byte_size:
            homes[node.output] = value
            return


def _home(homes: dict[Value, Value], value: Value) -> Value:
    seen = {value}
    while value in homes and homes[value] not in seen:
        value = homes[value]
        seen.add(value)
    return value

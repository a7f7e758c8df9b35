"""Order of nodes for small peak memory.

A greedy list scheduler: among the nodes whose operands are ready, the one that changes the
live bytes least goes first; ties keep the model's order. The result is taken only where its
peak is below that of the order at hand.
"""

from __future__ import annotations

from qglow.graph.graph import Graph, Node, Value


def schedule(graph: Graph) -> int:
    """Reorder `graph.nodes` in place; returns the peak of live activation bytes."""
    current = peak_bytes(graph, graph.nodes)
    candidate = _greedy(graph)
    best = peak_bytes(graph, candidate)
    if best < current:
        graph.nodes = candidate
        return best
    return current


def peak_bytes(graph: Graph, order: list[Node]) -> int:
    """Peak of live node outputs, in dense bytes, over this order."""
    remaining = _use_counts(graph)
    live = peak = 0
    for node in order:
        live += sum(v.type.byte_size for v in node.outputs)
        peak = max(peak, live)
        live -= _released(node, remaining)
    return peak


def _greedy(graph: Graph) -> list[Node]:
    remaining = _use_counts(graph)
    missing = {
        n: sum(1 for v in set(n.inputs) if v is not None and v.producer is not None) for n in graph.nodes
    }
    position = {n: i for i, n in enumerate(graph.nodes)}
    ready = [n for n in graph.nodes if missing[n] == 0]
    order: list[Node] = []
    while ready:
        node = min(ready, key=lambda n: (_growth(n, remaining), position[n]))
        ready.remove(node)
        order.append(node)
        _released(node, remaining)
        for value in node.outputs:
            for user in value.users():
                missing[user] -= 1
                if missing[user] == 0:
                    ready.append(user)
    return order


def _use_counts(graph: Graph) -> dict[Value, int]:
    counts = {v: len(v.users()) for v in graph.values()}
    for value in graph.outputs:
        counts[value] += 1
    return counts


def _growth(node: Node, remaining: dict[Value, int]) -> int:
    grown = sum(v.type.byte_size for v in node.outputs)
    freed = sum(v.type.byte_size for v in _operands(node) if remaining[v] == 1)
    return grown - freed


def _released(node: Node, remaining: dict[Value, int]) -> int:
    freed = 0
    for value in _operands(node):
        remaining[value] -= 1
        if remaining[value] == 0:
            freed += value.type.byte_size
    return freed + sum(v.type.byte_size for v in node.outputs if remaining[v] == 0)


def _operands(node: Node) -> set[Value]:
    return {v for v in node.inputs if v is not None and v.producer is not None}

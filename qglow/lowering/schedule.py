"""Order of nodes for small peak memory.

A greedy list scheduler: among the nodes whose operands are ready, the one that changes the
live bytes least goes first; ties keep the model's order. The result is taken only where its
peak is below that of the order at hand.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush

from qglow.graph.graph import Graph, Node, Value
from qglow.lowering.order_search import search_order


def schedule(graph: Graph, search: bool = False) -> int:
    """Reorder `graph.nodes` in place; returns the peak of live activation bytes.

    search: whether to try many orders, which takes longer.
    """
    best = peak_bytes(graph, graph.nodes)
    for candidate in (_greedy(graph), *([search_order(graph)] if search else [])):
        reached = peak_bytes(graph, candidate)
        if reached < best:
            graph.nodes = candidate
            best = reached
    return best


def peak_bytes(graph: Graph, order: Iterable[Node]) -> int:
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
    numbers = {n: i for i, n in enumerate(graph.nodes)}
    growth: dict[Node, int] = {}
    """Change in live bytes by each ready node. A node whose change falls is pushed onto the heap again."""
    heap: list[tuple[int, int, Node]] = []

    def offer(node: Node) -> None:
        growth[node] = _growth(node, remaining)
        heappush(heap, (growth[node], numbers[node], node))

    for node in graph.nodes:
        if missing[node] == 0:
            offer(node)
    order: list[Node] = []
    while heap:
        grown, _, node = heappop(heap)
        if growth.get(node) != grown:
            continue
        del growth[node]
        order.append(node)
        _released(node, remaining)
        for value in _operands(node):
            if remaining[value] == 1:
                for user in value.users():
                    if user in growth:
                        offer(user)
        for value in node.outputs:
            for user in value.users():
                missing[user] -= 1
                if missing[user] == 0:
                    offer(user)
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

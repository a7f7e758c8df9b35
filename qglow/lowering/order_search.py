"""Search for an order of nodes with a small peak of memory: many orders at once, the best of each length."""

from __future__ import annotations

from dataclasses import dataclass

from qglow.graph.graph import Graph, Node, Value

WIDTH = 24
"""Orders that are kept of each length."""


@dataclass(frozen=True, slots=True)
class _Begun:
    """The beginning of an order: peak and live bytes, the nodes in it as bits, those that are ready, and
    the last node with what comes before it."""

    peak: int
    live: int
    done: int
    ready: tuple[int, ...]
    last: tuple[int, object] | None


class _Search:
    """Bits of nodes and values, so that beginnings are compared and extended fast."""

    def __init__(self, graph: Graph) -> None:
        self.nodes = list(graph.nodes)
        numbers = {node: number for number, node in enumerate(self.nodes)}
        self.needs = [_bits(numbers, node) for node in self.nodes]
        self.readers: dict[Value, int] = {}
        for value in (value for node in self.nodes for value in node.outputs):
            bits = sum(1 << numbers[user] for user in value.users())
            self.readers[value] = bits | (1 << len(self.nodes) if graph.is_output(value) else 0)
        self.made = [sum(v.type.byte_size for v in node.outputs) for node in self.nodes]
        self.read = [{v for v in node.inputs if v in self.readers} | set(node.outputs) for node in self.nodes]
        self.users = [{numbers[u] for v in node.outputs for u in v.users()} for node in self.nodes]

    def start(self) -> _Begun:
        return _Begun(0, 0, 0, tuple(n for n, needs in enumerate(self.needs) if not needs), None)

    def extended(self, begun: _Begun, number: int) -> _Begun:
        live = begun.live + self.made[number]
        peak, done = max(begun.peak, live), begun.done | 1 << number
        live -= sum(v.type.byte_size for v in self.read[number] if not self.readers[v] & ~done)
        ready = [n for n in begun.ready if n != number]
        ready += [n for n in sorted(self.users[number]) if not self.needs[n] & ~done]
        return _Begun(peak, live, done, tuple(ready), (number, begun.last))


def search_order(graph: Graph) -> list[Node]:
    """An order of the nodes of small peak memory, in dense bytes of their outputs."""
    search = _Search(graph)
    kept = [search.start()]
    for _ in search.nodes:
        found: dict[int, _Begun] = {}
        for begun in kept:
            for number in begun.ready:
                longer = search.extended(begun, number)
                known = found.get(longer.done)
                if known is None or longer.peak < known.peak:
                    found[longer.done] = longer
        kept = sorted(found.values(), key=lambda b: (b.peak, b.live))[:WIDTH]
    order, link = [], kept[0].last
    while link is not None:
        number, link = link  # type: ignore[assignment]
        order.append(search.nodes[number])
    return order[::-1]


def _bits(numbers: dict[Node, int], node: Node) -> int:
    producers = {v.producer for v in node.inputs if v is not None and v.producer is not None}
    return sum(1 << numbers[producer] for producer in producers)

"""An estimate of the memory that running a graph takes, from its types alone."""

from __future__ import annotations

from qglow.graph.graph import Graph, Node, Value, nested


def graph_memory(graph: Graph, keep: bool = False) -> int:
    """Bytes of constants, of inputs and outputs in the caller's arrays, and of values that live at once.

    keep: every value is kept to the end, as for observation. No plan of the same values takes less.
    """
    constants = {v for node in graph.nodes for v in node.inputs if v is not None and v.is_constant}
    constants |= {v for v in graph.outputs if v.is_constant}
    fixed = sum(value.type.byte_size for value in constants)
    regions = [region for _, region in nested(graph) if region is not graph]
    fixed += sum(v.type.byte_size for region in regions for v in region.constants())
    inner = max((_most_alive(region, keep) for region in regions), default=0)
    interface = sum(value.type.byte_size for value in (*graph.inputs, *graph.outputs))
    return fixed + interface + max(_most_alive(graph, keep), inner)


def last_uses(graph: Graph) -> dict[Node, list[Value]]:
    """Map every node to the values that nothing needs after it."""
    last: dict[Value, Node] = {}
    for node in graph.nodes:
        for value in (*node.outputs, *node.inputs):
            if value is not None and not value.is_constant:
                last[value] = node
    result: dict[Node, list[Value]] = {node: [] for node in graph.nodes}
    for value, node in last.items():
        if not graph.is_output(value):
            result[node].append(value)
    return result


def _most_alive(graph: Graph, keep: bool) -> int:
    """Bytes of computed values at the node where most of them live."""
    given = set(graph.inputs)
    freed = {} if keep else last_uses(graph)
    alive = most = 0
    for node in graph.nodes:
        alive += sum(value.type.byte_size for value in node.outputs)
        most = max(most, alive)
        alive -= sum(value.type.byte_size for value in freed.get(node, ()) if value not in given)
    return most

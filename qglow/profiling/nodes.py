"""QuantizationProfile nodes: one sink on every float value that the data gives."""

from __future__ import annotations

from collections.abc import Collection

from qglow.graph.graph import Graph, Node, Value
from qglow.graph.ops.quantize import QuantizationProfile


def profiled_values(graph: Graph) -> list[Value]:
    """Float inputs of the graph and float results of its nodes, in graph order."""
    produced = [value for node in graph.nodes for value in node.outputs]
    return [v for v in [*graph.inputs, *produced] if v.type.is_float and not v.is_constant]


def insert_profile_nodes(graph: Graph, names: Collection[str] | None = None) -> Graph:
    """A copy of the graph in which every value of `profiled_values` feeds a QuantizationProfile.

    names: of those values that do; None: all. Nodes are named `profile_NAME` after the value. They have no
    outputs and change nothing.
    """
    result = graph.copy()
    taken = {node.name for node in result.nodes} | {value.name for value in result.values()}
    for value in profiled_values(result):
        if names is not None and value.name not in names:
            continue
        name = f"profile_{value.name}"
        node = Node(graph.unique_name(name) if name in taken else name, QuantizationProfile(), [value], [])
        if value.producer is None:
            result.insert_before(result.nodes[0] if result.nodes else None, node)
        else:
            result.insert_after(value.producer, node)
    return result

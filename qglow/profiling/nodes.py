"""QuantizationProfile nodes: one sink on every float value that the data gives."""

from __future__ import annotations

from collections.abc import Collection

from qglow.graph.graph import Graph, Node, Value, nested
from qglow.graph.ops.quantize import QuantizationProfile
from qglow.profiling.histogram import ValueProfile


def profiled_values(graph: Graph) -> dict[str, Value]:
    """Float inputs and float results of nodes, of the graph and of its regions, in graph order.

    Their keys are their names, behind those of the node and the region for values inside of one.
    """
    return {f"{path}{value.name}": value for path, part in nested(graph) for value in _float_values(part)}


def _float_values(graph: Graph) -> list[Value]:
    produced = [value for node in graph.nodes for value in node.outputs]
    return [v for v in [*graph.inputs, *produced] if v.type.is_float and not v.is_constant]


def empty_profile(value: Value, channels: bool) -> ValueProfile:
    """Statistics of a value before anything is observed. channels: as its QuantizationProfile has it."""
    return ValueProfile.of_shape(value.type.shape) if channels else ValueProfile()


def insert_profile_nodes(graph: Graph, names: Collection[str] | None = None) -> Graph:
    """A copy of the graph in which every value of `profiled_values` feeds a QuantizationProfile.

    names: of those values that do; None: all. Nodes are named `profile_NAME` after the value. They have no
    outputs and change nothing. Values of regions have no samples along axis 0.
    """
    result = graph.copy()
    for path, part in nested(result):
        _insert(part, path, names)
    return result


def _insert(graph: Graph, path: str, names: Collection[str] | None) -> None:
    taken = {node.name for node in graph.nodes} | {value.name for value in graph.values()}
    for value in _float_values(graph):
        if names is not None and f"{path}{value.name}" not in names:
            continue
        name = f"profile_{value.name}"
        probe = QuantizationProfile(channels=not path)
        node = Node(graph.unique_name(name) if name in taken else name, probe, [value], [])
        if value.producer is None:
            graph.insert_before(graph.nodes[0] if graph.nodes else None, node)
        else:
            graph.insert_after(value.producer, node)

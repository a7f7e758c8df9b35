"""The part of a graph between values that are known and values of interest, as a graph of its own."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from qglow.graph.graph import Graph, Node, Value
from qglow.graph.verifier import verify_graph


def cut(graph: Graph, outputs: Sequence[str], known: Collection[str]) -> Graph:
    """The part of a graph that computes `outputs` from inputs of the graph and `known` values, as a copy.

    An output is computed even where it is known itself. Inputs of the part are the known values that it
    reads, in the order of their nodes.
    """
    part = graph.copy()
    results = [part.value(name) for name in outputs]
    inputs: set[Value] = set()
    kept: set[Node] = set()
    waiting = list(results)
    while waiting:
        value = waiting.pop()
        producer = value.producer
        if value.is_constant:
            continue
        if producer is None or (value.name in known and value not in results):
            inputs.add(value)
            continue
        if producer not in kept:
            kept.add(producer)
            waiting += [operand for operand in producer.inputs if operand is not None]
    ordered = [value for value in part.values() if value in inputs]
    for node in part.nodes:
        if node not in kept:
            node.inputs = ()
    part.nodes = [node for node in part.nodes if node in kept]
    for value in inputs:
        value.producer, value.index = None, 0
    part.inputs, part.outputs, part.tail = ordered, results, None
    part.name = f"{graph.name}.cut"
    verify_graph(part, "after cutting")
    return part

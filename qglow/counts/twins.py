"""The nodes of one model in several sizes, side by side."""

from __future__ import annotations

from collections.abc import Sequence

from qglow.graph.graph import Graph, Node


def twins_of(graphs: Sequence[Graph]) -> list[tuple[Node, ...]]:
    """Every node of the first graph with those at the same place in the others, while all have one.

    The list stays as it is while graphs are changed.
    """
    return list(zip(*(list(graph.nodes) for graph in graphs), strict=False))

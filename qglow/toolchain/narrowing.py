"""Graphs with fewer outputs, for programs whose calls need fewer."""

from __future__ import annotations

from qglow.core.passes import PassLog
from qglow.graph.graph import Graph
from qglow.passes.eliminate_dead_nodes import EliminateDeadNodes


def without_output(graph: Graph, name: str) -> Graph:
    """A copy that neither gives an output nor computes what only it needs; inputs stay."""
    narrowed = graph.copy()
    narrowed.outputs = [value for value in narrowed.outputs if value.name != name]
    EliminateDeadNodes().run(narrowed, PassLog())
    return narrowed

"""Words for nodes that cannot have a run-time size."""

from __future__ import annotations

from qglow.core.errors import UnsupportedError
from qglow.graph.graph import Node


def dependent(node: Node, reason: str) -> UnsupportedError:
    """The error that names a node and why it depends on a size."""
    return UnsupportedError(
        f"node '{node.name}' ({node.operator.name}) cannot have a run-time size: {reason}"
    )


def reading(node: Node) -> str:
    """Words for a node and its result."""
    return f"node '{node.name}' ({node.operator.name}), which computes '{node.outputs[0].name}',"

"""Nodes that nothing depends on are removed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from qglow.core.passes import Pass, PassLog
from qglow.graph.graph import Graph, Node


@dataclass(frozen=True)
class EliminateDeadNodes(Pass[Graph]):
    """Remove nodes whose results are neither read nor returned. Probes, without results, stay."""

    name: ClassVar[str] = "eliminate-dead-nodes"

    def run(self, ir: Graph, log: PassLog) -> None:
        """Visit nodes from the end, so that a node goes after the users that kept it."""
        for node in reversed(list(ir.nodes)):
            if log.exhausted:
                return
            if _is_dead(node, ir):
                ir.remove(node)
                log.applied(node.name, f"{node.operator.name} removed: nobody reads its result")


def _is_dead(node: Node, graph: Graph) -> bool:
    return bool(node.outputs) and not any(v.uses or graph.is_output(v) for v in node.outputs)

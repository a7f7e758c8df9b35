"""Relu and Clip into the bounds of the operator before them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from qglow.core.passes import Refused
from qglow.graph.graph import Graph, Node
from qglow.graph.rewriting import Outcome, RewritePass, fuse, operand, private


@dataclass(frozen=True)
class FuseActivation(RewritePass):
    """Let an operator that takes bounds clamp its own result."""

    name: ClassVar[str] = "fuse-activation"

    def rewrite(self, node: Node, graph: Graph) -> Outcome:
        """Fuse one Relu or Clip into its producer."""
        if not node.operator.clamps:
            return None
        x = operand(node, 0)
        producer = x.producer
        if producer is None:
            return Refused(f"%{x.name} is an input, which takes no bounds")
        operator = producer.operator
        fused = operator.bounded(*compose_bounds(operator.bounds, node.operator.bounds))
        if fused is None or operator.clamps:
            return Refused(f"%{x.name} is the result of {operator.name}, which takes no bounds")
        refusal = private(graph, x)
        if refusal is not None:
            return refusal
        if x.type.is_quantized or node.output.type.is_quantized:
            return Refused(f"%{x.name} is quantized: its range is settled")
        fuse(graph, producer, node, fused, producer.inputs)
        return f"{node.operator.name} becomes bounds of {operator.name} '{producer.name}'"


def compose_bounds(first: tuple[float, float], second: tuple[float, float]) -> tuple[float, float]:
    """The one clamp that does what the first and then the second do.

    A clamp whose lower bound lies above its upper one gives the upper one.
    """
    lo, hi = (min(max(bound, second[0]), second[1]) for bound in first)
    return min(lo, hi), hi

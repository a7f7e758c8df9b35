"""Relu and Clip between two Quantize of equal parameters, as bounds of the operator before them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from qglow.core.passes import Refused
from qglow.graph.graph import Graph, Node, Value
from qglow.graph.operator import Operator
from qglow.graph.rewriting import Outcome, RewritePass, operand
from qglow.passes.fuse_activation import compose_bounds
from qglow.quantization.folding.editing import only_user


@dataclass(frozen=True)
class FuseClamp(RewritePass):
    """A clamp between two equal quantizations clamps integers: the node before them takes its bounds."""

    name: ClassVar[str] = "fuse-clamp"

    def rewrite(self, node: Node, graph: Graph) -> Outcome:
        """Fuse one Relu or Clip. Exact: dequantized integers within the bounds are restored."""
        if not node.operator.clamps:
            return None
        back = operand(node, 0).producer
        if back is None or not back.operator.dequantizes:
            return None
        first = operand(back, 0).producer
        if first is None or not first.operator.quantizes:
            return None
        real, integers = operand(first, 0), first.output
        source = real.producer
        operator = None if source is None else source.operator
        clamped = None if operator is None else _clamped(operator, node.operator)
        if source is None or clamped is None:
            return Refused(f"%{real.name} comes from nothing that takes bounds")
        if any(only_user(graph, value) is None for value in (real, integers, back.output)):
            return Refused(f"%{real.name} is read elsewhere too")
        last = [user for user in node.output.users() if user.operator.quantizes]
        if len(last) < len(node.output.users()) or not last or graph.is_output(node.output):
            return Refused(f"%{node.output.name} is read in float")
        if any(user.output.type != integers.type or graph.is_output(user.output) for user in last):
            return Refused(f"%{node.output.name} is quantized with other parameters, or an output")
        source.operator = clamped
        _replace(graph, last, integers)
        graph.remove(node)
        return f"{node.operator.name} becomes bounds of '{source.name}'"


def _clamped(operator: Operator, clamp: Operator) -> Operator | None:
    """The operator with the bounds of a clamp after its own; None if it takes none."""
    return operator.bounded(*compose_bounds(operator.bounds, clamp.bounds))


def _replace(graph: Graph, nodes: list[Node], value: Value) -> None:
    for node in nodes:
        graph.replace_value(node.output, value)
        graph.remove(node)

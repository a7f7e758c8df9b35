"""Relu and Clip between two Quantize of equal parameters, as bounds of the operator before them."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar

from qglow.core.passes import Refused
from qglow.graph.graph import Graph, Node, Value
from qglow.graph.ops.elementwise import Clamp
from qglow.graph.ops.quantize import Dequantize, Quantize
from qglow.graph.rewriting import Outcome, RewritePass, operand
from qglow.passes.fuse_activation import compose_bounds
from qglow.quantization.folding.editing import has_bounds, only_user


@dataclass(frozen=True)
class FuseClamp(RewritePass):
    """quantize, dequantize, clamp, quantize alike: the integers are clamped, which the producer can do."""

    name: ClassVar[str] = "fuse-clamp"

    def rewrite(self, node: Node, graph: Graph) -> Outcome:
        """Fuse one Relu or Clip. Exact: dequantized integers within the bounds are restored."""
        if not isinstance(node.operator, Clamp):
            return None
        back = _producer(node, Dequantize)
        first = None if back is None else _producer(back, Quantize)
        if back is None or first is None:
            return None
        real, integers = operand(first, 0), first.output
        operator: Any = None if real.producer is None else real.producer.operator
        if not has_bounds(operator):
            return Refused(f"%{real.name} comes from nothing that takes bounds")
        if any(only_user(graph, value) is None for value in (real, integers, back.output)):
            return Refused(f"%{real.name} is read elsewhere too")
        last = [user for user in node.output.users() if isinstance(user.operator, Quantize)]
        if len(last) < len(node.output.users()) or not last or graph.is_output(node.output):
            return Refused(f"%{node.output.name} is read in float")
        if any(user.output.type != integers.type or graph.is_output(user.output) for user in last):
            return Refused(f"%{node.output.name} is quantized with other parameters, or an output")
        lo, hi = compose_bounds((operator.lo, operator.hi), node.operator.bounds)
        assert real.producer is not None
        real.producer.operator = dataclasses.replace(operator, lo=lo, hi=hi)
        _replace(graph, last, integers)
        graph.remove(node)
        return f"{node.operator.name} becomes bounds of '{real.producer.name}'"


def _producer(node: Node, kind: type[Quantize | Dequantize]) -> Node | None:
    producer = operand(node, 0).producer
    return producer if producer is not None and isinstance(producer.operator, kind) else None


def _replace(graph: Graph, nodes: list[Node], value: Value) -> None:
    for node in nodes:
        graph.replace_value(node.output, value)
        graph.remove(node)

"""A Rescale becomes part of the operator before it, which has a multiplier anyway."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from qglow.core.passes import Pass, PassLog
from qglow.graph.graph import Graph, Node
from qglow.graph.operator import Accumulate, Rescaled, Table
from qglow.graph.ops.quantize import Rescale
from qglow.quantization.folding.editing import (
    bypass,
    contains,
    covered,
    has_bounds,
    limits,
    only_user,
    operand,
    parameters,
    with_bounds,
)


@dataclass(frozen=True)
class FoldRescaleUp(Pass[Graph]):
    """The producer gives the rescale's parameters itself and so rounds once, not twice."""

    name: ClassVar[str] = "fold-rescale-up"

    def run(self, ir: Graph, log: PassLog) -> None:
        """See the class."""
        for node in list(ir.nodes):
            if log.exhausted:
                return
            if isinstance(node.operator, Rescale):
                _fold(ir, node, log)


def _fold(graph: Graph, node: Node, log: PassLog) -> None:
    value = operand(node)
    producer = value.producer
    if producer is None or isinstance(producer.operator, Rescale):
        return
    if not isinstance(producer.operator.policy, Accumulate | Rescaled | Table):
        log.refused(node.name, f"{producer} has no multiplier of its own")
        return
    if only_user(graph, value) is None:
        log.refused(node.name, f"%{value.name} has other users")
        return
    if graph.is_output(node.output):
        log.refused(node.name, "its result is an output of the graph")
        return
    low, high = limits(node)
    saturation = max(low, covered(value)[0]), min(high, covered(value)[1])
    if not contains(saturation, covered(node.output)):
        if not has_bounds(producer.operator):
            log.refused(node.name, f"{producer} has no bounds that could keep the saturation")
            return
        producer.operator = with_bounds(producer.operator, *saturation)
    value.type = value.type.quantized(parameters(node.output))
    bypass(graph, node, value)
    log.applied(node.name, f"folded into {producer}, rounding once", exact=False)

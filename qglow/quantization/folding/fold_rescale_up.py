"""A Rescale becomes part of the operator before it, which has a multiplier anyway."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from qglow.core.passes import Pass, PassLog
from qglow.graph.graph import Graph, Node, Value
from qglow.graph.operator import Accumulate, Rescaled, Table
from qglow.graph.ops.quantize import Rescale
from qglow.quantization.folding.editing import (
    bypass,
    contains,
    covered,
    has_bounds,
    only_user,
    operand,
    parameters,
    unbounded,
    with_bounds,
)


@dataclass(frozen=True)
class FoldRescaleUp(Pass[Graph]):
    """The producer gives the rescale's parameters itself and so rounds once, not twice.

    Bounds of the rescale become the producer's. The saturation of the intermediate type goes: it was
    the price of a fine step that is no longer there, and without it every result is as near to the
    float one or nearer.
    """

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
    rescale = node.operator
    assert isinstance(rescale, Rescale)
    if not unbounded(rescale):
        if not has_bounds(producer.operator):
            log.refused(node.name, f"{producer} has no bounds that could take the rescale's")
            return
        producer.operator = with_bounds(producer.operator, rescale.lo, rescale.hi)
    dropped = "" if contains(covered(value), covered(node.output)) else _dropped(value)
    value.type = value.type.quantized(parameters(node.output))
    bypass(graph, node, value)
    log.applied(node.name, f"folded into {producer}, rounding once{dropped}", exact=False)


def _dropped(value: Value) -> str:
    low, high = covered(value)
    return f"; no longer saturates to [{low:.6g}, {high:.6g}], which calibration had chosen"

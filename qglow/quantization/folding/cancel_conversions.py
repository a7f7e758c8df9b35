"""Quantize after Dequantize: nothing where the parameters are equal, else one Rescale."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from qglow.core.passes import Pass, PassLog
from qglow.graph.graph import Graph, Node
from qglow.graph.ops.quantize import Rescale
from qglow.graph.rewriting import bypass, operand
from qglow.quantization.folding.editing import parameters, remove_unused


@dataclass(frozen=True)
class CancelConversions(Pass[Graph]):
    """int8 values go from node to node without a detour through float."""

    name: ClassVar[str] = "cancel-conversions"

    def run(self, ir: Graph, log: PassLog) -> None:
        """Run the pass as the class describes it."""
        for node in list(ir.nodes):
            if log.exhausted:
                return
            if node.operator.quantizes:
                _cancel(ir, node, log)
        remove_unused(ir)


def _cancel(graph: Graph, node: Node, log: PassLog) -> None:
    producer = operand(node).producer
    if producer is None or not producer.operator.dequantizes:
        return
    source = operand(producer)
    if parameters(source) == parameters(node.output):
        # Exact: dividing an integer times the scale by the scale restores the integer.
        refusal = bypass(graph, node, source)
        if refusal is not None:
            log.refused(node.name, refusal.reason)
            return
        log.applied(node.name, "quantizes what was dequantized with the same parameters: removed")
        return
    node.operator = Rescale()
    node.inputs = (source,)
    log.applied(node.name, "quantizes what was dequantized: one rescale, rounded once", exact=False)

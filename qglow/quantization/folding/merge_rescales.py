"""Rescale after Rescale: one Rescale, or none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from qglow.core.passes import Pass, PassLog
from qglow.graph.graph import Graph, Node
from qglow.graph.rewriting import bypass, operand
from qglow.quantization.folding.editing import (
    contains,
    covered,
    limits,
    narrowed,
    parameters,
    remove_unused,
    unbounded,
)


@dataclass(frozen=True)
class MergeRescales(Pass[Graph]):
    """A chain of rescales rounds once. The saturation of those in between is kept as bounds."""

    name: ClassVar[str] = "merge-rescales"

    def run(self, ir: Graph, log: PassLog) -> None:
        """Run the pass as the class describes it."""
        for node in list(ir.nodes):
            if log.exhausted:
                return
            if node.operator.rescales:
                _merge(ir, node, log)
                _drop(ir, node, log)
        remove_unused(ir)


def _merge(graph: Graph, node: Node, log: PassLog) -> None:
    first = operand(node).producer
    if first is None or not first.operator.rescales:
        return
    source = operand(first)
    low, high = limits(first)
    if not contains((low, high), covered(source)):
        bounded = narrowed(node.operator, low, high)
        assert bounded is not None, "a Rescale takes bounds"
        node.operator = bounded
    node.inputs = (source,)
    log.applied(node.name, f"takes in rescale '{first.name}', rounding once", exact=False)


def _drop(graph: Graph, node: Node, log: PassLog) -> None:
    source = operand(node)
    same = parameters(source) == parameters(node.output) and unbounded(node.operator)
    if not same:
        return
    refusal = bypass(graph, node, source)
    if refusal is not None:
        log.refused(node.name, refusal.reason)
        return
    log.applied(node.name, "rescales to the parameters that its operand has: removed")

"""A Rescale becomes part of the operator before it, which has a multiplier anyway."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from qglow.core.passes import Pass, PassLog
from qglow.graph.graph import Graph, Node, Value, constant
from qglow.graph.operator import Accumulate, Operator, Products, Rescaled, Table, Unify
from qglow.graph.rewriting import bypass, operand
from qglow.quantization.folding.editing import (
    contains,
    covered,
    narrowed,
    only_user,
    parameters,
    unbounded,
)
from qglow.quantization.placement import reads_wide


@dataclass(frozen=True)
class FoldRescaleUp(Pass[Graph]):
    """The producer rescales to the result's parameters itself, and so rounds once, not twice.

    Bounds of the rescale become the producer's. The saturation of the intermediate value is dropped: its
    only use was a finer step for that value, and without it every result is at least as near to float.
    """

    name: ClassVar[str] = "fold-rescale-up"

    def run(self, ir: Graph, log: PassLog) -> None:
        """Run the pass as the class describes it."""
        for node in list(ir.nodes):
            if log.exhausted:
                return
            if node.operator.rescales:
                _fold(ir, node, log)


def _fold(graph: Graph, node: Node, log: PassLog) -> None:
    value = operand(node)
    producer = value.producer
    if value.data is not None:
        _fold_constant(graph, node, value)
        log.applied(node.name, f"constant %{value.name} rescaled")
        return
    if producer is None or producer.operator.rescales:
        return
    if not gives_any_parameters(producer.operator):
        log.refused(node.name, f"{producer} has no multiplier of its own")
        return
    if parameters(node.output).is_wide and not reads_wide(producer):
        log.refused(node.name, f"{producer} has no int16 form")
        return
    if only_user(graph, value) is None:
        log.refused(node.name, f"%{value.name} has other users")
        return
    if not unbounded(node.operator):
        bounded = narrowed(producer.operator, *node.operator.bounds)
        if bounded is None:
            log.refused(node.name, f"{producer} has no bounds that could take the rescale's")
            return
        producer.operator = bounded
    dropped = "" if contains(covered(value), covered(node.output)) else _dropped(value)
    value.type = value.type.quantized(parameters(node.output))
    refusal = bypass(graph, node, value)
    assert refusal is None
    log.applied(node.name, f"folded into {producer}, rounding once{dropped}", exact=False)


def gives_any_parameters(operator: Operator) -> bool:
    """Whether an int8 operator rescales to whatever parameters its result has."""
    policy = operator.policy
    return isinstance(policy, Accumulate | Products | Rescaled | Table) or (
        isinstance(policy, Unify) and policy.rescales
    )


def _fold_constant(graph: Graph, node: Node, value: Value) -> None:
    """Replace a Rescale of a constant by the constant that it gives, bit for bit."""
    (data,) = node.operator.run([value.data], [value.type], [node.output.type])
    name = graph.unique_name(f"{value.name}_rescaled")
    graph.replace_value(node.output, constant(name, data, parameters(node.output)))
    graph.remove(node)


def _dropped(value: Value) -> str:
    low, high = covered(value)
    return f"; no longer saturates to [{low:.6g}, {high:.6g}], which calibration had chosen"

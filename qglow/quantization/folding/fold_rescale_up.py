"""A Rescale becomes part of the operator before it, which has a multiplier anyway."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from qglow.core.passes import Pass, PassLog
from qglow.graph.graph import Graph, Node, Value, constant
from qglow.graph.operator import Accumulate, Operator, Products, Rescaled, Table, Unify
from qglow.graph.ops.quantize import Rescale
from qglow.graph.rewriting import bypass, operand
from qglow.quantization.folding.editing import (
    contains,
    covered,
    has_bounds,
    only_user,
    parameters,
    unbounded,
    with_bounds,
)
from qglow.quantization.placement import reads_wide


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
    if value.data is not None:
        _fold_constant(graph, node, value)
        log.applied(node.name, f"constant %{value.name} rescaled")
        return
    if producer is None or isinstance(producer.operator, Rescale):
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
    rescale = node.operator
    assert isinstance(rescale, Rescale)
    if not unbounded(rescale):
        if not has_bounds(producer.operator):
            log.refused(node.name, f"{producer} has no bounds that could take the rescale's")
            return
        producer.operator = with_bounds(producer.operator, rescale.lo, rescale.hi)
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
    """The constant as the Rescale would give it, bit for bit."""
    (data,) = node.operator.run([value.data], [value.type], [node.output.type])
    name = graph.unique_name(f"{value.name}_rescaled")
    graph.replace_value(node.output, constant(name, data, parameters(node.output)))
    graph.remove(node)


def _dropped(value: Value) -> str:
    low, high = covered(value)
    return f"; no longer saturates to [{low:.6g}, {high:.6g}], which calibration had chosen"

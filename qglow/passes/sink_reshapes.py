"""Reshapes move down below elementwise operators, which then fuse with what computes their operand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from qglow.core.passes import Refused
from qglow.core.types import Shape
from qglow.graph.graph import Graph, Node, Value
from qglow.graph.ops.shape import Reshape
from qglow.graph.rewriting import (
    Outcome,
    RewritePass,
    bypass,
    new_constant,
    operand,
    private,
    producer_of,
    sink,
)
from qglow.passes.simplify_algebra import join_reshapes


@dataclass(frozen=True)
class SinkReshapes(RewritePass):
    """`f(reshape(x))` is `reshape(f(x))`; pairs that meet are joined or removed."""

    name: ClassVar[str] = "sink-reshapes"

    def rewrite(self, node: Node, graph: Graph) -> Outcome:
        """Move the Reshape before one node behind it."""
        if isinstance(node.operator, Reshape):
            return _cancel(node, graph) or join_reshapes(node, graph)
        if len(node.outputs) != 1 or node.output.type.is_quantized:
            return None
        return _below_elementwise(node, graph) if node.operator.elementwise else None


def _cancel(node: Node, graph: Graph) -> Outcome:
    source = operand(node, 0)
    if source.type != node.output.type:
        return None
    return bypass(graph, node, source) or "Reshape changes nothing"


def _below_elementwise(node: Node, graph: Graph) -> Outcome:
    values = [operand(node, index) for index in range(len(node.inputs))]
    movers = [producer_of(value, Reshape) for value in values if not value.is_constant]
    found = list(dict.fromkeys(mover for mover in movers if mover is not None))
    if not found:
        return None
    if None in movers:
        return Refused("not all its operands are reshaped")
    if len({operand(mover, 0).type.shape for mover in found}) > 1:
        return Refused("its operands are reshaped from different shapes")
    refusals = [private(graph, mover.output) for mover in found]
    refusal = next((r for r in refusals if r is not None), None)
    if refusal is not None:
        return refusal
    inputs = []
    for value in values:
        fitted = _before(graph, value, operand(found[0], 0).type.shape, node.output.type.shape)
        if isinstance(fitted, Refused):
            return fitted
        inputs.append(fitted)
    return _sink_all(graph, found, node, inputs)


def _before(graph: Graph, value: Value, shape: Shape, result: Shape) -> Value | Refused:
    """Value that the operation reads in place of an operand, before the Reshape; or why there is none."""
    mover = producer_of(value, Reshape)
    if mover is not None:
        if value.type.shape != result:
            return Refused(f"%{value.name} is broadcast")
        return operand(mover, 0)
    rank, columns = len(value.type.shape), value.type.shape[-1:]
    if value.data is not None and value.type.size == 1:
        return value if rank <= len(shape) else new_constant(graph, value.name, value.data.reshape(()))
    if value.data is not None and columns == (value.type.size,) == shape[-1:] == result[-1:]:
        return value if rank == 1 else new_constant(graph, value.name, value.data.reshape(-1))
    return Refused(f"%{value.name} is not one value, nor one a column that the Reshape keeps")


def _sink_all(graph: Graph, movers: list[Node], node: Node, inputs: list[Value]) -> str:
    for mover in movers[1:]:
        node.inputs = tuple(value for value in node.inputs if value is not mover.output)
        graph.remove(mover)
    sink(graph, movers[0], node, inputs, node.operator)
    return f"moved above Reshape '{movers[0].name}'"

"""A Rescale moves below data movement, towards operators that can take it in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from qglow.core.passes import Pass, PassLog
from qglow.core.types import Quantization
from qglow.graph.graph import Graph, Node, Value
from qglow.graph.rewriting import operand
from qglow.quantization.folding.editing import only_user, parameters, remove_unused


@dataclass(frozen=True)
class SinkRescale(Pass[Graph]):
    """`f(rescale(x))` is `rescale(f(x))` where f only moves or selects: rescaling is monotone."""

    name: ClassVar[str] = "sink-rescale"

    def run(self, ir: Graph, log: PassLog) -> None:
        """Run the pass as the class describes it."""
        for node in list(ir.nodes):
            if log.exhausted:
                return
            if node.operator.kept_operand is not None or node.operator.shares_parameters:
                _sink(ir, node, log)
        remove_unused(ir)


def _sink(graph: Graph, node: Node, log: PassLog) -> None:
    """Move the rescales on all data operands of `node` behind it."""
    count = len(node.inputs) if node.operator.unifies else 1
    operands = [operand(node, index) for index in range(count)]
    rescales = [value.producer for value in operands]
    if not any(r is not None and r.operator.rescales for r in rescales):
        return
    refusal = _refusal(graph, node, operands, rescales)
    if refusal is not None:
        log.refused(node.name, refusal)
        return
    first = rescales[0]
    assert first is not None
    result = node.output
    moved = Value(graph.unique_name(f"{result.name}_unscaled"), result.type.quantized(_source(first)))
    node.inputs = [operand(r) for r in rescales if r is not None] + list(node.inputs[count:])
    node.outputs = (moved,)
    moved.producer, moved.index = node, 0
    name = graph.unique_name(f"rescale_{node.name}")
    graph.insert_after(node, Node(name, first.operator, [moved], [result]))
    log.applied(node.name, "moved above the rescale of its operands")


def _source(rescale: Node) -> Quantization:
    return parameters(operand(rescale))


def _refusal(graph: Graph, node: Node, operands: list[Value], rescales: list[Node | None]) -> str | None:
    found = [r for r in rescales if r is not None and r.operator.rescales]
    if len(found) < len(rescales):
        return "not all its operands are rescaled"
    if len({(_source(r), r.operator) for r in found}) > 1:
        return "its operands are rescaled from different parameters"
    if any(only_user(graph, value) is None for value in operands):
        return "a rescaled operand has other users"
    if node.output.type.size > sum(value.type.size for value in operands):
        return "its result is larger than its operands"
    if node.operator.adds_values:
        return "padding adds values"
    return None

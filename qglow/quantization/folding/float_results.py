"""A sum of products whose result is only dequantized gives float itself, from its int32 sums."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from qglow.core.passes import Pass, PassLog
from qglow.graph.graph import Graph, Node, Value
from qglow.graph.rewriting import operand
from qglow.quantization.folding.editing import only_user


@dataclass(frozen=True)
class FloatResults(Pass[Graph]):
    """No detour through int8: exact sums, one multiplication. Data movement in between follows."""

    name: ClassVar[str] = "float-results"

    def run(self, ir: Graph, log: PassLog) -> None:
        """Run the pass as the class describes it."""
        for node in list(ir.nodes):
            if log.exhausted:
                return
            if node.operator.dequantizes:
                _lift(ir, node, log)


def _lift(graph: Graph, node: Node, log: PassLog) -> None:
    chain = _chain(graph, node)
    if chain is None:
        return
    source = chain[-1].producer
    assert source is not None
    for value in chain:
        value.type = type(value.type)(node.output.type.element, value.type.shape)
    _replace_result(graph, node, chain[0])
    log.applied(node.name, f"{source} gives float without a detour through int8", exact=False)


def _chain(graph: Graph, node: Node) -> list[Value] | None:
    """Return the int8 values from the dequantized one back to the sum of products that it is moved from.

    Returns None if there is no such sum, or if a value has other users.
    """
    value = operand(node)
    chain = []
    while only_user(graph, value) is not None and value.producer is not None:
        chain.append(value)
        operator = value.producer.operator
        if operator.sums_products:
            return chain
        if not operator.rearranges:
            return None
        value = operand(value.producer)
    return None


def _replace_result(graph: Graph, node: Node, value: Value) -> None:
    """Remove the Dequantize `node`, whose operand is float now; an output of the graph keeps its name."""
    real = node.output
    name = real.name
    was_output = graph.is_output(real)
    graph.replace_value(real, value)
    graph.remove(node)
    if was_output:
        value.name = name

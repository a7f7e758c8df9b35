"""Inputs whose numbers may be missing, as NaN, because the graph itself puts others in their places."""

from __future__ import annotations

from qglow.graph.graph import Graph, Value
from qglow.graph.ops.logic import Compare

_EQUALITIES = (Compare(relation="equal"), Compare(relation="not-equal"))


def missing_inputs(graph: Graph) -> frozenset[str]:
    """Names of inputs that the graph compares with themselves, which tells NaN from numbers.

    What only moves elements may lie between. Elsewhere NaN in data is a mistake.
    """
    sources: dict[Value, frozenset[str]] = {value: frozenset((value.name,)) for value in graph.inputs}
    found: set[str] = set()
    for node in graph.nodes:
        operands = [value for value in node.inputs if value is not None]
        if node.operator in _EQUALITIES:
            if operands[0] is operands[1]:
                found |= sources.get(operands[0], frozenset())
        elif node.operator.moves_elements:
            reached = frozenset[str]().union(*(sources.get(value, frozenset()) for value in operands))
            sources.update((result, reached) for result in node.outputs)
    return frozenset(found)

"""Formats that mixtures of experts get where no rule says otherwise.

Only some of the rows of the data reach each expert, and none may reach one: weights alone are quantized. What
is computed of their results before the next product stays float with them. And products whose results choose
the experts stay float, since a row that goes to another expert has another result altogether.
"""

from __future__ import annotations

from qglow.graph.graph import Graph, Node, Value
from qglow.quantization.blocks import has_matrices
from qglow.recipe.choices import BlockFormat

WEIGHTS = BlockFormat(8, 32)
"""Format of the weights of experts where nothing asks for another."""
BY_DEFAULT = "default for products of experts"
ROUTES = "it chooses the experts of rows, and a row of another expert has another result"
BESIDE = "it computes with results of experts, which are float"
INDICES = "experts"
"""Name of the operand with the experts of rows."""


def expert_products(graph: Graph) -> list[Node]:
    """Products with floats of experts, in the order of the graph."""
    return [node for node in graph.nodes if has_matrices(node)]


def behind_experts(graph: Graph) -> list[Node]:
    """Nodes that compute with results of experts, up to the next products, in the order of the graph."""
    results: set[Value] = set()
    found: list[Node] = []
    for node in graph.nodes:
        experts, operator = INDICES in node.operator.operands, node.operator
        product = operator.sums_products or operator.recurs is not None or operator.weight_blocks is not None
        if not experts and (product or results.isdisjoint(node.inputs)):
            continue
        results.update(node.outputs)
        if not experts:
            found.append(node)
    return found


def routers(graph: Graph) -> set[Node]:
    """Products with constant weights whose results choose the experts of rows."""
    found: set[Node] = set()
    seen: set[Node] = set()
    for node in graph.nodes:
        indices = node.operand(INDICES) if INDICES in node.operator.operands else None
        waiting = [] if indices is None or indices.producer is None else [indices.producer]
        while waiting:
            before = waiting.pop()
            if before in seen:
                continue
            seen.add(before)
            if before.operator.sums_products:
                found.add(before)
                continue
            values = (value for value in before.inputs if value is not None)
            waiting += [value.producer for value in values if value.producer is not None]
    return found

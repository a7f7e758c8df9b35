"""Nodes that a recipe makes float16 or bfloat16: weights and results of 16 bits around float32 sums.

Their operator stays the float one. A RoundTo behind each float result rounds it, and the weights of a
sum of products, rounded too, are stored in 16 bits; biases, sums and everything between stay float32.
"""

from __future__ import annotations

import numpy as np

from qglow.core.errors import UnsupportedError
from qglow.core.passes import PassLog
from qglow.graph.graph import Graph, Node, Value, constant
from qglow.graph.ops.functions import RoundTo
from qglow.numerics.half import holds, round_to, store
from qglow.quantization.choices import Choices
from qglow.quantization.placement import chosen_half
from qglow.recipe.schema import Recipe

PASS = "round-to-half"


def round_chosen(graph: Graph, recipe: Recipe, choices: Choices, log: PassLog) -> dict[str, str]:
    """Round weights and results of the nodes that `choices` make float16 or bfloat16, in place.

    A rounded result or weight takes over the name of the value that it is rounded from. Returns the type by
    name of the node. Raises UnsupportedError where a weight would become infinite.
    """
    log.pass_name = PASS
    chosen: dict[str, str] = {}
    rounded: set[tuple[Value, str]] = set()
    for node in list(graph.nodes):
        pattern = recipe.keeps_float(choices.names_of(node), node.operator.name)
        element = chosen_half(node, pattern, choices.of_node(node))
        if not element:
            continue
        results = [value for value in node.outputs if value.type.is_float]
        chosen[node.name] = element
        if node.operator.accumulate is not None:
            _round_weights(graph, node, element, log)
        if not _passes_on(node, element, rounded):
            for value in results:
                _round_result(graph, node, value, element)
        rounded.update((value, element) for value in results)
    return chosen


def store_rounded(graph: Graph) -> dict[str, str]:
    """Store weights in 16 bits, in place, where only a RoundTo reads the result and its type holds them.

    A model that has such roundings already, as those that qglow exports have, is then as small as it was
    before. Returns the type by name of every node whose result is rounded.
    """
    found: dict[str, str] = {}
    for node in graph.nodes:
        element = _rounded_to(node)
        if element is None:
            continue
        found[node.name] = element
        policy = node.operator.accumulate
        weights = None if policy is None else node.operand(policy.w)
        is_float = weights is not None and weights.data is not None and weights.type.is_float
        if weights is not None and is_float and holds(np.asarray(weights.data), element):
            _replace(graph, node, weights, element)
    return found


def _rounded_to(node: Node) -> str | None:
    """Return the type that the only user of a node's result rounds it to; None if it does not."""
    users = node.output.users() if len(node.outputs) == 1 else []
    return users[0].operator.rounds_to if len(users) == 1 else None


def _round_weights(graph: Graph, node: Node, element: str, log: PassLog) -> None:
    policy = node.operator.accumulate
    assert policy is not None
    weights = node.operand(policy.w)
    if weights is None or weights.data is None:
        return
    lost = int(np.count_nonzero(np.isinf(round_to(weights.data, element)) & np.isfinite(weights.data)))
    if lost:
        raise UnsupportedError(
            f"node '{node.name}': {lost} of its weights are beyond {element} and would be infinite; "
            "choose bfloat16 or float for it"
        )
    _replace(graph, node, weights, element)
    log.applied(node.name, f"weights %{weights.name} rounded to {element}", exact=False)


def _replace(graph: Graph, node: Node, weights: Value, element: str) -> None:
    """Replace the weights that a node reads by ones in 16 bits; other nodes keep theirs."""
    assert weights.data is not None
    alone = weights.users() == [node] and not graph.is_output(weights)
    name = weights.name if alone else graph.unique_name(f"{weights.name}_{element}")
    made = constant(name, store(weights.data, element))
    node.inputs = tuple(made if value is weights else value for value in node.inputs)


def _passes_on(node: Node, element: str, rounded: set[tuple[Value, str]]) -> bool:
    """Whether the node only moves elements that are rounded already."""
    added, kept = node.operator.added_value, node.operator.kept_operand
    if added is not None and not holds(np.array(added, np.float32), element):
        return False
    source = None if kept is None else node.inputs[kept]
    return source is not None and (source, element) in rounded


def _round_result(graph: Graph, node: Node, value: Value, element: str) -> None:
    """Put a RoundTo between a node and its result, which keeps its name and its users."""
    raw = Value(graph.unique_name(f"{value.name}__unrounded"), value.type)
    raw.producer, raw.index = node, value.index
    node.outputs = tuple(raw if v is value else v for v in node.outputs)
    name = graph.unique_name(f"{node.name}.{element}")
    graph.insert_after(node, Node(name, RoundTo(element), [raw], [value]))

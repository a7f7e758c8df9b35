"""Nodes that a recipe makes float16 or bfloat16: weights and results of 16 bits around float32 sums.

Their operator stays the float one. A RoundTo behind each float result rounds it, and the weights of a
Conv or Gemm, rounded too, are stored in 16 bits; biases, sums and everything between stay float32.
"""

from __future__ import annotations

import numpy as np

from qglow.core.errors import UnsupportedError
from qglow.core.passes import PassLog
from qglow.graph.graph import Graph, Node, Value, constant
from qglow.graph.operator import Accumulate, SameAs
from qglow.graph.ops.functions import RoundTo
from qglow.graph.ops.shape import Pad
from qglow.numerics.half import holds, round_to, store
from qglow.quantization.choices import Choices
from qglow.quantization.options import QuantizationOptions
from qglow.quantization.placement import chosen_half

PASS = "round-to-half"


def round_chosen(
    graph: Graph, options: QuantizationOptions, choices: Choices, log: PassLog
) -> dict[str, str]:
    """Round weights and results of the nodes that `choices` make float16 or bfloat16, in place.

    Values keep their names, and rounded
    ones those of what they are rounded from. Returns the type by name of the node. Raises UnsupportedError
    where a weight would become infinite.
    """
    log.pass_name = PASS
    chosen: dict[str, str] = {}
    rounded: set[tuple[Value, str]] = set()
    for node in list(graph.nodes):
        element = chosen_half(node, options.pattern_for(node), choices.of_node(node))
        if not element:
            continue
        results = [value for value in node.outputs if value.type.is_float]
        chosen[node.name] = element
        if isinstance(node.operator.policy, Accumulate):
            _round_weights(graph, node, element, log)
        if not _passes_on(node, element, rounded):
            for value in results:
                _round_result(graph, node, value, element)
        rounded.update((value, element) for value in results)
    return chosen


def store_rounded(graph: Graph) -> dict[str, str]:
    """Store weights in 16 bits where a RoundTo is all that reads the result and they fit its type, in place.

    So that a model that rounds by itself, as those that qglow exports do, is stored as it was. Returns the
    type by name of every node that is rounded.
    """
    found: dict[str, str] = {}
    for node in graph.nodes:
        element = _rounded_to(node)
        if element is None:
            continue
        found[node.name] = element
        policy = node.operator.policy
        weights = node.operand(policy.w) if isinstance(policy, Accumulate) else None
        is_float = weights is not None and weights.data is not None and weights.type.is_float
        if weights is not None and is_float and holds(np.asarray(weights.data), element):
            _replace(graph, node, weights, element)
    return found


def _rounded_to(node: Node) -> str | None:
    """The type that the one user of a node's result rounds it to."""
    users = node.output.users() if len(node.outputs) == 1 else []
    return users[0].operator.element if len(users) == 1 and isinstance(users[0].operator, RoundTo) else None


def _round_weights(graph: Graph, node: Node, element: str, log: PassLog) -> None:
    policy = node.operator.policy
    assert isinstance(policy, Accumulate)
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
    """Let a node read its weights in 16 bits; others keep theirs."""
    assert weights.data is not None
    alone = weights.users() == [node] and not graph.is_output(weights)
    name = weights.name if alone else graph.unique_name(f"{weights.name}_{element}")
    made = constant(name, store(weights.data, element))
    node.inputs = tuple(made if value is weights else value for value in node.inputs)


def _passes_on(node: Node, element: str, rounded: set[tuple[Value, str]]) -> bool:
    """Whether the node only moves elements that are rounded already."""
    policy, operator = node.operator.policy, node.operator
    if isinstance(operator, Pad) and not holds(np.array(operator.value, np.float32), element):
        return False
    source = node.inputs[policy.operand] if isinstance(policy, SameAs) else None
    return source is not None and (source, element) in rounded


def _round_result(graph: Graph, node: Node, value: Value, element: str) -> None:
    """Put a RoundTo between a node and its result, which keeps its name and its users."""
    raw = Value(graph.unique_name(f"{value.name}__unrounded"), value.type)
    raw.producer, raw.index = node, value.index
    node.outputs = tuple(raw if v is value else v for v in node.outputs)
    name = graph.unique_name(f"{node.name}.{element}")
    graph.insert_after(node, Node(name, RoundTo(element), [raw], [value]))

"""Arithmetic with one number, which passes state as a vector of that number, where its axis is counted."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from qglow.core.types import Array
from qglow.counts.small import SmallConstants
from qglow.counts.twins import twins_of
from qglow.graph.graph import Graph, Node, Value, constant
from qglow.graph.rewriting import operand


def spread_numbers(graphs: Sequence[Graph], small: SmallConstants | None = None) -> None:
    """Let a factor and a summand that all places of an axis have be numbers, where sizes decide the axis.

    graphs: the same model in several sizes, all of which are changed alike. small: constants of far smaller
    sizes, whose numbers are the same. `x * r + t` is then a Mul and an
    Add, whose float32 results are the very same. A mask of tokens such as `(1 - mask) * -10000` is one.
    """
    for twins in twins_of(graphs):
        numbers = [found for node in twins if (found := _numbers(node)) is not None]
        if len(numbers) < len(twins) or len({node.output.type.shape[1] for node in twins}) < 2:
            continue
        if small is not None and not all(small.has_number(operand(twins[0], index)) for index in (1, 2)):
            continue
        if len({(r.tobytes(), t.tobytes()) for r, t in numbers}) > 1:
            continue
        for graph, node, found in zip(graphs, twins, numbers, strict=True):
            _split(graph, node, *found)


def _numbers(node: Node) -> tuple[Array, Array] | None:
    """The factor and the summand of a node of floats that has one of each, [1] arrays; else None."""
    if node.operator.factor_and_summand is None or node.output.type.is_quantized:
        return None
    x, *vectors = node.inputs
    if x is None or x.type.is_quantized:
        return None
    found = []
    for vector in vectors:
        if vector is None or vector.data is None or not len(vector.data) or np.ptp(vector.data) != 0:
            return None
        found.append(np.asarray(vector.data[:1]))
    return found[0], found[1]


def _split(graph: Graph, node: Node, factor: Array, summand: Array) -> None:
    steps = node.operator.factor_and_summand
    assert steps is not None, "the node has numbers"
    x = node.inputs[0]
    r, t = (
        constant(graph.unique_name(f"{node.name}__{what}"), n) for what, n in (("r", factor), ("t", summand))
    )
    product = Value(graph.unique_name(f"{node.name}__scaled"), node.output.type)
    graph.insert_before(node, Node(graph.unique_name(f"{node.name}__scaled"), steps[0], (x, r), (product,)))
    node.operator, node.inputs = steps[1], (product, t)

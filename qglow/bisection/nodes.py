"""The first node whose int8 form makes a model miss an accuracy."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from qglow.core.errors import UsageError
from qglow.core.types import Array
from qglow.graph.graph import Graph, Node
from qglow.graph.interpreter import Interpreter
from qglow.profiling.histogram import ValueProfile
from qglow.quantization.pipeline import quantize_with
from qglow.recipe.schema import Recipe


@dataclass(frozen=True)
class NodeDifference:
    """The node with which the outputs fall below the limit, all before it being int8 and all behind it float.

    The fault is in the node's own int8 form, or in the range of an int8 value that it reads: a result that
    only float nodes read has no range yet.

    number: it is the how-manyth int8 node, from 1. before, after: SQNR of the worst output in dB, without and
    with it in int8.
    """

    node: str
    operator: str
    number: int
    before: float
    after: float


def first_node(
    graph: Graph,
    statistics: Mapping[str, ValueProfile],
    samples: int,
    recipe: Recipe,
    runs: Sequence[Mapping[str, Array]],
    min_sqnr: float,
) -> NodeDifference | None:
    """Find the node by halving: int8 up to it, float behind it; None if all in int8 is good enough.

    graph: canonical, float. statistics: of its profile, over so many `samples`. runs: inputs to compare on.
    min_sqnr: of every output, in dB. Exact where accuracy only falls as more nodes become int8.
    Raises UsageError if no node is int8.
    """
    expected = [Interpreter(graph).run(inputs) for inputs in runs]
    nodes = _int8_nodes(graph, statistics, samples, recipe)

    def sqnr(count: int) -> float:
        kept = tuple(f"re:{re.escape(node.name)}" for node in nodes[count:])
        chosen = replace(recipe, keep_float=(*recipe.keep_float, *kept), assert_all_quantized=False)
        made = quantize_with(graph, dict(statistics), samples, chosen)
        outputs = [Interpreter(made.graph).run(inputs) for inputs in runs]
        return worst_sqnr(expected, outputs)

    fails = sqnr(len(nodes))
    if fails >= min_sqnr:
        return None
    good, bad, passes = 0, len(nodes), math.inf
    while bad - good > 1:
        middle = (good + bad) // 2
        found = sqnr(middle)
        if found >= min_sqnr:
            good, passes = middle, found
        else:
            bad, fails = middle, found
    node = nodes[bad - 1]
    return NodeDifference(node.name, node.operator.name, bad, passes, fails)


def worst_sqnr(expected: Sequence[Mapping[str, Array]], actual: Sequence[Mapping[str, Array]]) -> float:
    """The smallest SQNR of an output over all runs, in dB; infinite where nothing differs."""
    worst = math.inf
    for name, array in expected[0].items():
        if array.dtype.kind != "f":
            continue
        signal = sum(float(np.sum(np.square(run[name], dtype=np.float64))) for run in expected)
        pairs = zip(expected, actual, strict=True)
        noise = sum(float(np.sum(np.square(a[name] - b[name], dtype=np.float64))) for a, b in pairs)
        if noise > 0.0:
            worst = min(worst, 10.0 * math.log10(signal / noise) if signal > 0.0 else -math.inf)
    return worst


def _int8_nodes(
    graph: Graph, statistics: Mapping[str, ValueProfile], samples: int, recipe: Recipe
) -> list[Node]:
    made = quantize_with(graph, dict(statistics), samples, recipe)
    quantized = {node.name for node in made.report.quantized}
    nodes = [node for node in graph.nodes if node.name in quantized]
    if not nodes:
        raise UsageError("no node of the model is int8: there is nothing to look for")
    return nodes

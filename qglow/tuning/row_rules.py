"""Products that measure their rows while the model runs: which can, and rules for them."""

from __future__ import annotations

import math
import re
from collections.abc import Container, Iterable, Mapping

from qglow.graph.graph import Graph, Node, Value
from qglow.graph.work import node_multiply_adds
from qglow.profiling.histogram import ValueProfile
from qglow.quantization.choices import Choice, Choices
from qglow.quantization.dynamic import rows_of, unfit_for_rows
from qglow.recipe.choices import FIXED
from qglow.recipe.rules import DYNAMIC, Match, Rule
from qglow.recipe.schema import Recipe
from qglow.tuning.costs import multiply_adds

MOST_UNEVEN = 2.0
"""Largest ratio of the two ends of a range. Rows are symmetric, which costs results of activations a bit."""


def allows_rows(recipe: Recipe) -> bool:
    """Whether a recipe leaves ranges, scales of weights, arithmetic and float nodes to qglow."""
    stated = recipe.per_tensor or recipe.assert_all_quantized or recipe.requantization == FIXED
    return recipe.calibration.is_default and not stated


def undecided_products(graph: Graph, choices: Choices) -> list[Node]:
    """Return the int8 products with weights about which no rule says anything."""
    products = (node for node in graph.nodes if node.operator.accumulate is not None)
    return [node for node in products if _is_undecided(choices.of_node(node))]


def undecided_steps(graph: Graph, choices: Choices) -> list[Node]:
    """Return the recurrent layers of one step about which no rule says anything, if they have a product."""
    layers = (node for node in graph.nodes if node.operator.recurs is not None)
    return [node for node in layers if fits_rows(node) and _is_undecided(choices.of_node(node))]


def fits_rows(node: Node) -> bool:
    """Whether a product can measure its rows."""
    return unfit_for_rows(node) is None


def is_even(value: Value, statistics: Mapping[str, ValueProfile]) -> bool:
    """Whether a value reaches about equally far in both directions."""
    seen = statistics.get(value.name)
    if seen is None or not seen.total:
        return False
    ends = sorted((-seen.low, seen.high))
    return ends[1] <= MOST_UNEVEN * ends[0]


def is_mostly(products: Iterable[Node], graph: Graph) -> bool:
    """Whether these products and recurrent layers have at least half of the multiplications with weights."""
    layers = (node for node in graph.nodes if node.operator.recurs is not None)
    counted = dict.fromkeys((*products, *layers))
    return 2.0 * math.fsum(map(node_multiply_adds, counted)) >= multiply_adds(graph)


def rules_for_rows(products: Iterable[Node], graph: Graph, choices: Choices) -> list[Rule]:
    """Return rules by which products measure their rows, and light nodes that they alone read are float."""
    chosen = dict.fromkeys(products)
    light = _only_read_by(chosen, graph, choices)
    pairs = ((chosen, DYNAMIC), (light, "float"))
    return [Rule(Match(name=names_pattern(nodes)), dtype=dtype) for nodes, dtype in pairs if nodes]


def names_pattern(named: Iterable[Node | Value]) -> str:
    """Return the pattern of a rule for these nodes or values and no others."""
    return "|".join(re.escape(each.name) for each in named)


def read_rows(products: Iterable[Node]) -> tuple[str, ...]:
    """Return the names of the values whose rows these products measure."""
    return tuple(dict.fromkeys(rows_of(node).name for node in products))


def count_rows(count: int) -> str:
    """Say how many products measure their rows."""
    one = "one product measures its rows while the model runs"
    return f"{count} products measure their rows while the model runs" if count > 1 else one


def _is_undecided(choice: Choice) -> bool:
    """Whether a node is int8 and no rule says so."""
    return not (choice.rules or choice.kept_float or choice.policy or choice.wide)


def _only_read_by(products: Container[Node], graph: Graph, choices: Choices) -> list[Node]:
    """Return the light nodes that these products alone read: integers of theirs would be measured again."""
    found: list[Node] = []
    for node in reversed(graph.nodes):
        users = [user for value in node.outputs for user in value.users()]
        if not users or any(user not in products and user not in found for user in users):
            continue
        inner = not any(graph.is_output(value) for value in node.outputs)
        if inner and node.operator.is_light and _is_undecided(choices.of_node(node)):
            found.append(node)
    return found

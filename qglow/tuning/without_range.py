"""Inputs of products in models with attention that no range suits, and what they get in its place.

A row of such an input is a token, and tokens differ more from each other than their elements do: a product
whose rows are measured while the model runs loses less than one with a range from any number of samples, and
clips nothing of later ones. With few rows that takes hardly any time.

Where rows are too uneven for that and few elements were seen, the range reaches farther: the largest of a few
hundred elements is well below that of the next few thousand.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from qglow.graph.graph import Graph, Node, Value
from qglow.graph.rewriting import operand
from qglow.profiling.histogram import ValueProfile
from qglow.quantization.choices import Choice, Choices
from qglow.quantization.dynamic import unfit_for_rows
from qglow.quantization.report import Repair
from qglow.recipe.choices import FIXED, Calibration
from qglow.recipe.rules import DYNAMIC, Match, Rule
from qglow.recipe.schema import Recipe

MOST_UNEVEN = 2.0
"""Largest ratio of the two ends of a range. Rows are symmetric, which costs results of activations a bit."""
FEWEST = 1024
"""Elements of a value with a range from which on it is what was seen."""
FARTHER = 1.35
"""Factor of the range below that, about what a normal distribution needs for a hundred times as many."""


def without_range(
    recipe: Recipe, graph: Graph, statistics: Mapping[str, ValueProfile]
) -> tuple[Recipe, tuple[Repair, ...]]:
    """Return the recipe with rules for such products, and what they change; nothing where it decides itself.

    Rules of the recipe, and a calibration, weight scales or arithmetic that it states, stay in force. Light
    nodes whose results products that measure their rows alone read are float.
    """
    if recipe.per_tensor or recipe.requantization == FIXED or not recipe.calibration.is_default:
        return recipe, ()
    choices = Choices.of(graph, recipe)
    if not any(choice.in_attention for choice in choices.nodes.values()):
        return recipe, ()
    products = [
        node
        for node in graph.nodes
        if node.operator.accumulate is not None and _is_undecided(choices.of_node(node))
    ]
    even = {
        node: None
        for node in products
        if _is_even(operand(node), statistics) and unfit_for_rows(node) is None
    }
    light = _only_read_by(even, graph, choices)
    rules, repairs = [], []
    if even:
        rules.append(_rule([node.name for node in even], dtype=DYNAMIC))
        repairs.append(_repair(_count(even), map(operand, even)))
    if light:
        rules.append(_rule([node.name for node in light], dtype="float"))
    few = dict.fromkeys(operand(node) for node in products if node not in even)
    few_seen = [value for value in few if _saw_few(value, statistics)]
    farther = [
        each
        for each in dict.fromkeys(each for value in few_seen for each in _moved_from(value))
        if not choices.of_value(each).rules
    ]
    if farther:
        chosen = Calibration("minmax", stated=True, factor=FARTHER)
        rules.append(_rule([value.name for value in farther], calibration=chosen))
        what = f"ranges {FARTHER:g} times as far as what was seen: too few elements were seen for a range"
        repairs.append(_repair(what, farther))
    return replace(recipe, rules=(*rules, *recipe.rules)), tuple(repairs)


def _is_undecided(choice: Choice) -> bool:
    """Whether a node is int8 and no rule says so."""
    return not (choice.rules or choice.kept_float or choice.policy or choice.wide)


def _saw_few(value: Value, statistics: Mapping[str, ValueProfile]) -> bool:
    seen = statistics.get(value.name)
    return seen is not None and 0 < seen.total < FEWEST


def _is_even(value: Value, statistics: Mapping[str, ValueProfile]) -> bool:
    """Whether a value reaches about equally far in both directions."""
    seen = statistics.get(value.name)
    if seen is None or not seen.total:
        return False
    ends = sorted((-seen.low, seen.high))
    return ends[1] <= MOST_UNEVEN * ends[0]


def _moved_from(value: Value) -> list[Value]:
    """Return a value with those that it is moved from, which share its range."""
    chain = [value]
    while chain[-1].producer is not None and chain[-1].producer.operator.kept_operand is not None:
        chain.append(operand(chain[-1].producer, chain[-1].producer.operator.kept_operand))
    return chain


def _only_read_by(products: Mapping[Node, None], graph: Graph, choices: Choices) -> list[Node]:
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


def _rule(names: Iterable[str], dtype: str | None = None, calibration: Calibration | None = None) -> Rule:
    return Rule(Match(name="|".join(map(re.escape, names))), dtype=dtype, calibration=calibration)


def _count(nodes: Mapping[Node, None]) -> str:
    one = "one product measures its rows while the model runs"
    return f"{len(nodes)} products measure their rows while the model runs" if len(nodes) > 1 else one


def _repair(what: str, values: Iterable[Value]) -> Repair:
    return Repair(what, None, None, tuple(dict.fromkeys(value.name for value in values)))

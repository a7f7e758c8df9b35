"""Products of models with attention whose inputs a profile saw too few elements of to give them a range.

The largest of a few hundred elements is well below that of the next few thousand, so that a range from a
handful of samples clips later ones: the classifier behind an encoder reads one row of each sample. Such a
product measures its rows while the model runs, which takes no data and, with few rows, hardly any time.
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

FEWEST = 8192
"""Elements of a value that give it a range.

Of drawn transformers with 8 samples, those below lost up to 12 dB on other samples, those above hardly any.
"""
MOST_UNEVEN = 2.0
"""Largest ratio of the two ends of a range. Rows are symmetric, which costs results of activations a bit."""
VERY_FEW = 1024
"""Elements of an uneven value from which on its range is what was seen."""
FARTHER = 1.35
"""Factor of the range below that, about what a normal distribution needs for a hundred times as many."""


def for_few_seen(
    recipe: Recipe, graph: Graph, statistics: Mapping[str, ValueProfile]
) -> tuple[Recipe, tuple[Repair, ...]]:
    """Return the recipe with rules for such products, and what they change; nothing where it decides itself.

    Rules of the recipe, and a calibration, weight scales or arithmetic that it states, stay in force. Light
    nodes whose few results such products alone read are float.
    """
    if recipe.per_tensor or recipe.requantization == FIXED or not recipe.calibration.is_default:
        return recipe, ()
    choices = Choices.of(graph, recipe)
    if not any(choice.in_attention for choice in choices.nodes.values()):
        return recipe, ()
    few = [
        node
        for node in graph.nodes
        if node.operator.accumulate is not None
        and _is_undecided(choices.of_node(node))
        and _saw_few(operand(node), statistics)
    ]
    even = {
        node: None for node in few if _is_even(operand(node), statistics) and unfit_for_rows(node) is None
    }
    light = _only_read_by(even, graph, statistics, choices)
    uneven = [operand(node) for node in few if not _is_even(operand(node), statistics)]
    very_few = [value for value in dict.fromkeys(uneven) if statistics[value.name].total < VERY_FEW]
    farther = [each for value in very_few for each in _moved_from(value) if not choices.of_value(each).rules]
    rules, repairs = [], []
    if even:
        rules.append(_rule([node.name for node in even], dtype=DYNAMIC))
        repairs.append(
            _repair(_count(even, "products scale their rows while the model runs"), map(operand, even))
        )
    if light:
        rules.append(_rule([node.name for node in light], dtype="float"))
    if farther:
        chosen = Calibration("minmax", stated=True, factor=FARTHER)
        rules.append(_rule([value.name for value in farther], calibration=chosen))
        repairs.append(_repair(f"ranges {FARTHER:g} times as far as what was seen", farther))
    return replace(recipe, rules=(*rules, *recipe.rules)), tuple(repairs)


def _is_undecided(choice: Choice) -> bool:
    """Whether a node is int8 and no rule says so."""
    return not (choice.rules or choice.kept_float or choice.policy or choice.wide)


def _saw_few(value: Value, statistics: Mapping[str, ValueProfile]) -> bool:
    seen = statistics.get(value.name)
    return seen is not None and 0 < seen.total < FEWEST


def _is_even(value: Value, statistics: Mapping[str, ValueProfile]) -> bool:
    """Whether a value reaches about equally far in both directions."""
    seen = statistics[value.name]
    ends = sorted((-seen.low, seen.high))
    return ends[1] <= MOST_UNEVEN * ends[0]


def _moved_from(value: Value) -> list[Value]:
    """Return a value with those that it is moved from, which share its range."""
    chain = [value]
    while chain[-1].producer is not None and chain[-1].producer.operator.kept_operand is not None:
        chain.append(operand(chain[-1].producer, chain[-1].producer.operator.kept_operand))
    return chain


def _only_read_by(
    products: Mapping[Node, None], graph: Graph, statistics: Mapping[str, ValueProfile], choices: Choices
) -> list[Node]:
    """Return the light nodes of which few results were seen, and read by these products alone."""
    found: list[Node] = []
    for node in reversed(graph.nodes):
        users = [user for value in node.outputs for user in value.users()]
        if not users or any(user not in products and user not in found for user in users):
            continue
        few = all(_saw_few(value, statistics) and not graph.is_output(value) for value in node.outputs)
        if few and node.operator.is_light and _is_undecided(choices.of_node(node)):
            found.append(node)
    return found


def _rule(names: Iterable[str], dtype: str | None = None, calibration: Calibration | None = None) -> Rule:
    return Rule(Match(name="|".join(map(re.escape, names))), dtype=dtype, calibration=calibration)


def _count(nodes: Mapping[Node, None], what: str) -> str:
    return f"{len(nodes)} {what}" if len(nodes) > 1 else "one product scales its rows while the model runs"


def _repair(what: str, values: Iterable[Value]) -> Repair:
    names = tuple(dict.fromkeys(value.name for value in values))
    return Repair(f"{what}: too few elements were seen for a range", None, None, names)

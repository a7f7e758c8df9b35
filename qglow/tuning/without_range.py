"""Inputs of products that no range suits, in attention and in streams, and what they get in its place.

A row of such an input in attention is a token, and tokens differ more from each other than their elements do:
a product whose rows are measured while the model runs loses less than one with a range from any number of
samples, and clips nothing of later ones. With few rows that takes hardly any time.

A recurrent layer of one step reads a state that the caller carries. Samples hold the states of few streams,
and one that is clipped is wrong in all later calls too: such layers measure their states, in every model.

Where rows in attention are too uneven for that and few elements were seen, the range reaches farther: the
largest of a few hundred elements is well below that of the next few thousand.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from qglow.graph.graph import Graph, Value
from qglow.graph.rewriting import operand
from qglow.profiling.histogram import ValueProfile
from qglow.quantization.choices import Choices
from qglow.quantization.own_level import in_own_units
from qglow.quantization.report import Repair
from qglow.recipe.choices import Calibration
from qglow.recipe.rules import Match, Rule
from qglow.recipe.schema import Recipe
from qglow.tuning.row_rules import (
    allows_rows,
    count_rows,
    fits_rows,
    is_even,
    names_pattern,
    read_rows,
    rules_for_rows,
    undecided_products,
    undecided_steps,
)

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
    if not allows_rows(recipe):
        return recipe, ()
    choices = Choices.of(graph, recipe)
    attention = any(choice.in_attention for choice in choices.nodes.values())
    steps = undecided_steps(graph, choices) if recipe.scheme != "cnn" and recipe.io == "float" else []
    if not attention and not steps:
        return recipe, ()
    products = undecided_products(graph, choices) if attention else []
    own_units = in_own_units(graph)
    fitting = (
        node
        for node in products
        if fits_rows(node) and (operand(node) in own_units or is_even(operand(node), statistics))
    )
    even = dict.fromkeys((*fitting, *steps))
    rules, repairs = rules_for_rows(even, graph, choices), list[Repair]()
    if even:
        repairs.append(Repair(count_rows(len(even)), None, None, read_rows(even)))
    few = dict.fromkeys(operand(node) for node in products if node not in even)
    few_seen = [value for value in few if _saw_few(value, statistics)]
    farther = [
        each
        for each in dict.fromkeys(each for value in few_seen for each in _moved_from(value))
        if not choices.of_value(each).rules
    ]
    if farther:
        chosen = Calibration("minmax", stated=True, factor=FARTHER)
        rules.append(Rule(Match(name=names_pattern(farther)), calibration=chosen))
        what = f"ranges {FARTHER:g} times as far as what was seen: too few elements were seen for a range"
        repairs.append(Repair(what, None, None, tuple(value.name for value in farther)))
    return replace(recipe, rules=(*rules, *recipe.rules)), tuple(repairs)


def _saw_few(value: Value, statistics: Mapping[str, ValueProfile]) -> bool:
    seen = statistics.get(value.name)
    return seen is not None and 0 < seen.total < FEWEST


def _moved_from(value: Value) -> list[Value]:
    """Return a value with those that it is moved from, which share its range."""
    chain = [value]
    while chain[-1].producer is not None and chain[-1].producer.operator.kept_operand is not None:
        chain.append(operand(chain[-1].producer, chain[-1].producer.operator.kept_operand))
    return chain

"""Linear layers beyond attention that measure their rows where that makes the outputs better for little time.

In attention that is decided without a search, see `without_range`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from qglow.graph.graph import Graph, Node
from qglow.graph.rewriting import operand
from qglow.quantization.choices import Choices
from qglow.quantization.report import Repair
from qglow.recipe.schema import Recipe
from qglow.tuning.mix import Mix, mix_rules
from qglow.tuning.quantizer import Quantizer
from qglow.tuning.row_rules import (
    allows_rows,
    count_rows,
    fits_rows,
    is_even,
    is_mostly,
    read_rows,
    rules_for_rows,
    undecided_products,
)
from qglow.tuning.stage import Stage
from qglow.tuning.wide_bound import most_level
from qglow.tuning.wide_search import GAIN_DB, most_cycles
from qglow.tuning.widening import light_mixes


def with_rows(
    before: Stage, recipe: Recipe, quantizer: Quantizer, made: Callable[[Recipe], Stage]
) -> tuple[Stage, Repair] | None:
    """Return the stage where linear layers measure their rows, and what changed; None where none is better.

    Those whose inputs are even do, or all; where they are most of the work, also all with the light nodes in
    float, since integers between rows are rounded twice. recipe: a layer that a rule of this one is about
    stays as it is. made: makes the stage of a recipe. Programs are compared, because a rehearsal does not
    round such rows. Ranges clip nothing of the samples that they are from, so that the gain on others is
    larger.
    """
    choices = Choices.of(quantizer.graph, recipe)
    products = _products(quantizer.graph, choices, recipe)
    even = tuple(node for node in products if is_even(operand(node), quantizer.statistics))
    forms = [(even, Mix()), (products, Mix())]
    if is_mostly(products, quantizer.graph):
        forms += [(products, mix) for mix in light_mixes(before)[:1]]
    best: tuple[Stage, tuple[Node, ...], Mix] | None = None
    for chosen, light in dict.fromkeys(forms):
        exact = Mix.joined((Mix(tuple(node.name for node in chosen)), light))
        if not chosen or most_level(before, exact) < before.glance + GAIN_DB:
            continue
        rules = (*rules_for_rows(chosen, quantizer.graph, choices), *mix_rules(light))
        changed = made(replace(before.recipe, rules=(*rules, *before.recipe.rules)))
        level, least = changed.measured.level, (before if best is None else best[0]).measured.level
        most = most_cycles(before, level - before.measured.level, bool(light))
        if level >= least + GAIN_DB and changed.cycles <= most:
            best = changed, chosen, light
    if best is None:
        return None
    after, chosen, light = best
    levels = before.measured.level, after.measured.level
    what = count_rows(len(chosen)) + (", and light nodes are float" if light else "")
    return after, Repair(what, *levels, read_rows(chosen))


def is_mostly_rows(graph: Graph, recipe: Recipe) -> bool:
    """Whether the layers that may measure their rows have most of the work of a graph."""
    products = _products(graph, Choices.of(graph, recipe), recipe)
    return bool(products) and is_mostly(products, graph)


def _products(graph: Graph, choices: Choices, recipe: Recipe) -> tuple[Node, ...]:
    """Return the layers that may measure their rows; none in a model with attention."""
    attention = any(choice.in_attention for choice in choices.nodes.values())
    if attention or not allows_rows(recipe) or recipe.scheme == "cnn":
        return ()
    return tuple(node for node in undecided_products(graph, choices) if fits_rows(node))

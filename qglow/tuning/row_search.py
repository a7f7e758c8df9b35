"""Linear layers beyond attention that measure their rows where that makes the outputs better for little time.

In attention that is decided without a search, see `without_range`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from qglow.graph.graph import Node
from qglow.graph.rewriting import operand
from qglow.quantization.choices import Choices
from qglow.quantization.report import Repair
from qglow.recipe.schema import Recipe
from qglow.tuning.mix import Mix
from qglow.tuning.quantizer import Quantizer
from qglow.tuning.row_rules import (
    allows_rows,
    count_rows,
    fits_rows,
    is_even,
    read_rows,
    rules_for_rows,
    undecided_products,
)
from qglow.tuning.stage import Stage
from qglow.tuning.wide_bound import most_level
from qglow.tuning.wide_search import GAIN_DB, most_cycles


def with_rows(
    before: Stage, recipe: Recipe, quantizer: Quantizer, made: Callable[[Recipe], Stage]
) -> tuple[Stage, Repair] | None:
    """Return the stage where linear layers measure their rows, and what changed; None where none is better.

    Those whose inputs are even do, or all. recipe: a layer that a rule of this one is about stays as it is.
    made: makes the stage of a recipe. Programs are compared, because a rehearsal does not round such rows.
    Ranges clip nothing of the samples that they are from, so that the gain on others is larger.
    """
    choices = Choices.of(quantizer.graph, recipe)
    attention = any(choice.in_attention for choice in choices.nodes.values())
    if attention or not allows_rows(recipe) or recipe.scheme == "cnn":
        return None
    products = tuple(node for node in undecided_products(quantizer.graph, choices) if fits_rows(node))
    even = tuple(node for node in products if is_even(operand(node), quantizer.statistics))
    best: tuple[Stage, tuple[Node, ...]] | None = None
    for chosen in filter(None, dict.fromkeys((even, products))):
        if most_level(before, Mix(tuple(node.name for node in chosen))) < before.glance + GAIN_DB:
            continue
        rules = rules_for_rows(chosen, quantizer.graph, choices)
        changed = made(replace(before.recipe, rules=(*rules, *before.recipe.rules)))
        level, least = changed.measured.level, (before if best is None else best[0]).measured.level
        if level >= least + GAIN_DB and changed.cycles <= most_cycles(before, level - before.measured.level):
            best = changed, chosen
    if best is None:
        return None
    after, chosen = best
    levels = before.measured.level, after.measured.level
    return after, Repair(count_rows(len(chosen)), *levels, read_rows(chosen))

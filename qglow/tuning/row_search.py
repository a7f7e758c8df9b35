"""Linear layers beyond attention that measure their rows where that makes the outputs better for little time.

In attention that is decided without a search, see `without_range`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from qglow.graph.graph import Graph, Node
from qglow.graph.rewriting import operand
from qglow.graph.work import node_multiply_adds
from qglow.quantization.choices import Choices
from qglow.quantization.report import Repair
from qglow.recipe.schema import Recipe
from qglow.tuning.costs import multiply_adds
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
from qglow.tuning.wide_search import GAIN_DB, LARGEST_SHARE, STEEP_DB, most_cycles
from qglow.tuning.widening import light_mixes

FEW_SAMPLES = 128
"""Samples below which a range is not taken to hold for others: one in as many of these lies beyond it."""
NO_RANGE_DB = 4.0
"""Worth of a form without any range where samples are so few, in dB."""
NO_RANGE_FROM = 30.0
"""SQNR, in dB, that such a form has to have on the samples: below, rounding is what ruins the model."""


def with_rows(
    before: Stage, recipe: Recipe, quantizer: Quantizer, made: Callable[[Recipe], Stage]
) -> tuple[Stage, Repair] | None:
    """Return the stage where linear layers measure their rows, and what changed; None where none is better.

    Those whose inputs are even do, or all; where they are most of the work, also all with the light nodes in
    float, since integers between rows are rounded twice, and the few products that have no rows, such as
    convolutions before a recurrent layer, with these. recipe: a layer that a rule of this one is about
    stays as it is. made: makes the stage of a recipe. Programs are compared, because a rehearsal does not
    round such rows. Ranges clip nothing of the samples that they are from, so that the gain on others is
    larger, in recurrent layers and with few samples most: there a form without any range may take the time of
    one that wins much, and with few samples it may lose a little on them.
    """
    choices = Choices.of(quantizer.graph, recipe)
    products = _products(quantizer.graph, choices, recipe)
    even = tuple(node for node in products if is_even(operand(node), quantizer.statistics))
    forms = [(even, Mix()), (products, Mix())]
    few: tuple[str, ...] = ()
    mostly = is_mostly(products, quantizer.graph)
    if mostly:
        light = next(iter(light_mixes(before)), Mix())
        few = _few_others(products, quantizer.graph, choices)
        forms += [(products, mix) for mix in (light, Mix.joined((light, Mix(few))))]
    recurrent = any(node.operator.recurs for node in quantizer.graph.nodes)
    few_samples = mostly and quantizer.samples < FEW_SAMPLES
    best: tuple[Stage, tuple[Node, ...], Mix] | None = None
    for chosen, light in dict.fromkeys(forms):
        exact = Mix.joined((Mix(tuple(node.name for node in chosen)), light))
        bonus = NO_RANGE_DB if few_samples and chosen == products else 0.0
        if not chosen or most_level(before, exact) + bonus < before.glance + GAIN_DB:
            continue
        rules = (*rules_for_rows(chosen, quantizer.graph, choices), *mix_rules(light))
        changed = made(replace(before.recipe, rules=(*rules, *before.recipe.rules)))
        level, least = changed.measured.level, (before if best is None else best[0]).measured.level
        won = level - before.measured.level
        if changed.parameters or level < NO_RANGE_FROM:
            bonus = 0.0
        if not changed.parameters and (recurrent or few_samples):
            won = max(won, STEEP_DB)  # no range is left that other data could leave
        most = most_cycles(before, won, bool(light))
        if level + bonus >= least + GAIN_DB and changed.cycles <= most:
            best = changed, chosen, light
    if best is None:
        return None
    after, chosen, light = best
    levels = before.measured.level, after.measured.level
    what = count_rows(len(chosen)) + (", and light nodes are float" if light else "")
    if set(few).intersection(light.keep_float):
        what += f", as {f'are {len(few)} products' if len(few) > 1 else 'is a product'} without rows"
    return after, Repair(what, *levels, read_rows(chosen))


def _few_others(products: tuple[Node, ...], graph: Graph, choices: Choices) -> tuple[str, ...]:
    """Names of the other int8 products with weights; none where these have much of the multiplications."""
    others = [node for node in undecided_products(graph, choices) if node not in products]
    work = math.fsum(map(node_multiply_adds, others))
    return tuple(node.name for node in others) if work <= LARGEST_SHARE * multiply_adds(graph) else ()


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

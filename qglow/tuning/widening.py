"""Nodes that become int16 or float because their results cost the outputs most, in a rehearsal."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from qglow.graph.graph import Value
from qglow.recipe.rules import Match, Rule
from qglow.report.tensors import counterpart
from qglow.tuning.costs import multiply_adds, node_multiply_adds
from qglow.tuning.mix import Mix, Precision
from qglow.tuning.needs import Needs, Place
from qglow.tuning.sensitivity import int8_values
from qglow.tuning.stage import Stage

SIZES = (1, 2, 4, 8)
"""Numbers of values that are no longer rounded to int8, which are tried in this order; then all, if fewer."""
_BUDGET = 4e10
"""Multiplications that looking for these values may take, approximately."""
_LEAST = 0.98
"""Largest share of the noise that may be left where one of these values is not rounded."""


def wide_mixes(stage: Stage, share: float) -> list[Mix]:
    """Return mixes to try, the smallest first: each has the nodes of one before it, and more.

    Their nodes have at most `share` of the model's multiplications.
    """
    graph = stage.result.graph
    limit, found, wide = share * multiply_adds(graph), list[Mix](), Needs()
    count = 0
    for place in _costly(stage):
        more = _joined(wide, place.to_int16)
        if not more or sum(map(node_multiply_adds, more)) > limit:
            continue
        wide, count = more, count + 1
        if count in SIZES:
            found.append(_mix(wide))
        if count == SIZES[-1]:
            return found
    return found if not wide or count in SIZES else [*found, _mix(wide)]


def mix_rules(mix: Mix) -> list[Rule]:
    """Rules of a recipe for a mix."""
    return [
        Rule(Match(name="|".join(map(re.escape, names))), dtype=dtype)
        for dtype, names in mix.by_type()
        if names
    ]


def _costly(stage: Stage) -> list[Place]:
    """Places whose rounding alone makes a difference at the outputs, the largest first, within the budget."""
    names = counterpart(stage.result.source, stage.result.graph)
    start = stage.chosen(stage.parameters).even.total
    scored: list[tuple[float, int, Place]] = []
    for value in _noisiest(stage, names)[: math.floor(_BUDGET / stage.cost)]:
        name = names[value.name]
        others = {other: kind for other, kind in stage.parameters.items() if other != name}
        score = stage.chosen(others).even.total
        if score < _LEAST * start:
            scored.append((score, len(scored), Place.of(value)))
    return [place for _, _, place in sorted(scored, key=lambda each: each[:2])]


def _noisiest(stage: Stage, names: Mapping[str, str]) -> list[Value]:
    """Values that a rehearsal can leave as they are; those that rounding harms most itself come first."""
    noise = stage.own_noise
    places = [
        value
        for value in int8_values(stage.result.graph)
        if names.get(value.name) in stage.rehearsal.rounded and names[value.name] in stage.parameters
    ]
    return sorted(places, key=lambda value: -noise.get(names[value.name], 0.0))


def _joined(needs: Needs, more: Needs) -> Needs:
    """Each node with the larger precision of both."""
    found = dict(needs)
    for node, precision in more.items():
        found[node] = max(precision, found.get(node, precision))
    return found


def _mix(needs: Needs) -> Mix:
    def named(precision: Precision) -> tuple[str, ...]:
        return tuple(node.name for node, wanted in needs.items() if wanted is precision)

    return Mix(named(Precision.FLOAT), named(Precision.INT16))

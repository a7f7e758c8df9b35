"""Nodes that become int16 or float because their results cost the outputs most, in a rehearsal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from itertools import zip_longest
from operator import attrgetter

from qglow.graph.graph import Node
from qglow.graph.work import node_multiply_adds
from qglow.quantization.report import is_int8
from qglow.tuning.costliest import Group
from qglow.tuning.costs import multiply_adds
from qglow.tuning.mix import Mix, Precision
from qglow.tuning.needs import Needs, Place
from qglow.tuning.rehearsal import rounded_values
from qglow.tuning.stage import Stage

SIZES = (1, 2, 4, 8)
"""Numbers of groups of values that are no longer rounded to int8, tried in this order; then all, if fewer."""
_LEAST = 0.98
"""Largest share of the noise that may be left where one of these values is not rounded."""


def wide_mixes(stage: Stage, share: float) -> list[tuple[Mix, ...]]:
    """Return mixes to try, the smallest first: each has the nodes of one before it, and more.

    Each stands there in the forms to choose among: the nodes in int16 as far as they have such a form, the
    same but for sums of products that then read it as int8, and in float. Those of a form have at most
    `share` of the model's multiplications.
    """
    graph = stage.result.graph
    limit, groups = share * multiply_adds(graph), _costly(stage)
    by_form = [
        _growing([reduce(joined, map(form, group), Needs()) for group in groups], limit, SIZES)
        for form in (attrgetter("to_int16"), light_int16, attrgetter("to_float"))
    ]
    return [
        tuple(dict.fromkeys(mix for mix in mixes if mix)) for mixes in zip_longest(*by_form, fillvalue=Mix())
    ]


def widest_mixes(stage: Stage) -> list[Mix]:
    """Return larger mixes to try, up to one for all values, for a model that loses a little everywhere.

    Nodes are in int16 as far as they have such a form. After the values that cost the outputs most come
    those with most noise of their own.
    """
    places = rounded_values(stage.result.source, stage.result.graph)
    told = {name for group in _causes(stage) for name in group}
    rest = sorted(places.keys() - told, key=lambda name: (-stage.own_noise.get(name, 0.0), name))
    groups = [*_costly(stage), *([Place.of(places[name])] for name in rest)]
    sizes = [2**power for power in range(len(groups).bit_length()) if 2**power > SIZES[-1]]
    steps = [reduce(joined, (place.to_int16 for place in group), Needs()) for group in groups]
    return _growing(steps, math.inf, (*sizes, len(groups)))


def light_mixes(stage: Stage) -> tuple[Mix, ...]:
    """Return mixes with light int8 nodes beyond attention regions in float: all, and those that are no table.

    What only moves the inputs of products rounds nothing, and stays.
    """
    choices, graph = stage.choices, stage.result.graph
    moving, light = set[Node](), list[Node]()
    for node in reversed(graph.nodes):
        beyond = node.name in choices.nodes and not choices.of_node(node).in_attention
        if not (beyond and is_int8(node) and node.operator.is_light):
            continue
        users = [user for value in node.outputs for user in value.users()]
        moves = node.operator.kept_operand is not None and bool(users)
        if moves and all(user in moving or user.operator.accumulate is not None for user in users):
            moving.add(node)
        else:
            light.insert(0, node)
    others = [node for node in light if not node.operator.is_tabulated]
    mixes = (Mix(tuple(node.name for node in nodes)) for nodes in (light, others))
    return tuple(dict.fromkeys(mix for mix in mixes if mix))


def light_int16(place: Place) -> Needs:
    """Needs for a value to be int16 where light nodes read it; what sums products reads it as int8."""
    source = place.value.producer
    return {
        node: precision
        for node, precision in place.to_int16.items()
        if node is source or not node.operator.sums_products
    }


def _growing(steps: Sequence[Needs], limit: float, sizes: Sequence[int]) -> list[Mix]:
    """Mixes for the first needs of `steps`, as many as `sizes` has it, without those beyond the limit."""
    found, wide, count = list[Mix](), Needs(), 0
    for step in steps:
        more = joined(wide, step)
        if not more or sum(map(node_multiply_adds, more)) > limit:
            continue
        wide, count = more, count + 1
        if count in sizes:
            found.append(mix_of(wide))
        if count == sizes[-1]:
            return found
    return found if not wide or count in sizes else [*found, mix_of(wide)]


def _costly(stage: Stage) -> list[list[Place]]:
    """Groups of places whose rounding makes a difference at the outputs, the largest first."""
    places = rounded_values(stage.result.source, stage.result.graph)
    return [[Place.of(places[name]) for name in group if name in places] for group in _causes(stage)]


def _causes(stage: Stage) -> list[Group]:
    """Names of values whose rounding makes a difference at the outputs, the largest first."""
    return [group for group, left in stage.costliest.items() if left < _LEAST]


def joined(needs: Needs, more: Needs) -> Needs:
    """Each node with the larger precision of both."""
    found = dict(needs)
    for node, precision in more.items():
        found[node] = max(precision, found.get(node, precision))
    return found


def mix_of(needs: Needs, path: str = "") -> Mix:
    """The mix that gives nodes what they need; `path` precedes names where the graph is a region."""

    def named(precision: Precision) -> tuple[str, ...]:
        return tuple(path + node.name for node, wanted in needs.items() if wanted is precision)

    return Mix(named(Precision.FLOAT), named(Precision.INT16))

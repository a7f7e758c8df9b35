"""Values inside of branches and loops whose rounding costs most, and mixes in which they are wide.

A rehearsal runs regions in int8 as they are, so that each value there is tried by quantizing it otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import reduce
from operator import attrgetter

from qglow.graph.graph import nested
from qglow.tuning.costliest import Group, costliest
from qglow.tuning.mix import Mix, mix_rules
from qglow.tuning.needs import Needs, Place
from qglow.tuning.sensitivity import int8_values
from qglow.tuning.stage import Stage
from qglow.tuning.widening import joined, light_int16, mix_of

TRIALS = 16
"""Recipes that are tried at most, each of which is compiled."""
_MOST = 8
"""Largest number of groups of values that are found."""
_LEAST = 0.98
"""Largest share of the noise that may be left where such values are not rounded."""


class RoundedInside:
    """Values that are rounded in the regions of a stage's int8 graph, by the path and the name."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._places: dict[str, tuple[str, Place]] = {
            path + value.name: (path, Place.of(value))
            for path, region in nested(stage.result.graph)
            if path
            for value in int8_values(region)
        }

    def __bool__(self) -> bool:
        return bool(self._places)

    def mixes(self) -> list[tuple[Mix, ...]]:
        """Return mixes to try, the smallest first: each has the nodes of one before it, and more.

        Each stands there in the forms of `wide_mixes`. Nothing is looked for where all values together cost
        little.
        """
        names, start = list(self._places), self._stage.own.noise_on(self._stage.choosing).even.total
        if not names or start <= 0.0 or self._left(tuple(names)) >= _LEAST * start:
            return []
        found = costliest(names, start, self._left, TRIALS, _MOST)
        groups = [group for rest, group in found if rest < _LEAST * start]
        sizes = [groups[: count + 1] for count in range(len(groups))]
        together = [[name for group in some for name in group] for some in sizes]
        together += [names] if sum(map(len, groups)) < len(names) else []
        forms = (attrgetter("to_int16"), light_int16, attrgetter("to_float"))
        return [tuple(dict.fromkeys(self._mix(some, form) for form in forms)) for some in together]

    def _left(self, group: Group) -> float:
        """The noise at the outputs where these values are not rounded."""
        recipe = self._stage.recipe
        rules = mix_rules(self._mix(group, attrgetter("to_float")))
        return self._stage.tried(
            replace(recipe, rules=(*rules, *recipe.rules)), self._stage.choosing
        ).even.total

    def _mix(self, names: Iterable[str], form: Callable[[Place], Needs]) -> Mix:
        """The mix for these values: node names have the paths of their regions before them."""
        by_path: dict[str, Needs] = {}
        for path, place in map(self._places.__getitem__, names):
            by_path[path] = joined(by_path.get(path, Needs()), form(place))
        return reduce(lambda mix, path: Mix.joined((mix, mix_of(by_path[path], path))), by_path, Mix())

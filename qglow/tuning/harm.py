"""Search for the groups of nodes whose equalization, splitting or bias correction harms the outputs.

What helps one group harms another: scaled channels have no histogram, halves of a channel cost levels, and a
bias that makes up for one mean is wrong where a later value is clipped. Groups are tried by themselves, those
first that can account for most of the noise (branch and bound): leaving a correction out wins at most what
is won by not rounding what it touches, which one rehearsal tells for any number of groups.
"""

from __future__ import annotations

import heapq
import itertools
import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

from qglow.quantization.corrections import Correction
from qglow.recipe.rules import Match, Rule
from qglow.recipe.schema import Recipe
from qglow.tuning.rehearsed_constants import Exchange
from qglow.tuning.stage import LIKELY, Stage

Part = tuple[Correction, ...]
LEAST = 0.98
"""Largest share of the noise that may be left where a group is changed."""
_BUDGET = 3e10
"""Multiplications that looking for groups may take, approximately."""
_NODE = 2e7
"""Cost of quantizing a node again, in multiplications, approximately."""
_REACHED = 3
"""Rehearsals for each group with which a search reaches all of them."""


@dataclass(frozen=True)
class Family:
    """Corrections that are tried together. name: in words. off: choices of the recipe that leave all out."""

    name: str
    off: Mapping[str, bool | float]

    def of(self, stage: Stage) -> Part:
        """The corrections of a stage that belong to it, in the order of the graph."""
        return tuple(each for each in stage.result.corrections if each.kind in self.off)

    def without(self, recipe: Recipe) -> Recipe:
        """The recipe without all of them."""
        return replace(recipe, **self.off)  # type: ignore[arg-type]


SCALING = Family("equalization and smoothing", {"equalize": False, "smooth": False})
SPLITTING = Family("channel splitting", {"split_channels": 0.0})
BIASES = Family("bias correction", {"correct_bias": False})
FAMILIES = (SCALING, SPLITTING, BIASES)


def leaving_out(recipe: Recipe, groups: Sequence[Correction]) -> Recipe:
    """The recipe with rules that leave these corrections out; rules that it has come after them."""
    by_kind: dict[str, list[str]] = {}
    for group in groups:
        by_kind.setdefault(group.kind, []).append(group.node)
    rules = tuple(
        Rule(Match(name="|".join(map(re.escape, names))), **{kind: False})  # type: ignore[arg-type]
        for kind, names in by_kind.items()
    )
    return replace(recipe, rules=(*rules, *recipe.rules))


@dataclass(frozen=True)
class Ways:
    """A stage with corrections in groups, and one without any of them; a search begins at the better one."""

    groups: Part
    stage: Stage
    without: Stage

    @cached_property
    def from_none(self) -> bool:
        """Whether it begins without any."""
        stage, without = (each.chosen(each.parameters).even.score for each in (self.stage, self.without))
        return without < stage

    @property
    def base(self) -> Stage:
        """The stage to begin at."""
        return self.without if self.from_none else self.stage

    @property
    def other(self) -> Stage:
        """The one that is not."""
        return self.stage if self.from_none else self.without


def harmful(family: Family, stage: Stage, without: Stage) -> Part:
    """Return the corrections of a stage to leave out: those that harm its outputs, on the runs to choose on.

    without: the stage by the recipe with no correction of the family. Where it is the better one, the search
    begins there, and takes groups back that help.
    """
    ways = Ways(family.of(stage), stage, without)
    trials = _Biases(ways) if family is BIASES else _Scopes(ways)
    changed = set(_best(ways.groups, trials, LIKELY * stage.chosen(stage.parameters).even.score))
    return tuple(group for group in ways.groups if (group in changed) is not ways.from_none)


class _Trials(Protocol):
    """Changes of groups: left out of what has them all, or taken back by what has none (`from_none`)."""

    from_none: bool
    start: float
    """Noise before any change."""

    def reach(self, part: Part) -> float:
        """The most noise that changing some or all of these groups could remove, approximately."""

    def left(self, part: Part) -> float:
        """The noise with all of these groups changed."""

    @property
    def exhausted(self) -> bool:
        """Whether the budget is spent."""


def _best(groups: Sequence[Correction], trials: _Trials, limit: float) -> Part:
    """The groups whose change leaves least noise, as far as the budget goes; none above the limit."""
    order, least = itertools.count(), (1.0 - LEAST) * trials.start
    parts = [(0.0, next(order), tuple(groups))]
    found: list[tuple[float, int, Correction]] = []
    while parts and not trials.exhausted:
        _, number, part = heapq.heappop(parts)
        if len(part) == 1:
            noise = trials.left(part)
            if noise <= trials.start - least:
                found.append((noise, number, part[0]))
            continue
        middle = len(part) // 2
        for half in (part[:middle], part[middle:]):
            most = trials.reach(half)
            if most >= least:
                heapq.heappush(parts, (-most / math.sqrt(len(half)), next(order), half))
    picked: Part = ()
    reached = trials.start
    for noise, _, group in sorted(found):
        tried = (*picked, group)
        noise = trials.left(tried) if picked else noise
        if noise < reached:
            picked, reached = tried, noise
    return picked if reached <= limit else ()


class _Counted:
    """Budget of trials, and the runs that they take: all to choose on, or one where those are too many."""

    def __init__(self, ways: Ways, making: float) -> None:
        self.from_none = ways.from_none
        self._groups, self._base, self._making = ways.groups, ways.base, making
        self._runs, self._cost, self._spent = self._base.choosing, self._base.cost, 0.0
        if _REACHED * len(ways.groups) * (self._cost + making) > _BUDGET:
            self._runs, self._cost = self._runs[:1], self._cost / len(self._runs)

    @property
    def exhausted(self) -> bool:
        return self._spent >= _BUDGET

    def exchanged(self, exchange: Exchange, but: Collection[str] = ()) -> float:
        """The noise with other constants, and without rounding these values."""
        self._spent += self._cost
        kept = {name: kind for name, kind in self._base.parameters.items() if name not in but}
        return self._base.exchanged(exchange, kept, self._runs).even.score


class _Scopes(_Counted):
    """Scaling or splitting of channels: every trial is quantized anew."""

    def __init__(self, ways: Ways) -> None:
        super().__init__(ways, _NODE * len(ways.base.result.source.nodes))
        self._recipe = ways.stage.recipe
        self.start = self.exchanged(Exchange())

    def reach(self, part: Part) -> float:
        values = {name for group in part for name in group.values}
        nodes = frozenset(name for group in part for name in group.weights)
        return self.start - self.exchanged(Exchange(exact=nodes), values)

    def left(self, part: Part) -> float:
        self._spent += self._cost + self._making
        out = [group for group in self._groups if (group in part) is not self.from_none]
        return self._base.tried(leaving_out(self._recipe, out), self._runs).even.score


class _Biases(_Counted):
    """Biases: those of all trials are known from the stages with and without all corrections."""

    def __init__(self, ways: Ways) -> None:
        super().__init__(ways, 0.0)
        self._others = {node.name: node for node in ways.other.result.graph.nodes}
        self._known: dict[Part, float] = {}
        self.start = self.left(())

    def reach(self, part: Part) -> float:
        """The change of the noise, up or down: a part may hold what helps beside what harms."""
        return abs(self.start - self.left(part))

    def left(self, part: Part) -> float:
        if part not in self._known:
            instead = {group.node: self._others[group.node] for group in part if group.node in self._others}
            self._known[part] = self.exchanged(Exchange(instead=instead))
        return self._known[part]

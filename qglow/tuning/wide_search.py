"""Search for the few nodes in int16 or float that make a model better for little time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from qglow.recipe.schema import Recipe
from qglow.report.verdict import BROKEN_DB, GOOD_DB
from qglow.tuning.body_search import RoundedInside
from qglow.tuning.costs import multiply_adds, named_multiply_adds
from qglow.tuning.mix import Mix, mix_rules
from qglow.tuning.sensitivity import decibels
from qglow.tuning.stage import LIKELY_DB, Stage
from qglow.tuning.wide_bound import most_level
from qglow.tuning.widening import light_mixes, wide_mixes, widest_mixes

GAIN_DB = 1.0
"""Least gain in SQNR, in dB, for more nodes in int16 or float."""
LONGEST = 1.15
"""Largest estimated time of a run with nodes in int16 or float, relative to the time without, of a model that
is suspicious without; one that is broken has no limit."""
LONGEST_GOOD = 1.05
"""The same of a model that is good without."""
LONGEST_LIGHT = 1.25
"""The same, in place of `LONGEST`, of a model whose light nodes beside attention, or between rows, become
float, as they are in attention; `LONGEST` is in place of `LONGEST_GOOD` then."""
STEEP_DB = 3.0
"""Gain in SQNR, in dB, for which a good model may take the time of a suspicious one."""
LARGEST_SHARE = 0.1
"""Share of the multiplications that nodes in int16 or float may have, unless the model is broken without."""
_ROUNDS = 2
"""How often the values that cost most are looked for: where few cost nearly all, they hide the others."""
_TRIALS = 6e10
"""Multiplications for trying such nodes where the model is fine without, approximately."""
_FEWEST = 4
"""Trials below which that is not begun."""


class WideSearch:
    """Search that begins at a stage, `best`, and ends there or at one with nodes in int16 or float, `mixed`.

    made: makes the stage of a recipe.
    """

    def __init__(self, plain: Stage, made: Callable[[Recipe], Stage]) -> None:
        self._plain, self._made = plain, made
        self.best, self.mixed = plain, Mix()
        self._missed: dict[str, float] = {}

    def run(self, goal_db: float) -> None:
        """Widen what costs the outputs most, until the worst is at `goal_db` or nothing more is won.

        Nodes inside of regions come first: errors there go through all rounds. Light nodes of convolutional
        networks, and of such parts beside attention, come last: they lose a little each.
        """
        self._grow(RoundedInside(self.best).mixes(), self.mixed, goal_db)
        if self.best.sqnr_db >= goal_db:
            return
        for _ in range(_ROUNDS):
            before = self.best
            self._grow(wide_mixes(before, self._share), self.mixed, goal_db)
            if self.best is before or self.best.sqnr_db >= goal_db:
                break
        if self.best.sqnr_db < goal_db and (self._has_attention or not self._is_broken):
            self._missed.clear()
            light = [Mix.joined((self.mixed, mix)) for mix in light_mixes(self.best)]
            self._tried(light, (LONGEST, LONGEST_LIGHT) if self._has_attention else None)
        if self._is_broken and self.best.sqnr_db < GOOD_DB:
            # No few values are at fault: more and more of them, until the result can be used.
            self._grow(((mix,) for mix in widest_mixes(self.best)), self.mixed, GOOD_DB)

    def _grow(self, mixes: Iterable[Sequence[Mix]], known: Mix, goal_db: float) -> None:
        """Try mixes beside the known one, the smallest first, until one is good enough or takes too long."""
        for forms in mixes:
            if not self._tried([Mix.joined((known, mix)) for mix in forms]):
                break
            if self.best.sqnr_db >= goal_db:
                break

    @property
    def _has_attention(self) -> bool:
        return any(choice.in_attention for choice in self._plain.choices.nodes.values())

    @property
    def _is_broken(self) -> bool:
        return self._plain.sqnr_db < BROKEN_DB

    @property
    def _share(self) -> float:
        return 1.0 if self._is_broken else LARGEST_SHARE

    def _tried(self, forms: Sequence[Mix], longest: tuple[float, float] | None = None) -> bool:
        """Take the shortest form of a mix that wins enough, or one that wins much more.

        longest: largest time of a model that is good, and of one that is not or wins much. Returns False
        where all take too long.
        """
        longest = longest or (LONGEST_GOOD, LONGEST)
        rules = self._plain.recipe.rules
        limit = self._share * multiply_adds(self._plain.result.graph)
        few = [mix for mix in forms if self._multiplications(mix) <= limit]
        most = {mix: most_level(self.best, mix) for mix in few}
        least = self.best.glance + LIKELY_DB
        able = [mix for mix in few if most[mix] - self._missing(mix) >= least]
        if not able:
            return bool(few)
        made = {mix: self._made(replace(self._plain.recipe, rules=(*mix_rules(mix), *rules))) for mix in able}
        most_cycles = self._longest(STEEP_DB, longest)
        short = {mix: stage for mix, stage in made.items() if stage.cycles <= most_cycles}
        if not short:
            return False
        chosen: tuple[Mix, Stage] | None = None
        for mix, stage in sorted(short.items(), key=lambda pair: pair[1].cycles):
            self._missed[self._form(mix)] = max(most[mix] - stage.glance, 0.0)
            better = self.best if chosen is None else chosen[1]
            if stage.glance < better.glance + LIKELY_DB or not self._wins(stage, longest):
                continue
            if chosen is None or stage.judged().level >= chosen[1].judged().level + GAIN_DB:
                chosen = mix, stage
        if chosen is not None:
            self.mixed, self.best = chosen
        return True

    def _missing(self, mix: Mix) -> float:
        """Decibels by which a mix will stay below what it can win at best, by the last one of its form.

        Where a model is broken, few wide nodes tell nothing about many.
        """
        return 0.0 if self._is_broken else self._missed.get(self._form(mix), 0.0)

    def _form(self, mix: Mix) -> str:
        """The form of nodes that a mix has and the known one has not: float, int16, or int16 without sums."""
        added = set(mix.int16) - set(self.mixed.int16)
        if not added:
            return "float"
        summing = {node.name for node in self._plain.result.graph.nodes if node.operator.sums_products}
        return "int16" if added & summing else "light int16"

    def _wins(self, stage: Stage, longest: tuple[float, float]) -> bool:
        """Whether a stage is enough better than the best for its time."""
        won = min(stage.level - self.best.level, stage.judged().level - self.best.judged().level)
        return won >= GAIN_DB and stage.cycles <= self._longest(won, longest)

    def _multiplications(self, mix: Mix) -> float:
        names = {*mix.keep_float, *mix.int16}
        graph = self._plain.result.graph
        return math.fsum(work for name, work in named_multiply_adds(graph) if name in names)

    def _longest(self, won_db: float, longest: tuple[float, float]) -> float:
        """Cycles that a run may take for so many more dB than were reached already."""
        if self._is_broken:
            return math.inf
        return _factor(self.best.sqnr_db, won_db, longest) * self._plain.cycles


def _factor(sqnr_db: float, won_db: float, longest: tuple[float, float]) -> float:
    """Largest time of a run, relative to the one before, for so many dB more than a model has.

    longest: for one that is good, and for one that is not or wins much.
    """
    good, other = longest
    return other if sqnr_db < GOOD_DB or won_db >= STEEP_DB else good


def most_cycles(stage: Stage, won_db: float, light: bool = False) -> float:
    """Estimated cycles that a run may take for so many dB more than the program of a stage has.

    light: whether light nodes become float, as they are in attention.
    """
    level = decibels(stage.measured.plain.worst)
    longest = (LONGEST, LONGEST_LIGHT) if light else (LONGEST_GOOD, LONGEST)
    return _factor(level, won_db, longest) * stage.cycles


def affords_wide(stage: Stage) -> bool:
    """Whether trying such nodes costs little enough where a model is fine without."""
    return _FEWEST * stage.whole_cost <= _TRIALS

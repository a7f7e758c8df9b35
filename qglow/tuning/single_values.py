"""Calibrations for single values, chosen by the noise at the outputs in a rehearsal."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

from qglow.core.types import Quantization
from qglow.recipe.choices import Calibration
from qglow.recipe.rules import Match, Rule
from qglow.tuning.rehearsal import Parameters
from qglow.tuning.stage import LIKELY, Stage

_BUDGET = 4e10
"""Multiplications that trying single values may take, approximately."""
_ALONE = 0.995
"""Share of the noise that a change of one value has to bring it below, to be tried with others."""


def best_singles(stage: Stage, methods: Sequence[str]) -> dict[str, str]:
    """Return calibrations for single values, by name, that leave less noise on the runs to choose on."""
    proposals = dict(zip(methods, stage.proposed(methods), strict=True))
    base = stage.parameters
    start = stage.chosen(base).even.score
    better: list[tuple[float, str, str]] = []
    for value, name in _open(stage, proposals):
        score = stage.chosen({**base, value: proposals[name][value]}).even.score
        if score < _ALONE * start:
            better.append((score, value, name))
    picked: dict[str, str] = {}
    changed, reached = dict(base), start
    for _, value, name in sorted(better):
        tried = {**changed, value: proposals[name][value]}
        score = stage.chosen(tried).even.score
        if score < reached:
            picked[value], changed, reached = name, tried, score
    return picked if reached <= LIKELY * start else {}


def by_method(singles: Mapping[str, str]) -> dict[str, list[str]]:
    """The values of each calibration."""
    found: dict[str, list[str]] = {}
    for value, name in singles.items():
        found.setdefault(name, []).append(value)
    return found


def rules_for(singles: Mapping[str, str]) -> list[Rule]:
    """Rules of a recipe for calibrations of single values."""
    return [
        Rule(Match(name="|".join(map(re.escape, values))), calibration=Calibration.parse(name))
        for name, values in by_method(singles).items()
    ]


def _open(stage: Stage, proposals: Mapping[str, Parameters]) -> list[tuple[str, str]]:
    """Return values and calibrations to try alone, within the budget.

    Where not all can be tried, the first are values whose rounding costs the outputs most, then those that
    lose most themselves, and of one value the calibrations that differ most.
    """
    base, noise = stage.parameters, stage.own_noise
    found: dict[tuple[str, Quantization], tuple[float, float, str, str]] = {}
    for name, parameters in proposals.items():
        for value, kind in parameters.items():
            if value in stage.rehearsal.rounded and value in base and kind != base[value]:
                difference = abs(math.log(kind.scale / base[value].scale))
                rank = (-noise.get(value, 0.0), -difference, value, name)
                found.setdefault((value, kind), rank)
    most = math.floor(_BUDGET / stage.cost)
    ranked = sorted(found.values())
    if len(ranked) > most:
        place = {value: number for number, group in enumerate(stage.costliest) for value in group}
        ranked.sort(key=lambda rank: place.get(rank[2], len(place)))
    return [(value, name) for *_, value, name in ranked[:most]]

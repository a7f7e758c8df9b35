"""Choice of calibrations and other settings by the noise at the outputs, on the samples that a profile keeps.

No calibration method is safe on every model: each ruins some. So all of them are tried in a rehearsal, for
the whole model and, with enough samples to choose on one half and judge on the other, for single values.
Budgets are counted in multiplications, so that results are the same on every machine.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from qglow.core.types import Quantization
from qglow.profiling.distribution import Distribution
from qglow.profiling.samples import Sample
from qglow.quantization.pipeline import proposed_parameters
from qglow.quantization.report import Repair
from qglow.recipe.choices import Calibration
from qglow.recipe.rules import Match, Rule
from qglow.recipe.schema import Recipe
from qglow.tuning.costs import multiply_adds
from qglow.tuning.output_noise import OutputNoise
from qglow.tuning.quantizer import Quantizer
from qglow.tuning.rehearsal import Parameters, Rehearsal
from qglow.tuning.self_check import FloatRuns, float_runs
from qglow.tuning.sensitivity import decibels

METHODS = ("kl", "mse", "percentile:99.99", "minmax")
"""Calibrations to choose from; of equal ones the first wins."""
ENOUGH_TO_JUDGE = 8
"""Least number of runs for which one half chooses and the other half judges."""
LEAST_DB = 0.4
"""Least gain in SQNR, in dB, for which another calibration replaces the default one for all values."""
SAFE = "mse"
LARGEST_CLIPPED = 0.02
"""Share of a value's power that may be clipped where there are no samples to measure the outputs on."""
ENOUGH_DB = 15.0
"""SQNR, in dB, from which on no model without equalization, smoothing or bias correction is tried."""
FEWEST = 4
"""Least number of samples that are rehearsed, if there are as many."""
_WHOLE = 6e10
"""Multiplications that trying all calibrations for the whole model may take, approximately."""
_SINGLES = 1e10
"""Multiplications that trying single values may take, approximately."""
_ELEMENT = 40.0
"""Cost of rounding an element, in multiplications, approximately."""
_LEAST = 0.98
"""Largest share of the noise that may be left by a change of single values."""


@dataclass(frozen=True)
class Repaired:
    """A recipe with the changes that were chosen for it, and a description of each with its gain."""

    recipe: Recipe
    repairs: tuple[Repair, ...] = ()


def repaired(recipe: Recipe, quantizer: Quantizer, kept: Sequence[Sample]) -> Repaired:
    """Choose calibrations, and leave out harmful corrections, by the outputs over the samples in a profile.

    A calibration that the recipe states, and its rules, stay as they are. Without samples, a value gets the
    calibration `SAFE` if the default one clips more than `LARGEST_CLIPPED` of its power. A recipe that
    profiles again stays as it is.
    """
    if recipe.profile_again:
        return Repaired(recipe)
    if not kept:
        return _by_histograms(recipe, quantizer) if recipe.calibration.is_default else Repaired(recipe)
    shape = quantizer.graph.inputs[0].type.shape
    a_sample = len(METHODS) * multiply_adds(quantizer.graph) / max(shape[0] if shape else 1, 1)
    affordable = max(FEWEST, math.floor(_WHOLE / max(a_sample, 1.0)))
    runs = float_runs(quantizer.graph, kept[:affordable], quantizer.options)
    stage = _Stage(recipe, quantizer, runs)
    if not stage.rehearsal.rounded:
        return Repaired(recipe)
    found = Repaired(recipe)
    if recipe.calibration.is_default:
        found = stage.with_calibrations()
    before = stage.over_all(stage.of(found.recipe))
    return found if decibels(before) >= ENOUGH_DB else _without_harm(found, before, quantizer, runs)


class _Stage:
    """Rehearsal for recipes that differ in calibrations only, with runs to choose on and runs to judge by."""

    def __init__(self, recipe: Recipe, quantizer: Quantizer, runs: FloatRuns) -> None:
        self._recipe = recipe
        self._quantizer = quantizer
        self.result = quantizer(recipe)
        self.rehearsal = Rehearsal(self.result.source, self.result.graph, quantizer.options)
        halves = len(runs.inputs) >= ENOUGH_TO_JUDGE
        self._choosing = runs.part(0, 2) if halves else runs
        self._judging = runs.part(1, 2) if halves else None
        rounded = (v for v in self.result.source.values() if v.name in self.rehearsal.rounded)
        self._work = multiply_adds(self.result.source) + _ELEMENT * sum(v.type.size for v in rounded)

    def proposed(self, recipe: Recipe, calibrations: Sequence[Calibration]) -> list[dict[str, Quantization]]:
        """Return the parameters that each calibration gives under the recipe's rules."""
        made = self._quantizer
        return proposed_parameters(made.graph, dict(made.statistics), made.samples, recipe, calibrations)

    def of(self, recipe: Recipe) -> Parameters:
        """Return the parameters of a recipe that differs from the stage's in calibrations only."""
        return self.proposed(recipe, [recipe.calibration])[0]

    def chosen(self, parameters: Parameters) -> OutputNoise:
        """Measure the noise on the samples to choose on."""
        return self._noise(self._choosing, parameters)

    def judged(self, parameters: Parameters) -> OutputNoise:
        """Measure the noise on the samples to judge by; without such, on those to choose on."""
        return self._noise(self._judging or self._choosing, parameters)

    def over_all(self, parameters: Parameters) -> float:
        """Measure the noise over all samples: that of the worst output."""
        parts = [self.chosen(parameters)]
        parts += [] if self._judging is None else [self.judged(parameters)]
        return OutputNoise.joined(parts).worst

    def _noise(self, runs: FloatRuns, parameters: Parameters) -> OutputNoise:
        noise = OutputNoise()
        for inputs, expected in zip(runs.inputs, runs.outputs, strict=True):
            noise.add(self.rehearsal(inputs, parameters), expected)
        return noise

    def with_calibrations(self) -> Repaired:
        """Return the recipe with the best calibration for all values, and for single ones."""
        recipe = self._recipe
        kinds = [Calibration.parse(name) for name in METHODS]
        proposals = dict(zip(METHODS, self.proposed(recipe, kinds), strict=True))
        noise = {name: self.over_all(parameters) for name, parameters in proposals.items()}
        plain = str(recipe.calibration)
        best = min(METHODS, key=noise.__getitem__)
        if decibels(noise[best]) < decibels(noise[plain]) + LEAST_DB:
            best = plain
        repairs = []
        if best != plain:
            recipe = replace(recipe, calibration=Calibration.parse(best))
            what = f"calibration {best} in place of {plain}"
            repairs.append(Repair(what, decibels(noise[plain]), decibels(noise[best])))
        singles = {} if self._judging is None else self._singles(proposals, best)
        if singles:
            mixed = replace(recipe, rules=(*_rules(singles), *recipe.rules))
            parameters = self.of(mixed)
            before, after = self.judged(proposals[best]).worst, self.judged(parameters).worst
            if after < _LEAST * before and self.over_all(parameters) < noise[best]:
                recipe = mixed
                counts = ", ".join(
                    f"{name} for {len(values)}" for name, values in _by_method(singles).items()
                )
                what = f"calibration of single values: {counts}"
                repairs.append(Repair(what, decibels(before), decibels(after), tuple(singles)))
        return Repaired(recipe, tuple(repairs))

    def _singles(self, proposals: Mapping[str, Parameters], best: str) -> dict[str, str]:
        """Return calibrations for single values, by name, that leave less noise than `best` for all."""
        base = proposals[best]
        start = self.chosen(base).score
        better: list[tuple[float, str, str]] = []
        for value, name in self._open(proposals, best):
            score = self.chosen({**base, value: proposals[name][value]}).score
            if score < start * (1.0 - (1.0 - _LEAST) / 4.0):
                better.append((score, value, name))
        better.sort()
        picked: dict[str, str] = {}
        for _, value, name in better:
            picked.setdefault(value, name)
        while picked:
            changed = {value: proposals[name][value] for value, name in picked.items()}
            if self.chosen({**base, **changed}).score < _LEAST * start:
                return picked
            picked = dict(list(picked.items())[: len(picked) // 2])
        return {}

    def _open(self, proposals: Mapping[str, Parameters], best: str) -> list[tuple[str, str]]:
        """Return values and calibrations to try alone, within the budget: largest change of scale first."""
        base, found = proposals[best], dict[tuple[str, Quantization], tuple[float, str, str]]()
        for name, parameters in proposals.items():
            for value, kind in parameters.items():
                if value in self.rehearsal.rounded and value in base and kind != base[value]:
                    difference = abs(math.log(kind.scale / base[value].scale))
                    found.setdefault((value, kind), (-difference, value, name))
        a_try = self._work * max(len(self._choosing.inputs), 1)
        most = math.floor(_SINGLES / max(a_try, 1.0))
        return [(value, name) for _, value, name in sorted(found.values())[:most]]


def _by_histograms(recipe: Recipe, quantizer: Quantizer) -> Repaired:
    """Return the recipe with a safer calibration for values of which the default one clips too much."""
    result = quantizer(recipe)
    unsafe: dict[str, float] = {}
    for tensor in result.report.tensors:
        seen = quantizer.statistics.get(tensor.value)
        if seen is None or not seen.total or tensor.value in result.rescaled:
            continue
        share = Distribution.of(seen).power_outside(tensor.low, tensor.high)
        if tensor.calibration == str(recipe.calibration) and share > LARGEST_CLIPPED:
            unsafe[tensor.value] = share
    if not unsafe:
        return Repaired(recipe)
    rules = _rules(dict.fromkeys(unsafe, SAFE))
    what = (
        f"calibration {SAFE} for {len(unsafe)} values of which {recipe.calibration} cuts off up to "
        f"{100.0 * max(unsafe.values()):.0f} % of the power; predicted, for want of samples"
    )
    return Repaired(
        replace(recipe, rules=(*rules, *recipe.rules)),
        (Repair(what, None, None, tuple(unsafe)),),
    )


def _without_harm(found: Repaired, before: float, quantizer: Quantizer, runs: FloatRuns) -> Repaired:
    """Return the recipe without equalization and smoothing or bias correction, where that gains 1 dB or more.

    They are left out only while the SQNR of the outputs is below `ENOUGH_DB`.
    """
    recipe, repairs = found.recipe, list(found.repairs)
    tries = {
        "without equalization and smoothing": {"equalize": False, "smooth": False},
        "without bias correction": {"correct_bias": False},
    }
    for what, change in tries.items():
        if decibels(before) >= ENOUGH_DB or all(
            getattr(recipe, name) is value for name, value in change.items()
        ):
            continue
        changed = replace(recipe, **change)  # type: ignore[arg-type]
        after = _noise_of(changed, quantizer, runs)
        if decibels(after) >= decibels(before) + 1.0:
            repairs.append(Repair(what, decibels(before), decibels(after)))
            recipe, before = changed, after
    return Repaired(recipe, tuple(repairs))


def _noise_of(recipe: Recipe, quantizer: Quantizer, runs: FloatRuns) -> float:
    stage = _Stage(recipe, quantizer, runs)
    return stage.over_all(stage.of(recipe))


def _by_method(singles: Mapping[str, str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for value, name in singles.items():
        found.setdefault(name, []).append(value)
    return found


def _rules(singles: Mapping[str, str]) -> list[Rule]:
    return [
        Rule(Match(name="|".join(map(re.escape, values))), calibration=Calibration.parse(name))
        for name, values in _by_method(singles).items()
    ]

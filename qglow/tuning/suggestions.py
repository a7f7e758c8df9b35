"""Changes of a recipe that may improve an int8 model: chosen by prediction, then measured."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from qglow.core.progress import Advance
from qglow.core.types import Array
from qglow.profiling.profile import Profile
from qglow.profiling.samples import Sample
from qglow.recipe.choices import Calibration
from qglow.recipe.rules import Match, Rule
from qglow.recipe.schema import Recipe
from qglow.report.comparison import compare as run_comparison
from qglow.report.comparison_result import FLOAT, INT8
from qglow.report.diagnosis import GAIN, Diagnosis, TriedChange
from qglow.report.parts import QuantizedParts, float_model
from qglow.report.runner import RealInterface, Runner
from qglow.toolchain import CompileOptions, compile_graph
from qglow.tuning.costs import placed_nodes
from qglow.tuning.effort import CANDIDATES
from qglow.tuning.quantize import quantize_model
from qglow.tuning.ranges import RangeChoice, choose_ranges

VALUES = 4
"""Number of values that are tried with another calibration."""
NODES = 2
"""Number of nodes that are tried in float."""
_UNCHANGED = "as it is"


@dataclass(frozen=True)
class _Change:
    where: str
    what: str
    rules: tuple[Rule, ...]


def try_changes(
    parts: QuantizedParts,
    profile: Profile,
    diagnosis: Diagnosis,
    runs: Sequence[Mapping[str, Array]],
    data: Iterable[Sample],
    options: CompileOptions,
    advance: Advance = lambda steps: None,
) -> tuple[TriedChange, ...]:
    """Measure the most promising changes one by one, then those that helped all together.

    Changes are another calibration for the values where, as predicted over `runs`, that gains most, and
    float for the nodes that add most noise. For each change the model is quantized again and run over all of
    `data`. `advance` is called with 1 for each model that is measured.
    """
    base = replace(parts.recipe, rounding="nearest", rounding_budget=None, assert_all_quantized=False)
    trials = _Trials(parts, profile, base, data, options)
    before = trials.sqnr_db(())
    advance(1)
    tried = []
    for change in [*_calibrations(trials, runs), *_float_nodes(parts, diagnosis)]:
        tried.append(_told(change, before, trials.sqnr_db(change.rules)))
        advance(1)
    helped = [x for x in tried if x[1].gain_db >= GAIN]
    if len(helped) > 1:
        rules = tuple(rule for change, _ in helped for rule in change.rules)
        together = _Change("", f"all {len(helped)} that helped together", rules)
        tried.append(_told(together, before, trials.sqnr_db(rules)))
        advance(1)
    return tuple(result for _, result in tried)


def _told(change: _Change, before: float, after: float) -> tuple[_Change, TriedChange]:
    lines = tuple(f"  - {json.dumps(rule.to_document())}\n" for rule in change.rules)
    return change, TriedChange(change.where, change.what, before, after, lines)


class _Trials:
    """Quantizes one model by one profile and a recipe with additional rules, and measures the results."""

    def __init__(
        self,
        parts: QuantizedParts,
        profile: Profile,
        recipe: Recipe,
        data: Iterable[Sample],
        options: CompileOptions,
    ) -> None:
        self._float = float_model(parts)
        self._profile = profile
        self._data = data
        self.recipe = recipe
        self.options = options
        self._reference: Runner = compile_graph(self._float.graph, options)

    def made(self, recipe: Recipe) -> QuantizedParts:
        return quantize_model(self._float, self._profile, recipe)

    def sqnr_db(self, rules: tuple[Rule, ...]) -> float:
        """Measure the SQNR of the outputs in dB, with these rules added."""
        made = self.made(replace(self.recipe, rules=(*self.recipe.rules, *rules)))
        program = compile_graph(made.int8, self.options)
        subject = RealInterface(program, made.inputs, made.outputs)
        return run_comparison(subject, self._reference, self._data).pairing(INT8, FLOAT).overall.sqnr_db


def _calibrations(trials: _Trials, runs: Sequence[Mapping[str, Array]]) -> list[_Change]:
    """Return changes of calibration for the values where that should gain most, each to the best one."""
    recipe = trials.recipe
    made = {_UNCHANGED: trials.made(recipe)}
    for name in CANDIDATES:
        # The last rule wins, so that values under a rule of the recipe are tried too.
        everywhere = Rule(Match(name=".*"), calibration=Calibration.parse(name))
        made[name] = trials.made(replace(recipe, rules=(*recipe.rules, everywhere)))
    graphs = {name: quantized.int8 for name, quantized in made.items()}
    choices = choose_ranges(made[_UNCHANGED].real, graphs, runs, trials.options)

    def gain(choice: RangeChoice) -> float:
        return choice.noise.get(_UNCHANGED, 0.0) - choice.noise[choice.best]

    promising = [choice for choice in sorted(choices, key=gain, reverse=True) if gain(choice) > 0.0]
    return [
        _Change(
            choice.value,
            choice.best,
            (Rule(Match(name=re.escape(choice.value)), calibration=Calibration.parse(choice.best)),),
        )
        for choice in promising[:VALUES]
    ]


def _float_nodes(parts: QuantizedParts, diagnosis: Diagnosis) -> list[_Change]:
    known = {placed.name for placed in placed_nodes(parts.real)}
    worst = [node.node for node in diagnosis.ranked() if node.node in known and node.noise.total > 0.0]
    return [
        _Change(name, "float", (Rule(Match(name=re.escape(name)), dtype="float"),)) for name in worst[:NODES]
    ]

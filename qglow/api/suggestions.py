"""Changes of a recipe that might help an int8 model: chosen by prediction, then really tried."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from qglow.api.evaluation import float_model
from qglow.api.quantized import QuantizedModel
from qglow.core.types import Array
from qglow.profiling.profile import Profile
from qglow.profiling.samples import Sample
from qglow.recipe.choices import Calibration
from qglow.recipe.rules import Match, Rule
from qglow.recipe.schema import Recipe
from qglow.report.comparison import FLOAT, INT8
from qglow.report.comparison import compare as run_comparison
from qglow.report.diagnosis import GAIN, Diagnosis, TriedChange
from qglow.report.runner import RealInterface, Runner
from qglow.toolchain import CompileOptions
from qglow.tuning.effort import CANDIDATES
from qglow.tuning.ranges import RangeChoice, choose_ranges

VALUES = 4
"""Values whose other ranges are tried."""
NODES = 2
"""Nodes that are tried in float."""
_UNCHANGED = "as it is"


@dataclass(frozen=True)
class _Change:
    where: str
    what: str
    rules: tuple[Rule, ...]


def try_changes(
    model: QuantizedModel,
    profile: Profile,
    diagnosis: Diagnosis,
    runs: Sequence[Mapping[str, Array]],
    data: Iterable[Sample],
    options: CompileOptions,
    advance: Callable[[int], None] = lambda steps: None,
) -> tuple[TriedChange, ...]:
    """Measured results of the most promising changes, one by one, then of all together that helped.

    Other calibrations of the values where they should gain most at the outputs over `runs`, and the nodes
    that cost most in float. Each is quantized and run over all of `data`.
    """
    base = replace(model.recipe, rounding="nearest", rounding_budget=None, assert_all_quantized=False)
    trials = _Trials(model, profile, base, data, options)
    before = trials.sqnr_db(())
    advance(1)
    tried = []
    for change in [*_calibrations(trials, runs), *_float_nodes(model, diagnosis)]:
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
    """Int8 models of one profile under one recipe with more rules, and what they reach over the data."""

    def __init__(
        self,
        model: QuantizedModel,
        profile: Profile,
        recipe: Recipe,
        data: Iterable[Sample],
        options: CompileOptions,
    ) -> None:
        self._float = float_model(model)
        self._profile = profile
        self._data = data
        self.recipe = recipe
        self.options = options
        self._reference: Runner = self._float.compile(options.isa, options.threads)

    def made(self, recipe: Recipe) -> QuantizedModel:
        return self._float.quantize(self._profile, recipe)

    def sqnr_db(self, rules: tuple[Rule, ...]) -> float:
        """SQNR of the outputs, measured by running the program."""
        made = self.made(replace(self.recipe, rules=(*self.recipe.rules, *rules)))
        program = made.compile(self.options.isa, self.options.threads)
        subject = RealInterface(program, made.inputs, made.outputs)
        return run_comparison(subject, self._reference, self._data).pairing(INT8, FLOAT).overall.sqnr_db


def _calibrations(trials: _Trials, runs: Sequence[Mapping[str, Array]]) -> list[_Change]:
    """Other ranges where they gain most by prediction, each under its best calibration."""
    recipe = trials.recipe
    made = {_UNCHANGED: trials.made(recipe)}
    for name in CANDIDATES:
        # Over the recipe's own rules: that a value is under one of them is no reason to leave it alone.
        everywhere = Rule(Match(name=".*"), calibration=Calibration.parse(name))
        made[name] = trials.made(replace(recipe, rules=(*recipe.rules, everywhere)))
    graphs = {name: quantized.graph for name, quantized in made.items()}
    choices = choose_ranges(made[_UNCHANGED].float_graph, graphs, runs, trials.options)

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


def _float_nodes(model: QuantizedModel, diagnosis: Diagnosis) -> list[_Change]:
    known = {node.name for node in model.float_graph.nodes}
    worst = [node.node for node in diagnosis.ranked() if node.node in known and node.noise.total > 0.0]
    return [
        _Change(name, "float", (Rule(Match(name=re.escape(name)), dtype="float"),)) for name in worst[:NODES]
    ]

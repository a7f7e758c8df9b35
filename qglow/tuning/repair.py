"""Choice of calibrations and other settings by the noise at the outputs, on the samples that a profile keeps.

No calibration method is safe on every model: each ruins some. So each of them is tried in a rehearsal, with
the weights and biases that it gives. Where the best of them is still not good, single values get another one,
and corrections that harm are left out. Budgets are counted in multiplications, so that results are the same
on every machine.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from qglow.core.batch import batch_of
from qglow.profiling.distribution import Distribution
from qglow.profiling.samples import Sample
from qglow.quantization.choices import Choices
from qglow.quantization.known_factors import KeptFactors, kept_factors, known_factors
from qglow.quantization.pipeline import QuantizedGraph
from qglow.quantization.preparations import preparation_key
from qglow.quantization.report import Repair
from qglow.quantization.scheme import IN_ATTENTION
from qglow.recipe.choices import Calibration
from qglow.recipe.loading import parse_recipe
from qglow.recipe.schema import Recipe
from qglow.report.ranked import without_ranking
from qglow.runtime.executable import Executable
from qglow.tuning.body_search import RoundedInside
from qglow.tuning.costs import multiply_adds
from qglow.tuning.harm import FAMILIES, harmful, leaving_out
from qglow.tuning.quantizer import Quantizer
from qglow.tuning.remembered import Remembered, arrays_of
from qglow.tuning.row_search import is_mostly_rows, with_rows
from qglow.tuning.self_check import FloatRuns, with_ranks
from qglow.tuning.single_values import best_singles, by_method, rules_for
from qglow.tuning.stage import LIKELY_DB, Stage
from qglow.tuning.wide_search import WideSearch, affords_wide
from qglow.tuning.words import has_worse_word, is_clearly_good

LEAST_DB = 0.1
"""Least gain in SQNR, in dB, for which another calibration replaces the default one for all values."""
CLOSE_DB = 4.0
"""Difference, in dB, below which the best two calibrations are told apart by their compiled programs."""
GAIN_DB = 1.0
"""Least gain in SQNR, in dB, for any other change."""
SAFE = "mse"
LARGEST_CLIPPED = 0.02
"""Share of a value's power that may be clipped where there are no samples to measure the outputs on."""
AMPLE_DB = 30.0
"""SQNR, in dB, from which on nothing but the calibration of the whole model is tried."""
ROWS_DB = 45.0
"""The same for rows that linear layers measure, where these have most of the work: to try it costs little."""
FINE_DB = 20.0
"""SQNR, in dB, from which on nothing is tried that may cost time or precision elsewhere."""
FEWEST = 4
"""Least number of samples that are rehearsed, if there are as many."""
FIRST = 8
"""Number of runs after which calibrations that are more than `CLOSE_DB` behind are given up."""
METHODS = ("kl", "mse", "percentile:99.99", "minmax")
"""Calibrations to choose from; of equal ones the first wins."""
_SEEN = "minmax"
"""The calibration that cuts nothing off of what was seen."""
_NAMED = 6
"""Number of nodes that a repair names; the recipe has all."""
_WHOLE = 6e10
"""Multiplications that trying all calibrations for the whole model may take, approximately; or as many runs
as the profile had samples."""


@dataclass(frozen=True)
class Repaired:
    """A recipe with the changes that were chosen for it, and a description of each with its gain.

    result: the int8 graph by the recipe, None where none was made. runs: of the float graph. program: the
    compiled int8 graph, if it was compiled.
    """

    recipe: Recipe
    repairs: tuple[Repair, ...] = ()
    result: QuantizedGraph | None = None
    runs: FloatRuns | None = None
    program: Executable | None = None


def repaired(recipe: Recipe, quantizer: Quantizer, kept: Sequence[Sample]) -> Repaired:
    """Choose calibrations, and leave out harmful corrections, by the outputs over the samples in a profile.

    A calibration that the recipe states, and its rules, stay as they are. Without samples, a value gets the
    calibration `SAFE` if the default one clips more than `LARGEST_CLIPPED` of its power. A recipe that
    profiles again stays as it is. Where the model chooses elements of an output by rank, what it chooses from
    counts, and layers behind a choice are given the float model's, as in the verdict.
    """
    if recipe.profile_again:
        return Repaired(recipe)
    part, given = without_ranking(quantizer.graph)
    if kept and part is not quantizer.graph:
        ranked = with_ranks(quantizer.graph, given, kept, quantizer.options)
        found = repaired(recipe, replace(quantizer, graph=part), ranked)
        return Repaired(found.recipe, found.repairs)
    if not kept:
        return _by_histograms(recipe, quantizer) if recipe.calibration.is_default else Repaired(recipe)
    remembered = _remembered(recipe, quantizer, kept)
    known = remembered.get(Decision)
    if known is not None:
        chosen = known.chosen
        quantizer.factors[preparation_key(chosen)] = known_factors(known.factors)
        return Repaired(_stated(chosen, quantizer), known.repairs, quantizer(chosen))
    stage = Stage.first(recipe, quantizer, affordable(quantizer, kept))
    runs = stage.runs
    search = _Search(quantizer, runs)
    if not stage.rehearsal.rounded and not RoundedInside(stage):
        return Repaired(recipe, (), stage.result, runs)
    rows_first = is_mostly_rows(quantizer.graph, recipe)
    if recipe.calibration.is_default:
        stage = search.with_calibration(stage)
    if rows_first and stage.sqnr_db < ROWS_DB:
        stage = search.with_rows(stage, recipe)
    if recipe.calibration.is_default and stage.sqnr_db < AMPLE_DB:
        stage = search.with_singles(stage)
    if stage.sqnr_db < (AMPLE_DB if stage.can_judge else FINE_DB):
        stage = search.without_harm(stage)
    if not rows_first and stage.sqnr_db < AMPLE_DB:
        stage = search.with_rows(stage, recipe)
    if stage.sqnr_db < (AMPLE_DB if stage.can_judge and affords_wide(stage) else FINE_DB):
        stage = search.with_wide_nodes(stage)
    stage = search.with_no_worse_word(search.settled(stage))
    repairs = tuple(search.repairs)
    decision = Decision.of(stage.recipe, repairs, quantizer)
    if decision.chosen == stage.recipe:
        remembered.keep(decision)
    recipe = _stated(stage.recipe, quantizer)
    return Repaired(recipe, repairs, stage.result, runs, stage.program_if_made)


@dataclass(frozen=True)
class Decision:
    """Choice of a repair: the recipe's text, whether its calibration is stated, and the changes.

    factors: those of channels by this recipe, which take long to find.
    """

    recipe: str
    stated: bool
    repairs: tuple[Repair, ...]
    factors: tuple[KeptFactors, ...] = ()

    @staticmethod
    def of(recipe: Recipe, repairs: tuple[Repair, ...], quantizer: Quantizer) -> Decision:
        factors = quantizer.factors.get(preparation_key(recipe), {})
        return Decision(recipe.to_yaml(), recipe.calibration.stated, repairs, kept_factors(factors))

    @property
    def chosen(self) -> Recipe:
        """The recipe. Raises RecipeError for a text that is none."""
        recipe = parse_recipe(self.recipe)
        return replace(recipe, calibration=replace(recipe.calibration, stated=self.stated))


def _remembered(recipe: Recipe, quantizer: Quantizer, kept: Sequence[Sample]) -> Remembered:
    """The place of what these samples choose."""
    facts = [recipe.to_yaml(), recipe.calibration.stated, quantizer.samples, quantizer.statistics]
    return Remembered.of("repairs", [quantizer.graph], [*facts, arrays_of(kept)], quantizer.options)


def _stated(recipe: Recipe, quantizer: Quantizer) -> Recipe:
    """The recipe with its calibration stated, so that nothing chooses another one when it is used again.

    In a model with attention the default stays what it is: there it means two calibrations.
    """
    choices = Choices.of(quantizer.graph, recipe)
    if any(choice.in_attention for choice in choices.nodes.values()):
        return recipe
    return replace(recipe, calibration=replace(recipe.calibration, stated=True))


def affordable(quantizer: Quantizer, kept: Sequence[Sample]) -> Sequence[Sample]:
    """The first of these samples, as many as are worth rehearsing."""
    batch = batch_of({value.name: value.type.shape for value in quantizer.graph.inputs})
    if kept and kept[0].whole:
        batch = 1
    a_sample = len(METHODS) * multiply_adds(quantizer.graph) / batch
    few = max(FEWEST, quantizer.samples // len(METHODS))
    return kept[: max(few, math.floor(_WHOLE / max(a_sample, 1.0)))]


class _Search:
    """Steps from one stage to a better one, each of which is told in `repairs`.

    Rehearsals tell what is better; the compiled program of the last stage alone is asked whether that is so.
    """

    def __init__(self, quantizer: Quantizer, runs: FloatRuns) -> None:
        self._quantizer = quantizer
        self._runs = runs
        self.repairs: list[Repair] = []
        self._before: list[Stage] = []

    def stage(self, recipe: Recipe, others: Iterable[Stage] = ()) -> Stage:
        return Stage(recipe, self._quantizer, self._runs, others)

    def with_calibration(self, plain: Stage) -> Stage:
        """The stage with the best calibration for all values; a small gain is none.

        The others are rehearsed with the weights of `plain`, because a calibration changes them little, and
        made themselves where that does not tell them apart, or once they are chosen.
        """
        name = _calibrations(plain)
        proposals = {name: plain.own, **plain.proposals([each for each in METHODS if each != name])}
        close = max(proposal.level_on(FIRST) for proposal in proposals.values()) - CLOSE_DB
        left = [each for each, proposal in proposals.items() if proposal.level_on(FIRST) >= close]
        if plain.level >= ROWS_DB and _SEEN in left:
            # Samples are a few of the data: what is cut off to win on them is lost on others.
            left = [each for each in left if each in (name, _SEEN)]
        best, *others = sorted(left, key=lambda each: -proposals[each].level)
        made = {name: plain}
        if others and proposals[others[0]].level >= proposals[best].level - CLOSE_DB:
            # What the weights of another calibration do not tell apart, their own do.
            for each in (best, others[0]):
                if each not in made:
                    made[each] = self._calibrated(plain, each, made.values())
            best = max(best, others[0], key=lambda each: made[each].level)
        if best == name:
            return plain
        chosen = made.get(best) or self._calibrated(plain, best, made.values())
        if chosen.level < plain.level + LEAST_DB:
            return plain
        return self._told(f"calibration {best} in place of {name}", plain, chosen)

    def _calibrated(self, plain: Stage, calibration: str, others: Iterable[Stage]) -> Stage:
        return self.stage(replace(plain.recipe, calibration=Calibration.parse(calibration)), others)

    def with_singles(self, stage: Stage) -> Stage:
        """The stage with other calibrations for single values, if that holds on the runs that judge."""
        singles = best_singles(stage, METHODS) if stage.can_judge else {}
        if not singles:
            return stage
        changed = self.stage(replace(stage.recipe, rules=(*rules_for(singles), *stage.recipe.rules)))
        if not _gains(stage, changed):
            return stage
        counts = ", ".join(f"{name} for {len(values)}" for name, values in by_method(singles).items())
        return self._told(f"calibration of single values: {counts}", stage, changed, tuple(singles))

    def without_harm(self, stage: Stage) -> Stage:
        """The stage without the corrections that harm: without all of a family, or those of some groups."""
        for family in FAMILIES:
            groups = family.of(stage)
            if not groups:
                continue
            without = self.stage(family.without(stage.recipe), (stage,))
            found = {f"without {family.name}": without}
            left_out = harmful(family, stage, without) if len(groups) > 1 else ()
            if 0 < len(left_out) < len(groups):
                what = f"without {family.name} of {len(left_out)} of {len(groups)} groups of nodes"
                what += f": {_first([group.node for group in left_out])}"
                found[what] = self.stage(leaving_out(stage.recipe, left_out), (stage,))
            gains = {what: changed for what, changed in found.items() if _gains(stage, changed)}
            if gains:
                what, changed = max(gains.items(), key=lambda pair: pair[1].level)
                nodes = tuple(group.node for group in left_out) if changed is not without else ()
                stage = self._told(what, stage, changed, nodes)
        return stage

    def with_rows(self, stage: Stage, recipe: Recipe) -> Stage:
        """The stage where linear layers measure their rows, if that is better; see `row_search`."""
        found = with_rows(stage, recipe, self._quantizer, lambda changed: self.stage(changed, (stage,)))
        return stage if found is None else self._kept(found[1], stage, found[0])

    def with_wide_nodes(self, stage: Stage) -> Stage:
        """The stage with as few nodes in int16 or float as make it good; without such, with the best few."""
        search = WideSearch(stage, lambda recipe: self.stage(recipe, (stage,)))
        search.run(AMPLE_DB if stage.can_judge else FINE_DB)
        mixed = search.mixed
        if not mixed:
            return stage
        parts = [f"{dtype} for {_first(names)}" for dtype, names in mixed.by_type() if names]
        return self._told("; ".join(parts), stage, search.best, (*mixed.keep_float, *mixed.int16))

    def settled(self, stage: Stage) -> Stage:
        """The last stage, or an earlier one where the compiled programs lose by the changes since.

        A program that is enough better than a rehearsal of the stage before needs no comparison of programs,
        and one without a range was compared before, for what it is worth on other samples.
        """
        while self.repairs and stage.parameters:
            before = self._before[-1]
            if stage.measured.level >= before.level + GAIN_DB:
                break
            if stage.measured.level >= before.measured.level:
                break
            self.repairs.pop()
            stage = self._before.pop()
        return stage

    def with_no_worse_word(self, stage: Stage) -> Stage:
        """The stage, or the one before all repairs where these make the verdict worse.

        Its measure differs from that of the changes where classes or integers decide.
        """
        if not self.repairs or is_clearly_good(stage):
            return stage
        before = self._before[0]
        if not has_worse_word(stage, before):
            return stage
        self.repairs.clear()
        self._before.clear()
        return before

    def _told(self, what: str, before: Stage, after: Stage, values: tuple[str, ...] = ()) -> Stage:
        return self._kept(Repair(what, before.level, after.level, values), before, after)

    def _kept(self, repair: Repair, before: Stage, after: Stage) -> Stage:
        self.repairs.append(repair)
        self._before.append(before)
        return after


def _gains(before: Stage, after: Stage) -> bool:
    """Whether a change wins enough on all runs and on those that judge; those that choose may rule it out."""
    if after.glance < before.glance + LIKELY_DB:
        return False
    holds = after.judged().level >= before.judged().level + GAIN_DB
    return holds and after.level >= before.level + GAIN_DB


def _first(names: Sequence[str]) -> str:
    """The first few names."""
    named = ", ".join(names[:_NAMED])
    return f"{named} and {len(names) - _NAMED} more" if len(names) > _NAMED else named


def _calibrations(stage: Stage) -> str:
    """The default calibrations of a stage: attention regions have one of their own."""
    own = str(stage.recipe.calibration)
    special = any(tensor.calibration == str(IN_ATTENTION) for tensor in stage.result.report.tensors)
    return f"{own} ({IN_ATTENTION} in attention)" if special else own


def _by_histograms(recipe: Recipe, quantizer: Quantizer) -> Repaired:
    """Return the recipe with a safer calibration for values of which the default one clips too much."""
    result = quantizer(recipe)
    unsafe: dict[str, float] = {}
    defaults = (str(recipe.calibration), str(IN_ATTENTION))
    for tensor in result.report.tensors:
        seen = quantizer.statistics.get(tensor.value)
        if seen is None or not seen.total or tensor.value in result.rescaled:
            continue
        share = Distribution.of(seen).power_outside(tensor.low, tensor.high)
        if tensor.calibration in defaults and share > LARGEST_CLIPPED:
            unsafe[tensor.value] = share
    if not unsafe:
        return Repaired(recipe)
    rules = rules_for(dict.fromkeys(unsafe, SAFE))
    what = (
        f"calibration {SAFE} for {len(unsafe)} values of which the default cuts off up to "
        f"{100.0 * max(unsafe.values()):.0f} % of the power; predicted, for want of samples"
    )
    return Repaired(
        replace(recipe, rules=(*rules, *recipe.rules)),
        (Repair(what, None, None, tuple(unsafe)),),
    )

"""Efforts: how much work quantization spends on choosing calibrations and precisions."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from qglow.core.errors import UsageError
from qglow.core.interruption import Interruption
from qglow.core.progress import Progress, start
from qglow.graph.graph import Graph
from qglow.recipe.choices import Calibration, one_of
from qglow.recipe.rules import Match, Rule
from qglow.recipe.schema import Recipe
from qglow.targets.registry import machine_for_estimates
from qglow.toolchain.calibration import CalibrationRuns, CalibrationSamples
from qglow.toolchain.samples import Data
from qglow.tuning.costs import multiply_adds
from qglow.tuning.mix import Mix, with_mix
from qglow.tuning.needs import widest
from qglow.tuning.order import OrderLimits
from qglow.tuning.prediction import ordered_steps, runs_for
from qglow.tuning.quantizer import Quantizer
from qglow.tuning.ranges import RangeChoice, choose_ranges
from qglow.tuning.sensitivity import sensitivity

FAST = "fast"

CANDIDATES = ("auto", "minmax", "kl", "mse", "percentile:99.9", "percentile:99.99", "percentile:99.999")
"""Calibrations whose ranges are compared; among equal ones the first wins."""


@dataclass(frozen=True, slots=True)
class Effort:
    """A named amount of work.

    candidates: calibrations to choose from. multiply_adds: budget of all runs together, approximately.
    fewest, most: bounds of the number of runs for each range. float_share: by how much int16 and float
    nodes may slow the program down, as a share of its estimated time.
    """

    candidates: tuple[str, ...]
    multiply_adds: float
    fewest: int
    most: int
    float_share: float = 0.0

    def runs(self, graph: Graph, values: int, available: int) -> int:
        """Number of the available inputs to run for each range; the same on every machine."""
        an_input = multiply_adds(graph) * values * len(self.candidates)
        affordable = math.floor(self.multiply_adds / max(an_input, 1.0))
        return min(available, self.most, max(self.fewest, affordable))


EFFORTS = {
    "balanced": Effort(CANDIDATES, 3e12, 12, 36, 0.05),
    "best": Effort((*CANDIDATES, "percentile:99.5", "percentile:99.97"), 1e13, 24, 96, 0.2),
}
"""Efforts by name; FAST does no such work."""


LEAST_GAIN = 0.02
"""Least share of the predicted noise that each step to int16 or float has to remove."""


def rules_for(choices: Sequence[RangeChoice], calibration: Calibration) -> tuple[Rule, ...]:
    """Return a rule for each calibration, except the recipe's own, that is best for some values."""
    found: dict[str, list[str]] = {}
    for choice in choices:
        if choice.best != str(calibration):
            found.setdefault(choice.best, []).append(re.escape(choice.value))
    return tuple(
        Rule(Match(name="|".join(names)), calibration=Calibration.parse(best))
        for best, names in found.items()
    )


def check_effort(effort: str, has_samples: bool) -> None:
    """Raise UsageError for an unknown effort, and for one that looks at samples where there are none."""
    try:
        one_of(effort, (FAST, *EFFORTS), "effort")
    except ValueError as error:
        raise UsageError(str(error), field="effort") from error
    if effort != FAST and not has_samples:
        raise UsageError(
            f"effort {effort} looks at the calibration samples: give them with `calibration_data`, "
            f"or choose `effort={FAST}`",
            field="effort",
        )


def with_effort(
    recipe: Recipe,
    effort: str,
    quantizer: Quantizer,
    progress: Progress | None = None,
    interruption: Interruption | None = None,
) -> Recipe:
    """Return the recipe with what an effort adds: rounding by GPTQ, and rules with the best calibrations.

    The best calibration of a value is the one whose errors, put into the float graph alone, change its
    outputs least over the calibration samples; the recipe's own rules take precedence. Where the effort
    has a `float_share`, the nodes whose int8 errors change the outputs most for their time become int16
    or stay float (int16 only, if the recipe asserts that all is quantized). "fast" adds nothing.
    interruption: where it takes place, the recipe has what was chosen until then, and rounds to nearest.
    Raises UsageError for an unknown effort and where there are no samples.
    """
    calibration = quantizer.calibration
    check_effort(effort, calibration is not None)
    if effort == FAST or calibration is None:
        return recipe
    chosen = EFFORTS[effort]
    interruption, found = interruption or Interruption(), recipe
    with interruption.during("choosing calibrations"):
        found, runs = _with_ranges(recipe, chosen, quantizer, calibration, progress)
        if chosen.float_share:
            with interruption.during("choosing nodes for int16 and float"):
                found = with_mix(found, _worst_nodes(quantizer, found, chosen.float_share, runs, progress))
    return replace(found, rounding="nearest", rounding_budget=None) if interruption.happened else found


def _with_ranges(
    recipe: Recipe,
    chosen: Effort,
    quantizer: Quantizer,
    calibration: Data | CalibrationSamples,
    progress: Progress | None,
) -> tuple[Recipe, CalibrationRuns]:
    """Return the recipe with a rule for each calibration that is best for some values, and the runs."""
    made = {
        name: quantizer(replace(recipe, calibration=Calibration.parse(name)))
        for name in dict.fromkeys((str(recipe.calibration), *chosen.candidates))
    }
    source = next(iter(made.values())).source
    runs = CalibrationRuns.of(source, recipe, calibration)
    samples = chosen.runs(source, len(source.nodes), len(runs))
    advance = start(progress, 2 * len(runs))
    int8_graphs = {name: result.graph for name, result in made.items()}
    choices = choose_ranges(source, int8_graphs, runs, quantizer.options, advance, samples, quantizer.jobs)
    rules = rules_for(choices, recipe.calibration)
    # A stated calibration holds everywhere, as it did where the best ones were found.
    stated = Calibration.parse(str(recipe.calibration))
    return replace(recipe, calibration=stated, rules=(*rules, *recipe.rules), rounding="gptq"), runs


def _worst_nodes(
    quantizer: Quantizer,
    recipe: Recipe,
    share: float,
    runs: CalibrationRuns,
    progress: Progress | None,
) -> Mix:
    result = quantizer(recipe)
    wide = quantizer(with_mix(recipe, Mix(int16=widest(result.graph))))
    taken = runs.spread(runs_for(result.source, len(runs)))
    advance = start(progress, len(taken))
    found = sensitivity(result.source, result.graph, taken, quantizer.options, advance, quantizer.jobs)
    # Estimates are for one instruction set everywhere, so that the result does not depend on the machine.
    steps = ordered_steps(
        quantizer.graph,
        result.source,
        result.graph,
        wide.graph,
        found,
        machine_for_estimates(),
        may_float=not recipe.assert_all_quantized,
        limits=OrderLimits(share, LEAST_GAIN),
    )
    return Mix.joined(step.mix for step in steps)

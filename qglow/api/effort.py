"""What `effort` adds to a recipe before a model is quantized by it."""

from __future__ import annotations

from dataclasses import replace

from qglow.api.data import Progress, start
from qglow.api.quantizer import Quantizer
from qglow.api.reconstruction import CalibrationRuns
from qglow.core.errors import UsageError
from qglow.kernels.isa import AVX512_VNNI
from qglow.recipe.choices import Calibration, one_of
from qglow.recipe.schema import Recipe
from qglow.tuning.effort import EFFORTS, FAST, LEAST_GAIN, rules_for
from qglow.tuning.mix import Mix, with_mix
from qglow.tuning.needs import widest
from qglow.tuning.order import Limits
from qglow.tuning.prediction import ordered_steps, runs_for
from qglow.tuning.ranges import choose_ranges
from qglow.tuning.sensitivity import sensitivity


def with_effort(
    recipe: Recipe,
    effort: str,
    quantizer: Quantizer,
    progress: Progress | None = None,
) -> Recipe:
    """The recipe with what an effort adds: GPTQ, and rules with the calibrations that suit each value best.

    Which these are is measured at the outputs of the float graph over calibration samples. What the
    recipe's own rules say of a value holds. Where the effort allows some time for it, the nodes where int8
    costs the outputs most become int16 or stay float; only int16 where the recipe wants all
    quantized. Raises UsageError where there are no samples.
    """
    try:
        one_of(effort, (FAST, *EFFORTS), "effort")
    except ValueError as error:
        raise UsageError(str(error)) from error
    if effort == FAST:
        return recipe
    calibration, options = quantizer.calibration, quantizer.options
    if calibration is None:
        raise UsageError(
            f"effort {effort} looks at the calibration samples: give them with --calibration-data, "
            f"or choose --effort {FAST}"
        )
    chosen = EFFORTS[effort]
    made = {
        name: quantizer(replace(recipe, calibration=Calibration.parse(name)))
        for name in dict.fromkeys((str(recipe.calibration), *chosen.candidates))
    }
    source = next(iter(made.values())).source
    runs = CalibrationRuns.of(source, recipe, calibration)
    taken = runs.spread(chosen.runs(source, len(source.nodes), len(runs)))
    advance = start(progress, len(taken))
    int8_graphs = {name: result.graph for name, result in made.items()}
    choices = choose_ranges(source, int8_graphs, taken, options, advance)
    rules = rules_for(choices, recipe.calibration)
    found = replace(recipe, rules=(*rules, *recipe.rules), rounding="gptq")
    if not chosen.float_share:
        return found
    return with_mix(found, _worst_nodes(quantizer, found, chosen.float_share, runs, progress))


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
    found = sensitivity(result.source, result.graph, taken, quantizer.options, advance)
    # One instruction set's estimates everywhere: what a model becomes does not depend on the machine.
    steps = ordered_steps(
        quantizer.graph,
        result.source,
        result.graph,
        wide.graph,
        found,
        AVX512_VNNI,
        may_float=not recipe.assert_all_quantized,
        limits=Limits(share, LEAST_GAIN),
    )
    return Mix.joined(step.mix for step in steps)

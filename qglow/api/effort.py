"""What `effort` adds to a recipe before a model is quantized by it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from qglow.api.data import Data, Progress, start
from qglow.api.reconstruction import CalibrationRuns, CalibrationSamples
from qglow.core.errors import UsageError
from qglow.graph.graph import Graph
from qglow.profiling.histogram import ValueProfile
from qglow.quantization.options import QuantizationOptions
from qglow.quantization.pipeline import quantize_with
from qglow.recipe.choices import Calibration, one_of
from qglow.recipe.schema import Recipe
from qglow.toolchain import CompileOptions
from qglow.tuning.effort import EFFORTS, FAST, rules_for
from qglow.tuning.ranges import choose_ranges


def with_effort(
    recipe: Recipe,
    effort: str,
    graph: Graph,
    statistics: Mapping[str, ValueProfile],
    samples: int,
    calibration: Data | CalibrationSamples | None,
    options: CompileOptions,
    progress: Progress | None = None,
) -> Recipe:
    """The recipe with what an effort adds: GPTQ, and rules with the calibrations that suit each value best.

    Which these are is measured at the outputs of the float graph over calibration samples. What the
    recipe's own rules say of a value holds. Raises UsageError where there are no samples.
    """
    try:
        one_of(effort, (FAST, *EFFORTS), "effort")
    except ValueError as error:
        raise UsageError(str(error)) from error
    if effort == FAST:
        return recipe
    if calibration is None:
        raise UsageError(
            f"effort {effort} looks at the calibration samples: give them with --calibration-data, "
            f"or choose --effort {FAST}"
        )
    chosen = EFFORTS[effort]
    made = {
        name: quantize_with(
            graph,
            dict(statistics),
            samples,
            QuantizationOptions.of(replace(recipe, calibration=Calibration.parse(name))),
        )
        for name in dict.fromkeys((str(recipe.calibration), *chosen.candidates))
    }
    source = next(iter(made.values())).source
    runs = CalibrationRuns.of(source, recipe, calibration)
    taken = runs.spread(chosen.runs(source, len(source.nodes), len(runs)))
    advance = start(progress, len(taken))
    int8_graphs = {name: result.graph for name, result in made.items()}
    choices = choose_ranges(source, int8_graphs, taken, options, advance)
    rules = rules_for(choices, recipe.calibration)
    return replace(recipe, rules=(*rules, *recipe.rules), rounding="gptq")

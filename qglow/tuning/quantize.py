"""Quantization of a float model with a profile to the parts of an int8 model, by a recipe."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

from qglow.core.errors import UsageError
from qglow.core.interruption import Interrupted, Interruption
from qglow.core.jobs import Jobs
from qglow.core.memory import release_after
from qglow.core.progress import Progress
from qglow.passes import canonical_pipeline
from qglow.profiling.profile import Profile
from qglow.quantization.imported import quantize_imported
from qglow.quantization.pipeline import QuantizedGraph, quantize_with
from qglow.quantization.reconstruction import block_products_of
from qglow.quantization.report import Repair, constant_bytes
from qglow.recipe.schema import Recipe
from qglow.report.parts import QuantizedParts, model_info
from qglow.runtime.executable import Executable
from qglow.runtime.streaming import state_kinds
from qglow.toolchain import CompileOptions
from qglow.toolchain.calibration import CalibrationSamples
from qglow.toolchain.loaded import LoadedModel
from qglow.toolchain.samples import Data
from qglow.tuning.effort import FAST, check_effort, with_effort
from qglow.tuning.quantizer import Quantizer
from qglow.tuning.reconstruction import WITHOUT_SAMPLES, reconstruct
from qglow.tuning.repair import Repaired, repaired
from qglow.tuning.self_check import FloatRuns, check_model
from qglow.tuning.without_range import without_range


@dataclass(frozen=True)
class QuantizeOptions:
    """Options of a quantization besides the recipe.

    effort: "fast", or the name of one of `tuning.effort.EFFORTS`, which begins with what repair makes.
    repair: whether calibrations are chosen by the samples that the profile keeps, and what the profile saw
    too little of does without ranges. check: whether to give a verdict.
    calibration: the samples of the profile, for steps that need them again. rounding_state: a file that
    keeps the layers whose weights are rounded already. code: options for programs that run over the
    samples. progress: reports long work.
    interrupted: is told where the user interrupts an effort or rounding, which then gives what is done. jobs:
    where networks run over samples for an effort (default: here).
    """

    effort: str = FAST
    repair: bool = False
    check: bool = False
    calibration: Data | CalibrationSamples | None = None
    rounding_state: Path | None = None
    code: CompileOptions = field(default_factory=CompileOptions)
    progress: Progress | None = None
    interrupted: Interrupted | None = None
    jobs: Jobs | None = None


def quantize_model(
    model: LoadedModel, profile: Profile | None, recipe: Recipe, options: QuantizeOptions | None = None
) -> QuantizedParts:
    """Quantize a model with ranges from a profile, or with the parameters that it has itself.

    Raises ProfileError if the profile is of another model, UsageError for a wrong choice and where a profile
    is missing or does not apply, and UnsupportedError, which lists the float nodes, where the recipe's
    `assert_all_quantized` does not hold.
    """
    options = options or QuantizeOptions()
    if options.calibration is not None:
        options = replace(options, calibration=CalibrationSamples.of(options.calibration, model.dimensions))
    states = dict(recipe.states)
    state_kinds(model.inputs, model.outputs, states)
    if states and profile is None:
        raise UsageError("states: without a profile there is no verdict on a stream", field="states")
    if model.is_quantized:
        _check_imported(model, profile, recipe, options)
        parts = _parts(model, recipe, quantize_imported(model.graph, recipe))
        return _open(model, parts, Profile.of_no_samples(model.source, model.graph))
    if profile is None:
        return _without_profile(model, recipe, options)
    if recipe.preprocessing is None:
        # Later data needs the preprocessing that the ranges were seen with.
        recipe = replace(recipe, preprocessing=profile.preprocessing)
    made = _calibrated(model, profile, recipe, options)
    release_after(constant_bytes(model.graph))
    parts = _open(model, _parts(model, made.recipe, made.result), replace(profile, kept=()))
    if options.check:
        verdict = check_model(model, profile, parts, options.code, made.runs, made.program, states)
        parts = replace(parts, verdict=verdict)
    return parts


@dataclass(frozen=True)
class _Made:
    """The recipe with what repair and effort added to it, the int8 graph by it, and runs of the float graph.

    runs: those that repair made, if they are of the model in its own batch. program: the compiled int8 graph,
    if repair compiled it.
    """

    recipe: Recipe
    result: QuantizedGraph
    runs: FloatRuns | None = None
    program: Executable | None = None


def _parts(model: LoadedModel, recipe: Recipe, result: QuantizedGraph) -> QuantizedParts:
    report = replace(result.report, log=(*model.log, *result.report.log))
    return QuantizedParts(model.source, model_info(model), recipe, report, result.graph, result.source)


def _without_profile(model: LoadedModel, recipe: Recipe, options: QuantizeOptions) -> QuantizedParts:
    """Quantize a model whose rows are scaled while it runs, or of which weights alone are quantized."""
    if not recipe.dynamic and recipe.weights is None:
        raise UsageError(
            f"{model.place} has no quantization of its own that is kept: profile it, and give the profile, "
            "or choose `dynamic` or `weights`"
        )
    static = [rule for rule in recipe.rules if rule.dtype in ("int8", "int16")]
    if static or recipe.io != "float":
        what = f"the rule for {static[0].match}" if static else "io: int8"
        raise UsageError(f"{what} needs ranges: profile the model, and give the profile")
    if options.effort != FAST:
        raise UsageError("effort looks at samples: profile the model, and give the profile")
    result = quantize_with(model.graph, {}, 0, recipe)
    if recipe.rounding not in WITHOUT_SAMPLES and not block_products_of(result):
        raise UsageError("rounding looks at samples: profile the model, and give the profile")
    made = _reconstructed(result, recipe, options, Interruption(options.interrupted))
    return _open(model, _parts(model, recipe, made), Profile.of_no_samples(model.source, model.graph))


def _open(model: LoadedModel, parts: QuantizedParts, profile: Profile) -> QuantizedParts:
    """The parts with the profile that makes them for other shapes, where the file leaves dimensions open."""
    if model.has_symbols and model.passes == str(canonical_pipeline()):
        return replace(parts, profile=lambda: profile)
    return parts


def _reconstructed(
    result: QuantizedGraph, recipe: Recipe, options: QuantizeOptions, interruption: Interruption
) -> QuantizedGraph:
    """Round the weights as the recipe says."""
    samples, state = options.calibration, options.rounding_state
    return reconstruct(result, recipe, samples, options.code, options.progress, state, interruption)


def _check_imported(
    model: LoadedModel, profile: Profile | None, recipe: Recipe, options: QuantizeOptions
) -> None:
    """Raise UsageError for a choice that does not apply to a model with its own parameters."""
    if profile is not None:
        raise UsageError(f"{model.place} is quantized already: it takes no profile")
    if options.effort != FAST or recipe.rounding != "nearest":
        raise UsageError(f"{model.place} is quantized already: effort and rounding do not apply")
    rows = recipe.dynamic or any(rule.dtype == "dynamic" for rule in recipe.rules)
    if rows or any(weights is not None for weights in (recipe.weights, *(r.weights for r in recipe.rules))):
        raise UsageError(f"{model.place} is quantized already: leave `dynamic` and `weights` out")
    if recipe.rounding_budget is not None or options.rounding_state is not None:
        raise UsageError(f"{model.place} is quantized already: its weights are not rounded")


def _calibrated(model: LoadedModel, profile: Profile, recipe: Recipe, options: QuantizeOptions) -> _Made:
    profiled = model.with_profiled_batch().graph
    statistics = profile.check_matches(profiled)
    quantizer = Quantizer(
        model.graph, statistics, profile.samples, options.calibration, options.code, jobs=options.jobs
    )
    few: tuple[Repair, ...] = ()
    if options.repair:
        recipe, few = without_range(recipe, profiled, statistics)
    check_effort(options.effort, options.calibration is not None)
    found = Repaired(recipe)
    if options.repair:
        # In the profiled batch, so that what is chosen does not depend on the model's.
        found = repaired(recipe, replace(quantizer, graph=profiled), profile.kept)
    repairs = (*few, *found.repairs)
    known = found if profiled is model.graph else Repaired(found.recipe)
    interruption = Interruption(options.interrupted)
    chosen = with_effort(found.recipe, options.effort, quantizer, options.progress, interruption)
    if interruption.happened:
        result = quantizer(chosen)
        late = f"effort {options.effort} was interrupted: weights are rounded to nearest"
        return _Made(chosen, replace(result, report=replace(result.report.warned(late), repairs=repairs)))
    result = known.result if known.result is not None and chosen is found.recipe else quantizer(chosen)
    result = _reconstructed(result, chosen, options, interruption)
    same = known.result is not None and result.graph is known.result.graph
    result = replace(result, report=replace(result.report, repairs=repairs))
    return _Made(chosen, result, known.runs, known.program if same else None)

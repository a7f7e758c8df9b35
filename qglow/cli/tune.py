"""qglow tune: which nodes have to be int16 or float, or how many bits weights need, to keep to a goal."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from qglow.api.options import (
    LIMITS,
    MEASURE,
    MODEL,
    OUTPUT,
    CustomOperatorOptions,
    EffortOptions,
    RunOptions,
    SearchOptions,
)
from qglow.cli.options import (
    PROFILED_MODEL,
    RECIPE,
    SHAPES,
    VALUES,
    LabelledDataOptions,
    RequiredCalibrationOptions,
    read_recipe,
)
from qglow.cli.output import end_if_interrupted, keeping, note, say, show, showing_progress
from qglow.cli.targets import open_model, open_profiled_model
from qglow.core.errors import ComparisonFailed, UsageError
from qglow.core.options import Writes, declare, option
from qglow.recipe.choices import parse_time
from qglow.recipe.readers import as_seconds

if TYPE_CHECKING:
    from qglow.api import Trial
    from qglow.core.progress import Progress

EXAMPLES = (
    "qglow tune --profile profile.yaml --data val/ --calibration-data calib/ --max-drop 0.3",
    "qglow tune llama.onnx --data val.npz --calibration-data calib.npz --max-size 5bits",
)
TIME_LIMIT = 600.0
"""Seconds of a search, if none are given."""
_MILLISECONDS = {"ms": 1.0, "us": 1e-3, "s": 1e3}


def _milliseconds(value: object) -> float:
    return parse_time(str(value), _MILLISECONDS)


@dataclass(frozen=True, kw_only=True)
class TunedOptions(CustomOperatorOptions):
    """The model and its profile."""

    model: Path | None = declare(PROFILED_MODEL, None)
    profile: Path | None = option(
        None, "Profile that qglow profile wrote; none with --max-size", group=MODEL, metavar="FILE"
    )
    recipe: Path | None = declare(RECIPE, None)
    shapes: tuple[str, ...] = declare(SHAPES, ())
    values: tuple[str, ...] = declare(VALUES, ())


@dataclass(frozen=True, kw_only=True)
class CalibratedOptions(RequiredCalibrationOptions, EffortOptions):
    """Calibration samples, and the work that they are for."""


@dataclass(frozen=True, kw_only=True)
class GoalOptions:
    """Limits that the model has to keep to. At least one is given."""

    max_drop: float | None = option(
        None,
        "Largest loss: percentage points of accuracy, or of the metric",
        more="Accuracy is top-1 with labels, else agreement with the float model in top-1.",
        group=LIMITS,
        metavar="VALUE",
    )
    min_metric: float | None = option(None, "Lowest value of the metric", group=LIMITS, metavar="VALUE")
    max_metric: float | None = option(
        None, "Highest value of a metric that is better the lower", group=LIMITS, metavar="VALUE"
    )
    min_sqnr_db: float | None = option(
        None,
        "Lowest signal-to-noise ratio of the outputs",
        group=LIMITS,
        metavar="DB",
        flags=("--min-sqnr",),
    )
    max_latency_ms: float | None = option(
        None,
        "Longest time of a call: 3ms, 800us",
        flags=("--max-latency",),
        group=LIMITS,
        metavar="TIME",
        read=_milliseconds,
        typed=str,
    )
    max_size: str | None = option(
        None,
        "Most bytes of weights in blocks: 120K, 3.5M, or 4.5bits for each",
        more="Weights alone get 8, 4 or 2 bits, layer by layer, without a profile. Scales and zero points "
        "count. With --min-sqnr no more bytes are spent than it needs.",
        group=LIMITS,
        metavar="SIZE",
    )


@dataclass(frozen=True, kw_only=True)
class TuningOptions(SearchOptions):
    """Options of how the search measures, how long it goes on, and what it writes."""

    time_limit: float = option(
        TIME_LIMIT,
        "Start no model after this time: 90s, 10m, 1h [default: 10m]",
        group=MEASURE,
        metavar="TIME",
        read=as_seconds,
        typed=str,
    )
    output: Path = option(
        Path("tuned.yaml"),
        "The recipe to write",
        group=OUTPUT,
        metavar="FILE",
        flags=("--output", "-o"),
        writes=Writes.FILE,
    )


def tune(
    source: TunedOptions,
    data: LabelledDataOptions,
    calibration: CalibratedOptions,
    goal: GoalOptions,
    running: RunOptions,
    search: TuningOptions,
) -> None:
    """Find the nodes to keep in float or int16 so that an int8 model keeps to a goal.

    Predicts from calibration samples what every error of int8 does to the outputs, and measures models
    with the worst of them in int16 or floats on --data: accuracy and latency. Prints what each gives, and
    writes the recipe of the fastest that keeps to the limits. Interrupted, it writes the best so far, and
    the same command goes on. Exits with 1, and writes no recipe, if there is none. With --max-size it finds
    the bits of weights alone.
    """
    if goal.max_size is not None:
        tune_weights(source, data, calibration, goal, running, search)
        return
    if source.profile is None:
        raise UsageError("give the profile with --profile, or --max-size for the bits of weights alone")
    from qglow.api import CalibrationSamples, Goal, load_profile
    from qglow.api import tune as search_mix
    from qglow.tuning.sections import told_text, trial_text, tuning_section

    place = search.state or search.output.with_name(f"{search.output.name}.state.json")
    profile = load_profile(source.profile)
    loaded = open_profiled_model(source.model, profile, source.profile, source.shapes, source.values)
    samples = CalibrationSamples(
        calibration.calibration_data, calibration.calibration_select, calibration.calibration_samples
    )
    limits = Goal(goal.max_drop, goal.min_metric, goal.min_sqnr_db, goal.max_latency_ms, goal.max_metric)
    tried: list[Trial] = []
    stopped: list[str] = []

    def told(trial: Trial) -> None:
        progress_lines.close()
        tried.append(trial)
        note(trial_text(trial, tried[0].figures))
        if len(tried) == 1 and (unclear := told_text(limits, trial.figures)):
            note(unclear)

    with contextlib.ExitStack() as progress_lines, keeping(place):

        def progress(what: str) -> Progress:
            progress_lines.close()
            return progress_lines.enter_context(showing_progress(what))

        found = search_mix(
            loaded,
            profile,
            data.data,
            limits,
            calibration_data=samples,
            recipe=read_recipe(source.recipe),
            effort=calibration.effort,
            scheduler=calibration.scheduler,
            select=data.select,
            samples=data.samples,
            labels=data.labels,
            metric=search.metric,
            time_limit=search.time_limit,
            state=place,
            isa=running.isa,
            threads=running.threads,
            progress=progress,
            told=told,
            interrupted=stopped.append,
        )
        if not found.trials:
            raise KeyboardInterrupt
    if found.best is not None:
        found.save_recipe(search.output)
    show(tuning_section(found.trials, found.best, limits))
    written = search.output if found.best is not None else "no recipe, since no model keeps to the limits yet"
    end_if_interrupted(stopped, f"written: {written}; the same command goes on from {place}")
    best = found.require()
    say(f"{search.output}: {best.mix}; measure it on other data than {found.data}")


def tune_weights(
    source: TunedOptions,
    data: LabelledDataOptions,
    calibration: CalibratedOptions,
    goal: GoalOptions,
    running: RunOptions,
    search: TuningOptions,
) -> None:
    """Find the bits of every layer's weights, measure the model on --data, and write the recipe.

    Raises UsageError for options that have no place here, ComparisonFailed, without a recipe, where the
    model misses --min-sqnr.
    """
    from qglow.api import CalibrationSamples, compare, mix_weights

    assert goal.max_size is not None
    useless = {
        "--profile": source.profile is not None,
        "--max-drop": goal.max_drop is not None,
        "--min-metric": goal.min_metric is not None,
        "--max-metric": goal.max_metric is not None,
        "--max-latency": goal.max_latency_ms is not None,
        "--effort": calibration.effort != "fast",
        "--scheduler": calibration.scheduler is not None,
        "--time-limit": search.time_limit != TIME_LIMIT,
        "--state": search.state is not None,
    }
    given = [flag for flag, is_given in useless.items() if is_given]
    if given:
        raise UsageError(f"--max-size has no use for {', '.join(given)}; of the limits it takes --min-sqnr")
    if source.model is None:
        raise UsageError("--max-size needs MODEL")
    model = open_model(source.model, source.shapes, values=source.values)
    samples = CalibrationSamples(
        calibration.calibration_data, calibration.calibration_select, calibration.calibration_samples
    )
    with showing_progress("measuring formats of weights") as progress:
        mix = mix_weights(
            model,
            samples,
            goal.max_size,
            recipe=read_recipe(source.recipe),
            enough_db=goal.min_sqnr_db,
            progress=progress,
        )
    show(*mix._sections())
    quantized = model.quantize(recipe=mix.recipe, calibration_data=samples)
    measured = compare(
        quantized,
        data.data,
        select=data.select,
        samples=data.samples,
        labels=data.labels,
        metric=search.metric,
        isa=running.isa,
        threads=running.threads,
    )
    sqnr_db = measured.pairings[0].overall.sqnr_db
    show(*measured._sections())
    if goal.min_sqnr_db is not None and sqnr_db < goal.min_sqnr_db:
        raise ComparisonFailed(
            f"the SQNR on {data.data} is {sqnr_db:.2f} dB, less than {goal.min_sqnr_db:g}; "
            "no recipe is written"
        )
    mix.save_recipe(search.output)
    say(f"{search.output}: {mix.bits:.2f} bits a weight, SQNR {sqnr_db:.2f} dB on {data.data}")

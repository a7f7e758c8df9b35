"""qglow tune: which nodes have to be int16 or stay float so that an int8 model keeps to a goal."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from qglow.api.options import LIMITS, MEASURE, MODEL, OUTPUT, EffortOptions, RunOptions, SearchOptions
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
from qglow.cli.targets import open_profiled_model
from qglow.core.options import Writes, declare, option
from qglow.recipe.choices import parse_time
from qglow.recipe.readers import as_seconds

if TYPE_CHECKING:
    from qglow.api import Trial
    from qglow.core.progress import Progress

EXAMPLES = ("qglow tune --profile profile.yaml --data val/ --calibration-data calib/ --max-drop 0.3",)
_MILLISECONDS = {"ms": 1.0, "us": 1e-3, "s": 1e3}


def _milliseconds(value: object) -> float:
    return parse_time(str(value), _MILLISECONDS)


@dataclass(frozen=True, kw_only=True)
class TunedOptions:
    """The model and its profile."""

    model: Path | None = declare(PROFILED_MODEL, None)
    profile: Path = option(help="Profile that qglow profile wrote", group=MODEL, metavar="FILE")
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


@dataclass(frozen=True, kw_only=True)
class TuningOptions(SearchOptions):
    """Options of how the search measures, how long it goes on, and what it writes."""

    time_limit: float = option(
        600.0,
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
    with the worst of them in int16 or float on --data: accuracy and latency. Prints what each gives, and
    writes the recipe of the fastest that keeps to the limits. Interrupted, it writes the best so far, and
    the same command goes on. Exits with 1, and writes no recipe, if there is none.
    """
    from qglow.api import CalibrationSamples, Goal, load_profile
    from qglow.api import tune as search_mix
    from qglow.tuning.sections import trial_text, tuning_section

    place = search.state or search.output.with_name(f"{search.output.name}.state.json")
    profile = load_profile(source.profile)
    loaded = open_profiled_model(source.model, profile, source.profile, source.shapes, source.values)
    samples = CalibrationSamples(
        calibration.calibration_data, calibration.calibration_select, calibration.calibration_samples
    )
    tried: list[Trial] = []
    stopped: list[str] = []

    def told(trial: Trial) -> None:
        progress_lines.close()
        tried.append(trial)
        note(trial_text(trial, tried[0].figures))

    with contextlib.ExitStack() as progress_lines, keeping(place):

        def progress(what: str) -> Progress:
            progress_lines.close()
            return progress_lines.enter_context(showing_progress(what))

        found = search_mix(
            loaded,
            profile,
            data.data,
            Goal(goal.max_drop, goal.min_metric, goal.min_sqnr_db, goal.max_latency_ms, goal.max_metric),
            calibration_data=samples,
            recipe=read_recipe(source.recipe),
            effort=calibration.effort,
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
    show(tuning_section(found.trials, found.best))
    written = search.output if found.best is not None else "no recipe, since no model keeps to the limits yet"
    end_if_interrupted(stopped, f"written: {written}; the same command goes on from {place}")
    best = found.require()
    say(f"{search.output}: {best.mix}; measure it on other data than {found.data}")

"""qglow tune: which nodes have to be int16 or stay float so that an int8 model keeps to a goal."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Annotated

import typer

from qglow.api import CalibrationSamples, Goal, Progress, Trial, load_profile
from qglow.api import tune as search
from qglow.cli.options import (
    IsaOption,
    LabelsOption,
    RecipeOption,
    RequiredDataOption,
    SamplesOption,
    SelectOption,
    ShapeOption,
    ThreadsOption,
    read_recipe,
)
from qglow.cli.output import keeping, note, say, show, showing_progress
from qglow.cli.targets import open_profiled_model
from qglow.core.errors import UsageError
from qglow.recipe.choices import SECONDS, parse_time
from qglow.tuning.sections import trial_text, tuning_section

_MILLISECONDS = {"ms": 1.0, "us": 1e-3, "s": 1e3}


def tune(
    profile: Annotated[Path, typer.Option("--profile", metavar="FILE", help="What qglow profile wrote.")],
    data: RequiredDataOption,
    calibration_data: Annotated[
        str,
        typer.Option("--calibration-data", metavar="PATH", help="Samples of the profile, to predict from."),
    ],
    model: Annotated[
        Path | None, typer.Argument(metavar="[MODEL]", help="The ONNX model [default: the profile's].")
    ] = None,
    labels: LabelsOption = None,
    select: SelectOption = None,
    samples: SamplesOption = None,
    calibration_select: Annotated[
        str | None,
        typer.Option("--calibration-select", metavar="START:STOP:STEP", help="Which calibration samples."),
    ] = None,
    calibration_samples: Annotated[
        int | None, typer.Option("--calibration-samples", metavar="N", help="Only the first N of these.")
    ] = None,
    recipe: RecipeOption = None,
    effort: Annotated[
        str, typer.Option("--effort", metavar="NAME", help="Of quantize: fast, balanced or best.")
    ] = "fast",
    metric: Annotated[
        str | None,
        typer.Option("--metric", metavar="NAME", help="What accuracy is: psnr, miou or module:function."),
    ] = None,
    max_drop: Annotated[
        float | None,
        typer.Option("--max-drop", metavar="VALUE", help="Points of top-1 or agreement, or of the metric."),
    ] = None,
    min_metric: Annotated[
        float | None, typer.Option("--min-metric", metavar="VALUE", help="The metric, at least.")
    ] = None,
    min_sqnr: Annotated[
        float | None, typer.Option("--min-sqnr", metavar="DB", help="SQNR of the outputs, at least.")
    ] = None,
    max_latency: Annotated[
        str | None, typer.Option("--max-latency", metavar="TIME", help="A call, at most: 3ms, 800us.")
    ] = None,
    time_limit: Annotated[
        str, typer.Option("--time-limit", metavar="TIME", help="When to begin no more: 90s, 10m, 1h.")
    ] = "10m",
    state: Annotated[
        Path | None,
        typer.Option("--state", metavar="FILE", help="What was found so far [default: OUTPUT.state.json]."),
    ] = None,
    shape: ShapeOption = None,
    isa: IsaOption = None,
    threads: ThreadsOption = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="The recipe to write.")
    ] = Path("tuned.yaml"),
) -> None:
    """Find the nodes to keep float or make int16 so that an int8 model keeps to a goal.

    Predicts from calibration samples what every error of int8 does to the outputs, and measures
    models with the worst of them in int16 or float on --data: accuracy and latency. Prints what each
    gives, and writes the recipe of the fastest that keeps to the limits. Interrupted, the same
    command goes on. Exits with 1, and writes no recipe, where none is found.
    """
    goal = Goal(
        max_drop,
        min_metric,
        min_sqnr,
        None if max_latency is None else _time(max_latency, _MILLISECONDS, "--max-latency"),
    )
    seconds = _time(time_limit, SECONDS, "--time-limit")
    place = state or output.with_name(f"{output.name}.state.json")
    loaded_profile = load_profile(profile)
    loaded = open_profiled_model(model, loaded_profile, profile, shape)
    tried: list[Trial] = []

    def told(trial: Trial) -> None:
        progress_lines.close()
        tried.append(trial)
        note(trial_text(trial, tried[0].figures))

    with contextlib.ExitStack() as progress_lines, keeping(place):

        def progress(what: str) -> Progress:
            progress_lines.close()
            return progress_lines.enter_context(showing_progress(what))

        found = search(
            loaded,
            loaded_profile,
            data,
            goal,
            calibration_data=CalibrationSamples(calibration_data, calibration_select, calibration_samples),
            recipe=read_recipe(recipe),
            effort=effort,
            select=select,
            samples=samples,
            labels=labels,
            metric=metric,
            time_limit=seconds,
            state=place,
            isa=isa,
            threads=threads,
            progress=progress,
            told=told,
        )
    if found.best is not None:
        found.save_recipe(output)
    show(tuning_section(found.trials, found.best))
    best = found.require()
    say(f"{output}: {best.mix}; measure it on other data than {found.data}")


def _time(text: str, units: dict[str, float], option: str) -> float:
    """A length of time in the unit whose factor is 1."""
    try:
        return parse_time(text, units)
    except ValueError as error:
        raise UsageError(f"{option} {error}") from error

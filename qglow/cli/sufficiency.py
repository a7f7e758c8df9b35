"""qglow profile sufficiency: how many calibration samples a model needs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from qglow.api import calibration_sufficiency, save_sufficiency
from qglow.cli.options import (
    IsaOption,
    ModelArgument,
    RecipeOption,
    RequiredDataOption,
    SamplesOption,
    SelectOption,
    ShapeOption,
    ThreadsOption,
    read_recipe,
)
from qglow.cli.output import say, show, showing_progress
from qglow.cli.targets import open_model
from qglow.report.sufficiency_sections import sufficiency_section


def sufficiency(
    model: ModelArgument,
    data: RequiredDataOption,
    select: SelectOption = None,
    samples: SamplesOption = None,
    recipe: RecipeOption = None,
    calibration: Annotated[
        str | None, typer.Option("--calibration", metavar="NAME", help="How ranges are chosen.")
    ] = None,
    tolerance: Annotated[
        float, typer.Option("--tolerance", metavar="PERCENT", help="How much a scale may move.")
    ] = 10.0,
    resamples: Annotated[
        int, typer.Option("--resamples", metavar="N", help="How many resamples give the intervals.")
    ] = 50,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="What resamples are drawn with.")] = 0,
    shape: ShapeOption = None,
    isa: IsaOption = None,
    threads: ThreadsOption = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="The figures as JSON.")
    ] = None,
) -> None:
    """Tell whether calibration samples are enough.

    How the scale of every int8 value depends on the number of samples, and where it would lie with
    other samples of the same kind. The data is read once.
    """
    with showing_progress("profiling") as progress:
        report = calibration_sufficiency(
            open_model(model, shape),
            data,
            recipe=read_recipe(recipe, calibration=calibration),
            select=select,
            samples=samples,
            tolerance=tolerance / 100.0,
            resamples=resamples,
            seed=seed,
            isa=isa,
            threads=threads,
            progress=progress,
        )
    if output is not None:
        save_sufficiency(report, output)
    show(sufficiency_section(report))
    if output is not None:
        say(str(output))

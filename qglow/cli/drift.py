"""qglow profile drift: new data against a profile."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from qglow.api import DriftLimits, load_profile, profile_drift, save_drift
from qglow.cli.options import (
    FloatModelOption,
    IsaOption,
    RecipeOption,
    RequiredDataOption,
    SamplesOption,
    SelectOption,
    ThreadsOption,
    read_recipe,
)
from qglow.cli.output import say, show, showing_progress
from qglow.report.drift_sections import drift_section

ProfileArgument = Annotated[
    Path, typer.Argument(metavar="PROFILE", help="The profile that the model was quantized with.")
]


def drift(
    profile: ProfileArgument,
    data: RequiredDataOption,
    select: SelectOption = None,
    samples: SamplesOption = None,
    recipe: RecipeOption = None,
    calibration: Annotated[
        str | None, typer.Option("--calibration", metavar="NAME", help="How ranges were chosen.")
    ] = None,
    model: FloatModelOption = None,
    threshold: Annotated[
        float, typer.Option("--threshold", metavar="DB", help="Fail where a value's SQNR falls by more.")
    ] = 3.0,
    max_outside: Annotated[
        float | None,
        typer.Option("--max-outside", metavar="PERCENT", help="Fail where more of a value is out of range."),
    ] = None,
    max_distance: Annotated[
        float | None,
        typer.Option("--max-distance", metavar="SHARE", help="Fail where a histogram moves by more."),
    ] = None,
    isa: IsaOption = None,
    threads: ThreadsOption = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="The figures as JSON.")
    ] = None,
) -> None:
    """Hold new data against a profile.

    The data is prepared and profiled as the profile's was. For every int8 value: how far its histogram
    has moved, how much of it lies outside of the range that int8 covers, and the SQNR that this costs.
    Exits with 5 where a value is beyond a limit.
    """
    limits = DriftLimits(threshold, None if max_outside is None else max_outside / 100.0, max_distance)
    with showing_progress("profiling") as progress:
        report = profile_drift(
            load_profile(profile),
            data,
            model=model,
            recipe=read_recipe(recipe, calibration=calibration),
            select=select,
            samples=samples,
            isa=isa,
            threads=threads,
            progress=progress,
        )
    if output is not None:
        save_drift(report, output, limits)
    show(drift_section(report, limits))
    if output is not None:
        say(str(output))
    report.check(limits)

"""qglow profile drift: new data against a profile."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from qglow.api.options import LIMITS, MODEL, CustomOperatorOptions, RunOptions
from qglow.cli.options import CALIBRATION_METHOD, FIGURES, RECIPE, DataOptions, read_recipe
from qglow.cli.output import say, show, showing_progress
from qglow.core.options import declare, option
from qglow.recipe import Calibration

EXAMPLES = ("qglow profile drift profile.yaml --data new/ --threshold 3",)


@dataclass(frozen=True, kw_only=True)
class ProfiledOptions(CustomOperatorOptions):
    """A profile, and how its ranges were chosen."""

    profile: Path = option(
        help="The profile that the model was quantized with", argument=True, metavar="PROFILE", group=MODEL
    )
    model: Path | None = option(None, "File of the float model, if it has moved", group=MODEL, metavar="FILE")
    recipe: Path | None = declare(RECIPE, None)
    calibration: Calibration | None = declare(CALIBRATION_METHOD, None)


@dataclass(frozen=True, kw_only=True)
class DriftOptions:
    """Limits of the distance of new data from the profile, and where the figures go."""

    threshold: float = option(
        3.0, "Fail if a value's SQNR falls by more than this", group=LIMITS, metavar="DB"
    )
    max_outside: float | None = option(
        None, "Fail if more of a value than this is outside its int8 range", group=LIMITS, metavar="PERCENT"
    )
    max_distance: float | None = option(
        None, "Fail if a histogram moves by more than this, from 0 to 1", group=LIMITS, metavar="SHARE"
    )
    output: Path | None = declare(FIGURES, None)


def drift(made: ProfiledOptions, data: DataOptions, running: RunOptions, limits: DriftOptions) -> None:
    """Hold new data against a profile.

    The data is prepared and profiled as the profile's was. For every int8 value: how far its histogram
    has moved, how much of it lies outside the range that int8 covers, and the SQNR that this costs.
    Exits with 5 if a value is beyond a limit.
    """
    from qglow.api import DriftLimits, load_profile, profile_drift, save_drift
    from qglow.report.drift_sections import drift_section

    outside = None if limits.max_outside is None else limits.max_outside / 100.0
    wanted = DriftLimits(limits.threshold, outside, limits.max_distance)
    with showing_progress("profiling") as progress:
        report = profile_drift(
            load_profile(made.profile),
            data.data,
            model=made.model,
            recipe=read_recipe(made.recipe, calibration=made.calibration),
            select=data.select,
            samples=data.samples,
            isa=running.isa,
            threads=running.threads,
            progress=progress,
        )
    if limits.output is not None:
        save_drift(report, limits.output, wanted)
    show(drift_section(report, wanted))
    if limits.output is not None:
        say(str(limits.output))
    report.check(wanted)

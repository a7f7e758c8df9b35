"""qglow profile sufficiency: how many calibration samples a model needs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from qglow.api.options import MEASURE, ResamplingOptions, RunOptions
from qglow.cli.options import CALIBRATION_METHOD, FIGURES, DataOptions, ModelOptions, read_recipe
from qglow.cli.output import say, show, showing_progress
from qglow.cli.targets import open_model
from qglow.core.options import declare, option
from qglow.recipe import Calibration

EXAMPLES = ("qglow profile sufficiency model.onnx --data calibration/ --tolerance 5",)


@dataclass(frozen=True, kw_only=True)
class SufficiencyOptions(ResamplingOptions):
    """Options of the test whether there are enough samples, and where the figures go."""

    calibration: Calibration | None = declare(CALIBRATION_METHOD, None)
    tolerance: float = option(
        100.0 * ResamplingOptions.tolerance,
        "Largest change of a scale that counts as settled",
        group=MEASURE,
        metavar="PERCENT",
    )
    output: Path | None = declare(FIGURES, None)


def sufficiency(
    model: ModelOptions, data: DataOptions, running: RunOptions, measure: SufficiencyOptions
) -> None:
    """Tell whether calibration samples are enough.

    How the scale of every int8 value depends on the number of samples, and where it would lie with other
    samples of the same kind. The data is read once.
    """
    from qglow.api import calibration_sufficiency, save_sufficiency
    from qglow.report.sufficiency_sections import sufficiency_section

    with showing_progress("profiling") as progress:
        report = calibration_sufficiency(
            open_model(model.model, model.shapes, values=model.values),
            data.data,
            recipe=read_recipe(model.recipe, calibration=measure.calibration),
            select=data.select,
            samples=data.samples,
            tolerance=measure.tolerance / 100.0,
            resamples=measure.resamples,
            seed=measure.seed,
            isa=running.isa,
            threads=running.threads,
            progress=progress,
        )
    if measure.output is not None:
        save_sufficiency(report, measure.output)
    show(sufficiency_section(report))
    if measure.output is not None:
        say(str(measure.output))

"""Sufficiency: how many calibration samples a model needs."""

from __future__ import annotations

from pathlib import Path
from typing import Unpack

from qglow.api.keywords import SampleCountKeywords
from qglow.api.model import Model
from qglow.api.options import SampleCountOptions
from qglow.core.keywords import taking
from qglow.core.progress import Progress
from qglow.recipe.schema import Recipe
from qglow.report.sufficiency import SufficiencyReport, sufficiency, write_sufficiency
from qglow.toolchain import CompileOptions
from qglow.toolchain.calibration import CalibrationSamples
from qglow.toolchain.profiling import profile_free_model_in_shards, profile_model_in_shards
from qglow.toolchain.samples import Data
from qglow.toolchain.undecided import UndecidedModel


@taking(SampleCountOptions)
def calibration_sufficiency(
    model: Model,
    data: Data,
    *,
    recipe: Recipe | None = None,
    progress: Progress | None = None,
    **options: Unpack[SampleCountKeywords],
) -> SufficiencyReport:
    """Measure how the scale of every int8 value depends on the number of calibration samples.

    Scales are computed over nested subsets, each twice as large as the one before, with 95 % bootstrap
    intervals from `resamples` resamples drawn with `seed`. The data is read once. tolerance: the largest
    relative change of a scale that counts as settled. recipe: the choices that determine scales (calibration,
    schema, rules), preprocessing and names of arrays. Other options are as for `Model.profile`.

    Raises DataError for data that does not fit or has fewer than two batches, UsageError for wrong options
    and for a model that is quantized already.
    """
    chosen = recipe or Recipe()
    seen = CalibrationSamples(data, options["select"], options["samples"])
    code = CompileOptions(isa=options["isa"], threads=options["threads"])
    opened = model._opened
    if isinstance(opened, UndecidedModel):
        graph, sharded = profile_free_model_in_shards(opened, seen, chosen, code, progress)
    else:
        graph, sharded = opened.graph, profile_model_in_shards(opened, seen, chosen, code, progress)
    return sufficiency(
        graph,
        sharded,
        chosen,
        tolerance=options["tolerance"],
        resamples=options["resamples"],
        seed=options["seed"],
    )


def save_sufficiency(report: SufficiencyReport, path: str | Path) -> None:
    """Write the figures as JSON with the verdict, whole or not at all. Raises InputFileError."""
    write_sufficiency(report, Path(path))

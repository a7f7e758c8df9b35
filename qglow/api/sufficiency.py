"""Sufficiency: how many calibration samples a model needs."""

from __future__ import annotations

from pathlib import Path

from qglow.api.model import Model
from qglow.core.progress import Progress
from qglow.recipe.schema import Recipe
from qglow.report.sufficiency import RESAMPLES, TOLERANCE, SufficiencyReport, sufficiency, write_sufficiency
from qglow.toolchain import CompileOptions
from qglow.toolchain.calibration import CalibrationSamples
from qglow.toolchain.profiling import profile_model_in_shards
from qglow.toolchain.samples import Data


def calibration_sufficiency(
    model: Model,
    data: Data,
    *,
    recipe: Recipe | None = None,
    select: str | None = None,
    samples: int | None = None,
    tolerance: float = TOLERANCE,
    resamples: int = RESAMPLES,
    seed: int = 0,
    isa: str | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
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
    seen, options = CalibrationSamples(data, select, samples), CompileOptions(isa=isa, threads=threads)
    sharded = profile_model_in_shards(model._loaded, seen, chosen, options, progress)
    return sufficiency(
        model._loaded.graph, sharded, chosen, tolerance=tolerance, resamples=resamples, seed=seed
    )


def save_sufficiency(report: SufficiencyReport, path: str | Path) -> None:
    """Write the figures as JSON with the verdict, whole or not at all. Raises InputFileError."""
    write_sufficiency(report, Path(path))

"""Drift: new data compared with a profile."""

from __future__ import annotations

from pathlib import Path
from typing import Unpack

from qglow.api.keywords import SampledKeywords
from qglow.api.options import SampledOptions
from qglow.core.keywords import taking
from qglow.core.progress import Progress
from qglow.profiling.profile import Profile
from qglow.recipe.schema import Recipe
from qglow.report.drift import DriftLimits, DriftReport, compare_profiles, prepared_alike, write_drift
from qglow.toolchain import CompileOptions
from qglow.toolchain.calibration import CalibrationSamples
from qglow.toolchain.given_models import ModelSource, model_place
from qglow.toolchain.loaded import read_profiled_model
from qglow.toolchain.profiling import profile_model
from qglow.toolchain.samples import Data


@taking(SampledOptions)
def profile_drift(
    profile: Profile,
    data: Data | Profile,
    *,
    model: ModelSource | None = None,
    recipe: Recipe | None = None,
    progress: Progress | None = None,
    **options: Unpack[SampledKeywords],
) -> DriftReport:
    """Compare new data with a profile: for every int8 value, whether its calibrated range still fits.

    data: as for `Model.profile`, preprocessed as the profile's data was; or a profile of the new data. model:
    the profile's model as for `load_model`, if it has moved or comes from no file. recipe: names of arrays,
    and the choices that determine ranges (calibration, schema, rules). Other options are as for
    `Model.profile`.

    Raises ModelError if the model is missing, ProfileError if it is another model, DataError for data
    that does not fit, UsageError for a recipe with another preprocessing.
    """
    opened = read_profiled_model(profile, None if model is None else model_place(model))
    chosen = prepared_alike(profile, recipe)
    if isinstance(data, Profile):
        now = data
    else:
        seen = CalibrationSamples(data, options["select"], options["samples"])
        code = CompileOptions(isa=options["isa"], threads=options["threads"])
        now = profile_model(opened, seen, recipe=chosen, keep_samples=0, options=code, progress=progress)
    return compare_profiles(opened.graph, profile, now, chosen)


def save_drift(report: DriftReport, path: str | Path, limits: DriftLimits | None = None) -> None:
    """Write drift as JSON, worst values first, whole or not at all. Raises InputFileError.

    With limits, `drifted` lists the values beyond them.
    """
    write_drift(report, Path(path), limits)

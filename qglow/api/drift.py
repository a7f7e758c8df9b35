"""New data held against a profile."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from qglow.api.data import Data, Progress
from qglow.api.model import Model, load_model
from qglow.core.errors import ModelError, ProfileError, UsageError
from qglow.core.files import write_atomically
from qglow.core.version import __version__
from qglow.profiling.profile import Profile
from qglow.quantization.options import QuantizationOptions
from qglow.recipe.schema import Recipe
from qglow.report.drift import DriftLimits, DriftReport, compare_profiles
from qglow.report.plain import to_plain


def profile_drift(
    profile: Profile,
    data: Data | Profile,
    *,
    model: str | Path | None = None,
    recipe: Recipe | None = None,
    select: str | None = None,
    samples: int | None = None,
    isa: str | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> DriftReport:
    """What new data does to int8 as a profile calibrated it, for every int8 value.

    data: as for `Model.profile`, prepared as the profile's data was; or a profile of the new data. model:
    where the profile's model is now, if it has moved. recipe: names of arrays, and the choices that
    ranges come from (calibration, schema, rules). Other options as for `Model.profile`.

    Raises ModelError where the model is missing, ProfileError where it is another, DataError for data that
    does not fit, UsageError for a recipe with another preprocessing.
    """
    opened = profiled_model(profile, model)
    chosen = prepared_alike(profile, recipe)
    if isinstance(data, Profile):
        now = data
    else:
        now = opened.profile(
            data,
            select=select,
            samples=samples,
            recipe=chosen,
            isa=isa,
            threads=threads,
            progress=progress,
        )
    return compare_profiles(opened.graph, profile, now, QuantizationOptions.of(chosen))


def profiled_model(profile: Profile, model: str | Path | None = None) -> Model:
    """The model of a profile, with its shapes. Raises ModelError where it is missing, ProfileError."""
    path = profile.model.path if model is None else Path(model)
    if not path.exists():
        raise ModelError(f"the profile was taken of {path}, which is missing; say where it is (--model)")
    try:
        return load_model(path, profile.shapes)
    except UsageError as error:
        raise ProfileError(f"the profile was taken of another model than {path}: {error}") from error


def prepared_alike(profile: Profile, recipe: Recipe | None) -> Recipe:
    """The recipe with the profile's preprocessing. Raises UsageError where it has another."""
    chosen = recipe or Recipe()
    if chosen.preprocessing not in (None, profile.preprocessing):
        raise UsageError(
            "the recipe's preprocessing is not that of the profile; leave it out, the profile's is used"
        )
    return replace(chosen, preprocessing=profile.preprocessing)


def save_drift(report: DriftReport, path: str | Path, limits: DriftLimits | None = None) -> None:
    """Write drift as JSON, worst values first, whole or not at all. Raises InputFileError.

    With limits, `drifted` lists the values beyond them.
    """
    values = [{**to_plain(drift), "loss_db": to_plain(drift.loss_db)} for drift in report.ranked()]
    content = {
        "qglow": __version__,
        **to_plain(report),
        "values": values,
        "limits": to_plain(limits or DriftLimits()),
        "drifted": [drift.value for drift in report.drifted(limits)],
    }
    write_atomically(Path(path), json.dumps(content, indent=1, sort_keys=True, ensure_ascii=False) + "\n")

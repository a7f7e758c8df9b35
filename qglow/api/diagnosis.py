"""Diagnosis: where an int8 model loses accuracy, and which changes of its recipe help."""

from __future__ import annotations

from typing import Unpack

from qglow.api.keywords import SampledKeywords
from qglow.api.options import SampledOptions
from qglow.api.quantized import QuantizedModel
from qglow.core.keywords import taking
from qglow.core.progress import Progress
from qglow.profiling.profile import Profile
from qglow.recipe.schema import Recipe
from qglow.report.diagnosis import Diagnosis
from qglow.report.layer_report import LayerReport
from qglow.toolchain import CompileOptions
from qglow.toolchain.calibration import CalibrationSamples
from qglow.toolchain.samples import Data
from qglow.tuning.diagnosis import diagnose_parts


@taking(SampledOptions)
def diagnose(
    model: QuantizedModel,
    data: Data,
    *,
    layers: LayerReport | None = None,
    profile: Profile | None = None,
    recipe: Recipe | None = None,
    progress: Progress | None = None,
    **options: Unpack[SampledKeywords],
) -> Diagnosis:
    """Attribute the error at a model's outputs to nodes, and in each to weights, rounding and clipping.

    Each error is injected alone into the float model, on a few of the samples. layers: the result of
    `compare_layers`, to include in the diagnosis. profile: the profile that the model was quantized with;
    given that, the most promising other calibrations and nodes in float are tried: each time the model is
    quantized again, with weights rounded to nearest, and run over all samples. Other options are as for
    `compare`.

    Raises UsageError for a profile where the model has its own parameters, ProfileError for a profile of
    another model, DataError for data that does not fit or is smaller than a batch.
    """
    return diagnose_parts(
        model._parts,
        CalibrationSamples(data, options["select"], options["samples"], model._open_dimensions()),
        layers=layers,
        profile=profile,
        recipe=recipe,
        options=CompileOptions(isa=options["isa"], threads=options["threads"]),
        progress=progress,
    )

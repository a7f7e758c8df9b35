"""Formats of weights in blocks, chosen layer by layer."""

from __future__ import annotations

from qglow.api.model import Model
from qglow.core.keywords import require_read
from qglow.core.progress import Progress
from qglow.generation.sizes import with_sizes
from qglow.recipe.schema import Recipe
from qglow.toolchain.calibration import CalibrationSamples
from qglow.toolchain.samples import Data
from qglow.toolchain.undecided import UndecidedModel
from qglow.tuning.weight_mix import WeightMix, find_weight_mix


def mix_weights(
    model: Model,
    calibration_data: Data | CalibrationSamples,
    most: int | str,
    *,
    recipe: Recipe | None = None,
    enough_db: float | None = None,
    progress: Progress | None = None,
) -> WeightMix:
    """Choose bits and blocks for the weights of every layer, so that the outputs lose little in a given size.

    What each format does to the outputs when one layer alone has it is measured on calibration samples, in
    the float program. Bytes then go where the noise falls most for each of them.

    most: bytes of all weights in blocks, as a number or as text such as "120K", or bits a weight, "4.5bits".
    Counted is what `model.qglow` stores: codes, scales of 4 bytes, zero points of 1 byte. recipe: what else
    holds; nodes of its `keep_float` are left out, and its `rounding` applies when the result is quantized.
    enough_db: predicted SQNR of the outputs at which no more bytes are spent. progress: as for
    `Model.profile`.

    Raises UsageError for a size in which not even the smallest formats fit, or not with this SQNR, for the
    path of a recipe, and for a model without such layers or that is quantized already, DataError for samples
    that do not fit.
    """
    require_read({"recipe": recipe})
    opened, chosen = model._opened, recipe or Recipe()
    if isinstance(opened, UndecidedModel):
        opened = with_sizes(opened, calibration_data, chosen)
    return find_weight_mix(opened, calibration_data, most, chosen, enough_db=enough_db, progress=progress)

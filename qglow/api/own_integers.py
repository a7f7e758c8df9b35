"""Models that are quantized already, in the integers that their files bring."""

from __future__ import annotations

from qglow.api.model import Model
from qglow.api.quantized import QuantizedModel
from qglow.recipe.schema import Recipe
from qglow.toolchain.undecided import UndecidedModel


def in_own_integers(model: Model, recipe: Recipe | None = None) -> Model | QuantizedModel:
    """The model in int8 by the parameters that it brings, in any shapes that are open; itself if it is float.

    recipe: as for `Model.quantize` without a profile. Raises UsageError as that does.
    """
    opened = model._opened
    if isinstance(opened, UndecidedModel):
        return Model(opened.in_integers(recipe or Recipe()))
    return model.quantize(recipe=recipe, check=False) if model.is_quantized else model

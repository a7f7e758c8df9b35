"""Values of inputs that decide shapes or parameters, where all samples of a data set have the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from qglow.core.errors import DataError, UnboundError, UndecidedError
from qglow.core.types import Array, Given, Shape
from qglow.profiling.samples import InputSpecs
from qglow.recipe.schema import Recipe
from qglow.toolchain.calibration import CalibrationSamples
from qglow.toolchain.loaded import LoadedModel
from qglow.toolchain.samples import FreeInputs, input_specs, open_specified
from qglow.toolchain.undecided import UndecidedModel, open_model

ShapesOf = Callable[[Mapping[str, Shape]], Mapping[str, Shape]]
"""Shapes of inputs for those of one sample."""


def given_by_samples(
    model: UndecidedModel, missing: UndecidedError, data: CalibrationSamples, recipe: Recipe | None
) -> LoadedModel | UndecidedModel:
    """The model with the values that `missing` asks for as constants, taken from the samples.

    Raises DataError where samples differ in one of them, and `missing` for data without them.
    """
    found: list[dict[str, Array]] = []
    try:
        found += _values(model, missing, data, recipe)
    except DataError as error:
        raise missing from error
    for number, values in enumerate(found):
        for name, value in values.items():
            if not np.array_equal(value, found[0][name]):
                raise DataError(
                    f"sample {number} has another value of input '{name}' than sample 0, and it decides "
                    "shapes or parameters; samples of each value need a profile of their own"
                )
    source = model.source
    given: dict[str, Given] = {**source.values, **found[0]}
    return open_model(source.place, source.shapes, source.passes, source.native, given)


def _values(
    model: UndecidedModel, missing: UndecidedError, data: CalibrationSamples, recipe: Recipe | None
) -> Iterator[dict[str, Array]]:
    """Values of the inputs in each sample, in the shapes that these have."""
    specs, shapes = _forms(model, missing)
    for sample in open_specified(data.data, specs, recipe=recipe, select=data.select, samples=data.samples):
        whole = shapes({name: array.shape for name, array in sample.inputs.items()})
        yield {name: np.reshape(sample.inputs[name], whole[name]) for name in missing.inputs}


def _forms(model: UndecidedModel, missing: UndecidedError) -> tuple[InputSpecs, ShapesOf]:
    """Forms of one sample of all inputs without a value, and what gives the shapes of inputs that hold it."""
    if isinstance(model.reason, UnboundError):
        inputs = FreeInputs.of(model.reason.dimensions, model.reason.elements)
        return inputs.specs, inputs.shapes
    shapes = {name: kind.shape for name, kind in missing.types.items()}
    return input_specs(missing.types), lambda sample: shapes

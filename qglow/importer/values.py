"""Inputs of a model whose values are given: they become constants."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from onnx import ModelProto, TensorProto, ValueInfoProto, numpy_helper
from onnx.helper import tensor_dtype_to_np_dtype

from qglow.core.errors import UsageError
from qglow.core.types import Array, Given
from qglow.importer.binding import check_names
from qglow.importer.tensors import element_name


def given_arrays(inputs: Sequence[ValueInfoProto], values: Mapping[str, Given]) -> dict[str, Array]:
    """The stated values as arrays of the types that the inputs declare.

    A single number may stand for a scalar and for a list of one. Raises UsageError for a name that no input
    has and for a value of another type; shapes are the business of `bind_inputs`.
    """
    declared = {value.name: value for value in inputs}
    check_names("value", values, list(declared))
    return {name: _array(declared[name], value) for name, value in values.items()}


def bind_values(model: ModelProto, arrays: Mapping[str, Array]) -> ModelProto:
    """The model with inputs as initializers; the given one, which stays as it is, where there are none."""
    if not arrays:
        return model
    bound = ModelProto()
    bound.CopyFrom(model)
    left = [value for value in model.graph.input if value.name not in arrays]
    del bound.graph.input[:]
    bound.graph.input.extend(left)
    bound.graph.initializer.extend(_tensors(arrays))
    return bound


def _tensors(arrays: Mapping[str, Array]) -> Iterator[TensorProto]:
    for name, array in arrays.items():
        yield numpy_helper.from_array(np.asarray(array, order="C"), name)


def _array(declared: ValueInfoProto, value: Given) -> Array:
    kind, name = declared.type.tensor_type, declared.name
    try:
        wanted = np.dtype(tensor_dtype_to_np_dtype(kind.elem_type))
    except (KeyError, TypeError) as error:
        raise UsageError(f"value of '{name}': inputs of {element_name(kind.elem_type)} take none") from error
    if isinstance(value, np.ndarray | np.generic):
        array = np.asarray(value)
        if array.dtype != wanted:
            raise UsageError(f"value of '{name}' is {array.dtype}; the input is {wanted}")
        return array
    array = _converted(name, value, wanted)
    scalar = kind.HasField("shape") and not kind.shape.dim
    return array.reshape(()) if scalar and array.shape == (1,) else array


def _converted(name: str, value: Given, wanted: np.dtype[np.generic]) -> Array:
    """Python numbers as elements of a type that holds them; reals are rounded to it."""
    try:
        stated = np.asarray(value)
        with np.errstate(all="ignore"):
            array = stated.astype(wanted)
    except (TypeError, ValueError, OverflowError) as error:
        raise UsageError(f"value of '{name}' is no array of numbers") from error
    numbers = stated.dtype.kind in "biuf"
    reals = wanted.kind in "fV"  # V: those that numpy itself does not know
    if not numbers or not (reals or np.array_equal(array, stated)):
        raise UsageError(f"value of '{name}': {value} does not convert to {wanted}")
    return array

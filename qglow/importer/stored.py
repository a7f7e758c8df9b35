"""Arrays and dimensions that an ONNX file states, without an import of its graph."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from onnx import TensorProto

from qglow.core.errors import DataError, ModelError, UnsupportedError
from qglow.core.model_place import ModelPlace, folder_of
from qglow.core.types import Array, Dimension
from qglow.importer.binding import real_inputs, tensor_shape
from qglow.importer.loading import load
from qglow.importer.tensors import to_array


def declared_dimensions(place: ModelPlace) -> dict[str, Sequence[Dimension] | None]:
    """Dimensions of the inputs, by name; None for an input without any. Raises as `stored_arrays`."""
    return {value.name: tensor_shape(value) for value in real_inputs(load(place).proto.graph)}


def stored_arrays(place: ModelPlace) -> Iterator[Array]:
    """Initializers and values of Constant nodes; those that numpy has no type for are left out.

    Raises ModelError for a file that is no model.
    """
    model = load(place)
    tensors = list(model.proto.graph.initializer)
    for node in model.nodes:
        if node.op_type == "Constant":
            tensors += [attribute.t for attribute in node.attribute if attribute.name == "value"]
    for tensor in tensors:
        array = _array(tensor, place, model.large.get(tensor.name) if tensor.name else None)
        if array is not None:
            yield array


def _array(tensor: TensorProto, place: ModelPlace, data: memoryview | None) -> Array | None:
    try:
        return to_array(tensor, folder_of(place), data=data)
    except (DataError, ModelError, UnsupportedError):
        return None

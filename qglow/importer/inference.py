"""Types that onnx infers for the values of a whole model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import onnx

from qglow.core.types import Dimension, ElementType, TensorType
from qglow.importer.binding import tensor_shape
from qglow.importer.tensors import BORDER, ELEMENTS
from qglow.interchange.inference import InferenceRefused, infer_types


@dataclass(frozen=True)
class Inferred:
    """Facts that onnx infers; values that it cannot tell are left out.

    types: static types as the graph has them, reals of any width as float32. elements: ONNX's numbers of the
    elements as the model has them.
    """

    types: Mapping[str, TensorType]
    elements: Mapping[str, int]


def infer(model: onnx.ModelProto, inputs: Mapping[str, TensorType]) -> Inferred:
    """Infer types and elements of the values once the inputs have these shapes."""
    bound = onnx.ModelProto()
    bound.CopyFrom(model)
    for value in bound.graph.input:
        if value.name in inputs:
            _set_shape(value, inputs[value.name].shape)
    for value in bound.graph.output:
        value.type.tensor_type.ClearField("shape")
    try:
        bound = infer_types(bound, follow_data=not _makes_data(model))
    except InferenceRefused:
        return Inferred({}, {})
    types: dict[str, TensorType] = {}
    elements: dict[str, int] = {}
    for value in [*bound.graph.input, *bound.graph.value_info, *bound.graph.output]:
        dims = tensor_shape(value)
        number = elements[value.name] = value.type.tensor_type.elem_type
        element = ElementType.FLOAT if number in BORDER else ELEMENTS.get(number)
        if element is None or dims is None:
            continue
        shape = tuple(d for d in dims if isinstance(d, int))
        if len(shape) == len(dims):
            types[value.name] = TensorType(element, shape)
    return Inferred(types, elements)


def declared_dimensions(model: onnx.ModelProto) -> dict[str, Sequence[Dimension]]:
    """Dimensions of values as onnx infers them from those that the file states; free ones are no numbers."""
    try:
        inferred = infer_types(model, follow_data=not _makes_data(model)).graph
    except InferenceRefused:
        inferred = model.graph
    found = {v.name: tensor_shape(v) for v in (*inferred.value_info, *inferred.output, *inferred.input)}
    return {name: dims for name, dims in found.items() if dims is not None}


def _makes_data(model: onnx.ModelProto) -> bool:
    """Whether following data through the model could take any amount of memory: onnx lists whole ranges."""
    return bool(model.functions) or any(node.op_type == "Range" for node in model.graph.node)


def _set_shape(value: onnx.ValueInfoProto, shape: tuple[int, ...]) -> None:
    value.type.tensor_type.ClearField("shape")
    value.type.tensor_type.shape.SetInParent()
    for size in shape:
        value.type.tensor_type.shape.dim.add().dim_value = size

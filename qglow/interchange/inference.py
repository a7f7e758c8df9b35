"""onnx's inference of types for models that are not trusted."""

from __future__ import annotations

from collections.abc import Iterator

import onnx
from onnx import ModelProto, NodeProto, TensorProto, numpy_helper

from qglow.interchange.nodes import all_nodes

_SIZES = {"Expand": 1, "Tile": 1, "ConstantOfShape": 0}
"""Operators that take sizes, with the index of that operand."""

_DAMAGED = (ValueError, RuntimeError, TypeError)
"""What onnx raises besides for models that are damaged."""


class InferenceRefused(Exception):
    """onnx cannot infer the types of a model."""


def infer_types(model: ModelProto, *, follow_data: bool = False, strict: bool = False) -> ModelProto:
    """Return the model with the types that onnx infers: https://onnx.ai/onnx/api/shape_inference.html.

    follow_data: whether numbers that become shapes are followed. strict: whether each node has to fit.
    Raises InferenceRefused where onnx raises an error, and where it could end the process.
    """
    require_harmless(model)
    try:
        return onnx.shape_inference.infer_shapes(
            model, check_type=strict, strict_mode=strict, data_prop=follow_data
        )
    except (onnx.shape_inference.InferenceError, onnx.checker.ValidationError, *_DAMAGED) as error:
        raise InferenceRefused(str(error)) from error


def require_harmless(model: ModelProto) -> None:
    """Raise InferenceRefused where the inference of onnx, which onnxruntime has too, could end the process.

    It does so on slices of values whose sizes a model says to be negative, and on a Split with more outputs
    than parts.
    """
    try:
        is_negative = any(_is_negative(sizes) for sizes in _given_sizes(model))
    except _DAMAGED as error:
        raise InferenceRefused(str(error)) from error
    if is_negative:
        raise InferenceRefused("a size is negative")
    if any(map(_gives_too_much, all_nodes(model.graph.node))):
        raise InferenceRefused("a Split has more outputs than parts")


def _given_sizes(model: ModelProto) -> Iterator[TensorProto]:
    """Constants that operators take as sizes."""
    nodes = list(all_nodes(model.graph.node))
    wanted = {
        node.input[_SIZES[node.op_type]]
        for node in nodes
        if node.op_type in _SIZES and len(node.input) > _SIZES[node.op_type]
    }
    yield from (tensor for tensor in model.graph.initializer if tensor.name in wanted)
    for node in nodes:
        yield from _own_tensors(node, wanted)


def _own_tensors(node: NodeProto, wanted: set[str]) -> Iterator[TensorProto]:
    """Constants of the bodies of a node, and that of a Constant, as far as they are wanted."""
    for attribute in node.attribute:
        yield from (tensor for tensor in attribute.g.initializer if tensor.name in wanted)
        if node.op_type == "Constant" and attribute.name == "value" and wanted.intersection(node.output):
            yield attribute.t


def _gives_too_much(node: NodeProto) -> bool:
    """Whether a node is a Split with more outputs than its attributes have parts."""
    parts = {a.name: a.i if a.name == "num_outputs" else len(a.ints) for a in node.attribute}
    stated = [parts[name] for name in ("num_outputs", "split") if name in parts]
    return node.op_type == "Split" and any(len(node.output) > count for count in stated)


def _is_negative(tensor: TensorProto) -> bool:
    if tensor.data_type != TensorProto.INT64 or tensor.data_location == TensorProto.EXTERNAL:
        return False
    return bool((numpy_helper.to_array(tensor) < 0).any())

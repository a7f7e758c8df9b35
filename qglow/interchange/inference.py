"""onnx's inference of types for models that are not trusted."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import onnx
from onnx import ModelProto, NodeProto, TensorProto, numpy_helper

from qglow.interchange.nodes import all_nodes

_SIZES = {"Expand": 1, "Tile": 1, "ConstantOfShape": 0}
"""Operators that take sizes, with the index of that operand."""

_FARTHEST_AXIS = 2**31 - 1
_SPARE = 1000
"""Parts of a Split without outputs, and elements that are not there, which harm nobody."""
_ELEMENTS_AN_ENTRY = 16
"""Largest number of elements that an entry of any field of a tensor holds."""

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

    It does so on slices of values whose sizes a model says to be negative, on a Split with more outputs than
    parts, on a first operand that is left out, and on an axis beyond 32 bits. Parts of a Split and elements
    of a tensor that a model only claims to have take all memory.
    """
    if any(map(_claims_too_much, _stored_tensors(model))):
        raise InferenceRefused("a tensor has fewer elements than its shape says")
    try:
        is_negative = any(_is_negative(sizes) for sizes in _given_sizes(model))
    except _DAMAGED as error:
        raise InferenceRefused(str(error)) from error
    if is_negative:
        raise InferenceRefused("a size is negative")
    opsets = {"" if one.domain == "ai.onnx" else one.domain: one.version for one in model.opset_import}
    for node in all_nodes(model.graph.node):
        if _gives_too_much(node):
            raise InferenceRefused("a Split has more outputs than parts, or far fewer")
        if any(a.name == "axis" and abs(a.i) > _FARTHEST_AXIS for a in node.attribute):
            raise InferenceRefused(f"an axis of a {node.op_type} is beyond 32 bits")
        if node.input[:1] == [""] and _needs_first(node, opsets):
            raise InferenceRefused(f"the first operand of a {node.op_type} is missing")


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
    return node.op_type == "Split" and any(not 0 <= count - len(node.output) <= _SPARE for count in stated)


def _needs_first(node: NodeProto, opsets: Mapping[str, int]) -> bool:
    """Whether the definition of an operator has a first operand that has to be there."""
    domain = "" if node.domain == "ai.onnx" else node.domain
    try:
        operands = onnx.defs.get_schema(node.op_type, opsets.get(domain, 1), domain).inputs
    except onnx.defs.SchemaError:
        return False
    return bool(operands) and operands[0].option == onnx.defs.OpSchema.FormalParameterOption.Single


def _stored_tensors(model: ModelProto) -> Iterator[TensorProto]:
    """Constants of a model and of the bodies in it, and tensors that are attributes."""
    yield from model.graph.initializer
    for node in all_nodes(model.graph.node):
        for attribute in node.attribute:
            yield from attribute.g.initializer
            if attribute.HasField("t"):
                yield attribute.t


def _claims_too_much(tensor: TensorProto) -> bool:
    """Whether the shape of a tensor has many more elements than what is stored, of at least two bits each.

    Data that lies elsewhere, in a file or in memory beside the model, leaves none here, of which onnx makes
    nothing.
    """
    if tensor.data_location == TensorProto.EXTERNAL or (tensor.HasField("raw_data") and not tensor.raw_data):
        return False
    fields = (tensor.float_data, tensor.int32_data, tensor.int64_data, tensor.double_data)
    stored = sum(map(len, (*fields, tensor.uint64_data, tensor.string_data, tensor.raw_data)))
    claimed: int = math.prod(tensor.dims)
    return claimed > _ELEMENTS_AN_ENTRY * stored + _SPARE


def _is_negative(tensor: TensorProto) -> bool:
    if tensor.data_type != TensorProto.INT64 or tensor.data_location == TensorProto.EXTERNAL:
        return False
    return bool((numpy_helper.to_array(tensor) < 0).any())

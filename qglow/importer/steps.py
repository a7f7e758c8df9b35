"""First dimensions of inputs that count steps, frames or nodes, where only the graph tells.

Recurrent layers take [steps, batch, features], networks of graphs [nodes, features], those of signals often
[frames, features], and exporters leave dimensions without a name, or number them: then these could not be
told from samples. So names are given for a while, and followed to the nodes that compute with several places
along them at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, numpy_helper

from qglow.core.batch import is_named_batch, may_be_batch
from qglow.core.types import Dimension
from qglow.importer.binding import real_inputs, tensor_shape
from qglow.interchange.inference import InferenceRefused, infer_types
from qglow.interchange.nodes import integer_attribute

_RECURRENT = frozenset({"LSTM", "GRU", "RNN", "DynamicQuantizeLSTM"})
_SCAN = "Scan"
_PICK = "Gather"
_OF_SIZES = frozenset({"Shape", "Size"})
_OF_WINDOWS = frozenset({"kernel_shape", "strides", "dilations", "auto_pad"})
"""Attributes of nodes whose windows lie along all axes of their input but the first two."""
_REDUCTIONS = "Reduce"
"""What names of reductions begin with."""
_RANK_OF_IMAGES = 4
"""Axes of an input that is an image or more: the first one is always of samples."""


def name_steps(proto: ModelProto, nodes: Iterable[NodeProto]) -> None:
    """Name free first dimensions that are none of samples `<input>_steps`.

    Recurrent layers take them as steps, windows lie along them, or sums are over them, or rows along them
    are picked by the values of another input, as the edges of a graph pick its nodes. `nodes` are those of
    the graph in topological order. Names that say batch stay, and so does what some layer takes as a batch.
    """
    nodes = list(nodes)
    unnamed = {value.name: _may_be_frames(dims) for value, dims in _unnamed_inputs(proto.graph)}
    if not unnamed:
        return
    wanted = list(unnamed)
    layers = [node for node in nodes if node.op_type in _RECURRENT or node.op_type == _SCAN]
    picks = list(_picks(proto.graph, nodes))
    mixing = []
    if all(unnamed.values()):
        mixing = [node for node in nodes if node.op_type not in _RECURRENT and _mixes(node)]
    if not (layers or picks or mixing):
        return
    try:
        dims = _followed(proto, wanted)
    except InferenceRefused:
        return  # What is wrong with the model is said where it is imported.
    own = {value.name: tensor_shape(value) or [] for value in proto.graph.input}
    steps: set[Dimension] = set()
    batches: set[Dimension] = set()
    for value, axis, other in (each for layer in layers for each in _taken(layer)):
        sizes = dims.get(value, [])
        if -len(sizes) <= axis < len(sizes):
            steps.add(sizes[axis])
        if other is not None and other < len(sizes):
            batches.add(sizes[other])
    constants = dict(_constants(proto.graph, nodes)) if mixing else {}
    for node in mixing:
        steps.update(_mixed(node, dims, constants))
        if _has_windows(node):
            batches.update(dims.get(node.input[0], [])[:1])
    for node, by in picks:
        sizes, axis = dims.get(node.input[0], []), integer_attribute(node, "axis", 0)
        if -len(sizes) <= axis < len(sizes) and sizes[axis] in {_steps_of(name) for name in wanted}:
            steps.add(sizes[axis])
            if any(not may_be_batch(own[name]) for name in by):
                # One list of edges for all rows: no input has samples along its first axis.
                steps.update(map(_steps_of, wanted))
    for name in wanted:
        if _steps_of(name) in steps - batches:
            _name(proto.graph, name)


def _followed(proto: ModelProto, wanted: Iterable[str]) -> dict[str, list[Dimension]]:
    """Dimensions of all values where the first ones of the wanted inputs have names.

    Raises InferenceRefused for a model that onnx refuses.
    """
    named = ModelProto()
    named.CopyFrom(proto)
    # Names that an exporter wrote would stand in the way of those that are followed.
    del named.graph.value_info[:]
    for name in wanted:
        _name(named.graph, name)
    graph = infer_types(named, follow_data=True).graph
    return {v.name: tensor_shape(v) or [] for v in (*graph.input, *graph.value_info, *graph.output)}


def _constants(graph: GraphProto, nodes: Iterable[NodeProto]) -> Iterator[tuple[str, TensorProto]]:
    """Constants by name, as far as they are in the file itself."""
    for tensor in graph.initializer:
        if tensor.data_location != TensorProto.EXTERNAL:
            yield tensor.name, tensor
    for node in nodes:
        if node.op_type == "Constant":
            yield from ((node.output[0], each.t) for each in node.attribute if each.name == "value")


def _may_be_frames(dims: Sequence[Dimension]) -> bool:
    """Whether what is computed along the first axis tells what it is: of images, it is one of samples.

    Where another dimension has the same name, nobody knows which of them is meant.
    """
    return len(dims) < _RANK_OF_IMAGES and (dims[0] is None or dims[0] not in dims[1:])


def _unnamed_inputs(graph: GraphProto) -> Iterator[tuple[ValueInfoProto, Sequence[Dimension]]]:
    """Inputs whose first dimension is free and may be a batch, but is not named so; one for each name.

    With all their dimensions.
    """
    seen: set[str] = set()
    for value in real_inputs(graph):
        dims = tensor_shape(value)
        if not dims or isinstance(dims[0], int) or not may_be_batch(dims) or is_named_batch(dims):
            continue
        if dims[0] not in seen:
            yield value, dims
        if dims[0] is not None:
            seen.add(dims[0])


def _picks(graph: GraphProto, nodes: Iterable[NodeProto]) -> Iterator[tuple[NodeProto, frozenset[str]]]:
    """Nodes that pick rows of what is computed from inputs, by the values of the other inputs that follow."""
    sources = {value.name: frozenset((value.name,)) for value in real_inputs(graph)}
    for node in nodes:
        read = [sources.get(name, frozenset()) for name in node.input]
        if node.op_type == _PICK and read[0] and read[1] - read[0]:
            yield node, read[1] - read[0]
        found = frozenset[str]().union(*read)
        if found and node.op_type not in _OF_SIZES:
            sources.update((name, found) for name in node.output)


def _taken(layer: NodeProto) -> Iterator[tuple[str, int, int | None]]:
    """Values that a layer takes step by step: their names, the axes of steps and those of a batch, if any."""
    settings = {a.name: a for a in layer.attribute}
    if layer.op_type == _SCAN:
        count = settings["num_scan_inputs"].i if "num_scan_inputs" in settings else 0
        axes = list(settings["scan_input_axes"].ints) if "scan_input_axes" in settings else [0] * count
        yield from ((name, axis, None) for name, axis in zip(layer.input[-count:], axes, strict=False))
    elif layer.input:
        batch_first = "layout" in settings and settings["layout"].i == 1
        yield (layer.input[0], *((1, 0) if batch_first else (0, 1)))


def _mixes(node: NodeProto) -> bool:
    """Whether `_mixed` knows what a node computes along its axes."""
    return node.op_type in ("MatMul", "Pad") or node.op_type.startswith(_REDUCTIONS) or _has_windows(node)


def _has_windows(node: NodeProto) -> bool:
    return any(each.name in _OF_WINDOWS for each in node.attribute)


def _mixed(
    node: NodeProto, dims: Mapping[str, Sequence[Dimension]], constants: Mapping[str, TensorProto]
) -> Iterator[Dimension]:
    """Dimensions along which a node computes with several places at once, which no node does with samples."""
    sizes = dims.get(node.input[0], [])
    if _has_windows(node):
        yield from sizes[2:]
    elif node.op_type == "MatMul":
        yield from sizes[-1:]
        yield from dims.get(node.input[1], [])[-2:-1]
    elif node.op_type.startswith(_REDUCTIONS):
        axes = _integers(node, "axes", constants)
        yield from (sizes[axis] for axis in axes if -len(sizes) <= axis < len(sizes))
    else:
        pads = _integers(node, "pads", constants)
        if len(pads) == 2 * len(sizes):
            padded = zip(sizes, pads, pads[len(sizes) :], strict=False)
            yield from (size for size, before, after in padded if before or after)


def _integers(node: NodeProto, name: str, constants: Mapping[str, TensorProto]) -> list[int]:
    """Integers of an attribute, or of the second input where that is a constant; none where neither is."""
    stated = next((list(each.ints) for each in node.attribute if each.name == name), None)
    if stated is not None:
        return stated
    tensor = constants.get(node.input[1]) if len(node.input) > 1 else None
    return [] if tensor is None else numpy_helper.to_array(tensor).ravel().tolist()


def _steps_of(name: str) -> str:
    """A name for the steps of an input: one that says no batch, as that of nodes' graphs, "batch", would."""
    return re.sub("batch", "b", name, flags=re.IGNORECASE) + "_steps"


def _name(graph: GraphProto, name: str) -> None:
    """Name the first dimension of an input, and all dimensions that had its name."""
    values = [*graph.input, *graph.output, *graph.value_info]
    dimension = next(v for v in graph.input if v.name == name).type.tensor_type.shape.dim[0]
    old = dimension.dim_param
    dimension.dim_param = _steps_of(name)
    for one in (one for value in values for one in value.type.tensor_type.shape.dim):
        if old and one.dim_param == old:
            one.dim_param = _steps_of(name)

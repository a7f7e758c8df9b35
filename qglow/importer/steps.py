"""First dimensions of inputs that count steps or nodes, where only the graph tells.

Recurrent layers take [steps, batch, features], networks of graphs [nodes, features], and exporters often
leave dimensions without a name, or number them: then these could not be told from samples. So names are given
for a while, and followed to the layers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from onnx import GraphProto, ModelProto, NodeProto

from qglow.core.batch import is_named_batch, may_be_batch
from qglow.core.types import Dimension
from qglow.importer.binding import real_inputs, tensor_shape
from qglow.interchange.inference import InferenceRefused, infer_types
from qglow.interchange.nodes import integer_attribute

_RECURRENT = frozenset({"LSTM", "GRU", "RNN", "DynamicQuantizeLSTM"})
_SCAN = "Scan"
_PICK = "Gather"
_OF_SIZES = frozenset({"Shape", "Size"})


def name_steps(proto: ModelProto, nodes: Iterable[NodeProto]) -> None:
    """Name free first dimensions that are none of samples `<input>_steps`.

    Recurrent layers take them as steps, or rows along them are picked by the values of another input, as
    the edges of a graph pick its nodes. `nodes` are those of the graph in topological order. Names that say
    batch stay, and so does what some layer takes as a batch.
    """
    nodes = list(nodes)
    layers = [node for node in nodes if node.op_type in _RECURRENT or node.op_type == _SCAN]
    picks = list(_picks(proto.graph, nodes))
    wanted = list(_unnamed_inputs(proto.graph)) if layers or picks else []
    if not wanted:
        return
    named = ModelProto()
    named.CopyFrom(proto)
    # Names that an exporter wrote would stand in the way of those that are followed.
    del named.graph.value_info[:]
    for name in wanted:
        _name(named.graph, name)
    try:
        graph = infer_types(named, follow_data=True).graph
    except InferenceRefused:
        return  # What is wrong with the model is said where it is imported.
    dims = {v.name: tensor_shape(v) or [] for v in (*graph.input, *graph.value_info, *graph.output)}
    own = {value.name: tensor_shape(value) or [] for value in proto.graph.input}
    steps: set[Dimension] = set()
    batches: set[Dimension] = set()
    for value, axis, other in (each for layer in layers for each in _taken(layer)):
        sizes = dims.get(value, [])
        if -len(sizes) <= axis < len(sizes):
            steps.add(sizes[axis])
        if other is not None and other < len(sizes):
            batches.add(sizes[other])
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


def _unnamed_inputs(graph: GraphProto) -> Iterator[str]:
    """Inputs whose first dimension is free and may be a batch, but is not named so; one for each name."""
    seen: set[str] = set()
    for value in real_inputs(graph):
        dims = tensor_shape(value)
        if not dims or isinstance(dims[0], int) or not may_be_batch(dims) or is_named_batch(dims):
            continue
        if dims[0] not in seen:
            yield value.name
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

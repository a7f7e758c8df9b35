"""A part of an ONNX model as a model of its own: from some of its tensors to others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path

from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, numpy_helper

from qglow.core.errors import UnsupportedError, UsageError
from qglow.core.files import write_atomically
from qglow.core.model_place import ModelPlace, folder_of
from qglow.core.types import Given
from qglow.importer.loading import ModelFile, load
from qglow.importer.tensors import to_array
from qglow.importer.values import bind_values, given_arrays
from qglow.interchange.inference import InferenceRefused, infer_types
from qglow.interchange.nodes import all_nodes, outer_names

_LARGEST = (1 << 31) - 1
"""Bytes that a protobuf message may have."""


def cut_model(
    place: ModelPlace, output: Path, inputs: Sequence[str] = (), outputs: Sequence[str] = ()
) -> None:
    """Write the part of a model that computes `outputs` from `inputs`; by default its own outputs and inputs.

    Inputs of the model that the part reads besides stay inputs. Weights are stored in the file. Raises
    ModelError for a damaged model, UsageError for a name that no tensor has, whose type is not known, or that
    has nothing to do with the outputs, and UnsupportedError for a part of more than 2 GB.
    """
    part = part_of(place, load(place), inputs, outputs)
    if part.ByteSize() > _LARGEST:
        raise UnsupportedError(f"the part of {place} is larger than 2 GB, which one ONNX file cannot be")
    write_atomically(output, part.SerializeToString(deterministic=True))


def part_of_file(
    place: ModelPlace, outputs: Sequence[str], values: Mapping[str, Given] | None = None
) -> ModelProto:
    """The part of a file's model that computes `outputs` from its inputs, of which `values` become constants.

    Raises as `cut_model`, and UsageError for values that do not fit.
    """
    part = part_of(place, load(place), (), outputs)
    names = {value.name for value in part.graph.input}
    left = {name: value for name, value in (values or {}).items() if name in names}
    return bind_values(part, given_arrays(part.graph.input, left))


def part_of(place: ModelPlace, model: ModelFile, inputs: Sequence[str], outputs: Sequence[str]) -> ModelProto:
    """The part of a model that computes `outputs` from `inputs`, see `cut_model`."""
    graph = model.proto.graph
    known = tensor_names(model)
    wanted = list(outputs) or [value.name for value in graph.output]
    for field, names in (("inputs", inputs), ("outputs", wanted)):
        for name in names:
            _require_known(place, name, known, field, model)
        _require_once(names, field)
    nodes, reached = _needed(model, wanted, set(inputs))
    unused = [name for name in inputs if name not in reached]
    if unused:
        raise UsageError(f"'{unused[0]}' does not lead to {', '.join(wanted)}", field="inputs")
    if not nodes:
        raise UsageError(
            f"nothing is left of {place}: no node lies before '{wanted[0]}'; choose tensors further apart",
            field="outputs" if outputs else "inputs",
        )
    types = _types(model)
    stored = {tensor.name for tensor in graph.initializer}
    own = [v.name for v in graph.input if v.name in reached and v.name not in stored and v.name not in inputs]
    part = ModelProto()
    part.CopyFrom(model.proto)
    for field in ("node", "initializer", "value_info", "input", "output"):
        part.graph.ClearField(field)
    part.graph.node.extend(nodes)
    part.graph.initializer.extend(
        _whole(tensor, model, place) for tensor in graph.initializer if tensor.name in reached - set(inputs)
    )
    part.graph.input.extend(_value(name, types, "inputs") for name in [*inputs, *own])
    part.graph.output.extend(_value(name, types, "outputs") for name in wanted)
    return part


def tensor_names(model: ModelFile) -> set[str]:
    """Names of the inputs, the initializers and what nodes give, but for the insides of nodes."""
    graph = model.proto.graph
    found = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
    return found | {name for node in model.nodes for name in node.output if name}


def _require_known(place: ModelPlace, name: str, known: set[str], field: str, model: ModelFile) -> None:
    if name in known:
        return
    for node in model.nodes:
        if any(name in inner.output for inner in all_nodes([node]) if inner is not node):
            raise UsageError(
                f"'{name}' is computed inside of node '{node.name}' ({node.op_type}); a model is cut between "
                f"nodes, so choose what this one gives, '{next(filter(None, node.output))}'",
                field=field,
            )
    near = get_close_matches(name, known, 1)
    hint = f"; did you mean '{near[0]}'?" if near else ""
    raise UsageError(f"no tensor of {place} is called '{name}'{hint}", field=field)


def _require_once(names: Sequence[str], field: str) -> None:
    twice = [name for number, name in enumerate(names) if name in names[:number]]
    if twice:
        raise UsageError(f"'{twice[0]}' is named twice", field=field)


def _needed(model: ModelFile, wanted: Sequence[str], ends: set[str]) -> tuple[list[NodeProto], set[str]]:
    """Nodes that lead from `ends` to the wanted values, in their order, and names of all that these need."""
    producer = {name: index for index, node in enumerate(model.nodes) for name in node.output if name}
    nodes: set[int] = set()
    reached: set[str] = set()
    waiting = list(wanted)
    while waiting:
        name = waiting.pop()
        if name in reached:
            continue
        reached.add(name)
        index = producer.get(name)
        if index is None or name in ends or index in nodes:
            continue
        nodes.add(index)
        waiting += outer_names(model.nodes[index])
    return [model.nodes[index] for index in sorted(nodes)], reached


def _types(model: ModelFile) -> dict[str, ValueInfoProto]:
    try:
        inferred = infer_types(model.proto)
    except InferenceRefused:
        inferred = model.proto
    graph = inferred.graph
    return {value.name: value for value in [*graph.value_info, *graph.output, *graph.input]}


def _value(name: str, types: dict[str, ValueInfoProto], field: str) -> ValueInfoProto:
    value = types.get(name)
    if value is None or not value.type.WhichOneof("value"):
        raise UsageError(
            f"the type of '{name}' is not known: onnx does not know an operator before it; choose another",
            field=field,
        )
    return value


def _whole(tensor: TensorProto, model: ModelFile, place: ModelPlace) -> TensorProto:
    """A tensor with its data, wherever the file has them."""
    if tensor.name in model.large:
        whole = TensorProto()
        whole.CopyFrom(tensor)
        whole.raw_data = bytes(model.large[tensor.name])
        return whole
    if tensor.data_location == TensorProto.EXTERNAL:
        return numpy_helper.from_array(to_array(tensor, folder_of(place), halves=True), tensor.name)
    return tensor

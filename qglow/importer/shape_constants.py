"""Tensors of a model that the shapes of its inputs decide."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence, Set
from concurrent.futures import Future
from dataclasses import dataclass

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper

from qglow.core.errors import UnsupportedError, UsageError
from qglow.core.kept_imports import KeptImports
from qglow.core.model_place import ModelBytes, ModelPlace
from qglow.core.types import Array, Given, Shape
from qglow.graph.graph import Graph
from qglow.importer.binding import real_inputs
from qglow.importer.branches import with_values_bound
from qglow.importer.cutting import part_of, tensor_names
from qglow.importer.loading import ModelFile, load
from qglow.importer.model import import_file, import_model
from qglow.importer.naming import shown_name
from qglow.importer.operands import tensor_of
from qglow.importer.tensors import BORDER, HALVES, to_array
from qglow.interchange.nodes import outer_names

_STEPS = 2
"""Nodes between a tensor and those near it: a product, the sum with its bias, what is done to that."""
_Neighbours = Mapping[str, Sequence[str]]


def missing_tensors(place: ModelPlace, names: Sequence[str], kept: KeptImports | None = None) -> list[str]:
    """Names that no tensor of a file has, and that are no float32 of one."""
    known = tensor_names(load(place, kept))
    return [name for name in names if name not in known and tensor_of(name) not in known]


@dataclass(frozen=True)
class ReadShape:
    """A tensor that a node Shape reads, from axis `start` to `end`, where one is stated.

    near: other tensors of the file, the nearest first, which may have the same sizes at the same axes; what
    a pass fuses keeps the name of one of them.
    """

    tensor: str
    start: int
    end: int | None
    near: Sequence[str]

    def of(self, shape: Shape) -> list[int]:
        """The sizes, where the tensor has this shape."""
        return list(shape[self.start : self.end])


@dataclass(frozen=True)
class ComputedTensor:
    """The part of a model that computes a tensor from results of Shape; `shapes`: of what these are."""

    model: ModelProto
    shapes: Mapping[str, ReadShape]

    def at(self, lists: Mapping[str, Sequence[int]]) -> Graph:
        """The graph that computes the tensor from these sizes, by input."""
        place = ModelBytes(self.model.SerializeToString(deterministic=True))
        values = {name: np.array(given, np.int64) for name, given in lists.items()}
        return import_model(place, values=values).graph


def sized_part(
    place: ModelPlace, name: str, values: Mapping[str, Given] | None = None, kept: KeptImports | None = None
) -> ComputedTensor | None:
    """The part of a model that computes a tensor from shapes of others, which data of a call decide.

    None where no node gives the tensor, where data of the model's inputs decide it, and for float64, which a
    graph does not have; 16-bit floats are widened. values: of inputs that are constants. kept: what imports
    of the file have in common.
    """
    model = with_values_bound(load(place, kept), values or {})
    producers = {result: node for node in model.nodes for result in node.output}
    deciding = _with_data(model)
    if name not in producers or name in deciding:
        return None
    neighbours = _neighbours(model, deciding)
    shapes: dict[str, ReadShape] = {}
    waiting, seen = [name], set[str]()
    while waiting:
        tensor = waiting.pop()
        if tensor in seen or tensor not in producers:
            continue
        seen.add(tensor)
        node = producers[tensor]
        if node.op_type == "Shape" and node.input[0] in deciding:
            shapes[tensor] = _read_shape(node, *neighbours)
        else:
            waiting += outer_names(node)
    if not shapes:
        return None
    if name in shapes:
        return ComputedTensor(_passed_on(model.proto, name), shapes)
    part = part_of(place, model, sorted(shapes), [name])
    kind = part.graph.output[0].type.tensor_type.elem_type
    if kind in HALVES:
        _widen(part)
    return ComputedTensor(part, shapes) if kind in HALVES or kind not in BORDER else None


def stating_tensors(
    place: ModelPlace, name: str, values: Mapping[str, Given] | None = None, kept: KeptImports | None = None
) -> list[str]:
    """Tensors of a file that may be a list of sizes: that of this name, or what its node reads.

    A list that an exported node reads is called NODE__WHAT, as ends of a Slice. values, kept: as above.
    """
    model = with_values_bound(load(place, kept), values or {})
    label = name.rpartition("__")[0]
    nodes = [node for index, node in enumerate(model.nodes) if label and shown_name(index, node) == label]
    return [name, *(read for node in nodes for read in node.input[1:] if read)]


def _with_data(model: ModelFile) -> set[str]:
    """Names of the tensors that data of a call decide, and not only their shapes."""
    found = {value.name for value in real_inputs(model.proto.graph)}
    for node in model.nodes:
        if node.op_type not in ("Shape", "Size") and not found.isdisjoint(outer_names(node)):
            found.update(node.output)
    return found


def _read_shape(node: NodeProto, before: _Neighbours, behind: _Neighbours) -> ReadShape:
    """The tensor that a node Shape reads; those in front of it are nearer than those behind it."""
    bounds = {attribute.name: attribute.i for attribute in node.attribute}
    near: dict[str, None] = {}
    for neighbours in (before, behind):
        ends = [node.input[0]]
        for _ in range(_STEPS):
            ends = [other for name in ends for other in neighbours.get(name, ())]
            near |= dict.fromkeys(ends)
    near.pop(node.input[0], None)
    return ReadShape(node.input[0], bounds.get("start", 0), bounds.get("end"), list(near))


def _neighbours(model: ModelFile, deciding: Set[str]) -> tuple[_Neighbours, _Neighbours]:
    """Tensors that the node of each one reads, and those that nodes compute from it."""
    before: dict[str, list[str]] = {}
    behind: dict[str, list[str]] = {}
    for node in model.nodes:
        read = [name for name in outer_names(node) if name in deciding]
        given = [name for name in node.output if name in deciding]
        before |= dict.fromkeys(given, read)
        for name in read:
            behind.setdefault(name, []).extend(given)
    return before, behind


def _passed_on(proto: ModelProto, name: str) -> ModelProto:
    """A model of one list of sizes, which is its output as well."""
    sizes = helper.make_tensor_value_info(name, TensorProto.INT64, [None])
    graph = helper.make_graph([], "sizes", [sizes], [sizes])
    return helper.make_model(graph, opset_imports=proto.opset_import, ir_version=proto.ir_version)


def _widen(part: ModelProto) -> None:
    """Let a part give its 16-bit floats as float32, as a graph has them."""
    output = part.graph.output[0]
    real = f"{output.name}.real"
    part.graph.node.append(helper.make_node("Cast", [output.name], [real], real, to=TensorProto.FLOAT))
    output.name = real
    output.type.tensor_type.elem_type = TensorProto.FLOAT


class ShapePart:
    """The part of a model that computes some tensors, to be imported for shapes of its inputs."""

    def __init__(
        self,
        place: ModelPlace,
        names: Sequence[str],
        kept: KeptImports | None = None,
        values: Mapping[str, Given] | None = None,
    ) -> None:
        """Raises UnsupportedError for a name that no tensor of the file has, ModelError for a bad file.

        names: of tensors, or of values that are their float32. kept: what imports of the file have in common.
        values: of inputs that are constants.
        """
        model = with_values_bound(load(place, kept), values or {})
        known = tensor_names(model)
        sources = {name: name if name in known else tensor_of(name) for name in names}
        tensors = list(dict.fromkeys(sources.values()))
        made = next((name for name, source in sources.items() if source not in known), None)
        if made is not None:
            raise UnsupportedError(
                f"its constant '{made}', which is none of the file's own, depends on sizes"
            )
        try:
            part = part_of(place, model, (), tensors)
        except UsageError as error:
            raise UnsupportedError(f"a constant of no node of the file depends on sizes: {error}") from error
        for value in part.graph.output:
            kind = value.type.tensor_type
            if kind.elem_type in HALVES:
                kind.elem_type = TensorProto.FLOAT  # what is computed of 16 bits is rounded at outputs alone
        self.places = {name: tensors.index(source) for name, source in sources.items()}
        """Places of the names among the outputs of its graph."""
        self._place = place
        self._content = part.SerializeToString(deterministic=True)
        self._opset = model.opset

    def tables(self, width: int) -> Iterator[Array]:
        """Constants of two axes that it computes from, whose rows have so many elements."""
        for tensor in ModelProto.FromString(self._content).graph.initializer:
            if len(tensor.dims) == 2 and tensor.dims[1] == width:
                yield to_array(tensor, None, halves=True)

    def graph(self, shapes: Mapping[str, Shape]) -> Graph:
        """The graph for these shapes of the model's inputs. Raises what `import_model` does."""
        proto = ModelProto.FromString(self._content)
        digest: Future[str] = Future()
        digest.set_result(hashlib.sha256(self._content).hexdigest())
        own = {value.name: shapes[value.name] for value in proto.graph.input if value.name in shapes}
        model = ModelFile(proto, tuple(proto.graph.node), self._opset, {}, digest)
        return import_file(self._place, model, own).graph

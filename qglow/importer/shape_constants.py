"""Tensors of a model that the shapes of its inputs decide."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future

from onnx import ModelProto, TensorProto, helper

from qglow.core.errors import UnsupportedError, UsageError
from qglow.core.kept_imports import KeptImports
from qglow.core.model_place import ModelPlace
from qglow.core.types import Array, Given, Shape
from qglow.graph.graph import Graph
from qglow.importer.binding import real_inputs
from qglow.importer.branches import with_values_bound
from qglow.importer.cutting import part_of, tensor_names
from qglow.importer.loading import ModelFile, load
from qglow.importer.model import import_file
from qglow.importer.operands import tensor_of
from qglow.importer.tensors import BORDER, HALVES, to_array
from qglow.interchange.nodes import outer_names


def missing_tensors(place: ModelPlace, names: Sequence[str], kept: KeptImports | None = None) -> list[str]:
    """Names that no tensor of a file has, and that are no float32 of one."""
    known = tensor_names(load(place, kept))
    return [name for name in names if name not in known and tensor_of(name) not in known]


def sized_part(
    place: ModelPlace, name: str, values: Mapping[str, Given] | None = None, kept: KeptImports | None = None
) -> ModelProto | None:
    """The part of a model that computes a tensor from results of Shape, which are its inputs.

    None where no node gives the tensor, where data of the model's inputs decide it, and for float64, which a
    graph does not have; 16-bit floats are widened. values: of inputs that are constants. kept: what imports
    of the file have in common.
    """
    model = with_values_bound(load(place, kept), values or {})
    producers = {result: node for node in model.nodes for result in node.output}
    sizes: set[str] = set()
    waiting, seen = [name], set[str]()
    while waiting:
        tensor = waiting.pop()
        node = producers.get(tensor)
        if node is not None and node.op_type == "Shape":
            sizes.add(tensor)
        elif node is not None and tensor not in seen:
            waiting += outer_names(node)
        seen.add(tensor)
    inputs = {value.name for value in real_inputs(model.proto.graph)}
    if name not in producers or not sizes or name in sizes or not inputs.isdisjoint(seen):
        return None
    part = part_of(place, model, sorted(sizes), [name])
    kind = part.graph.output[0].type.tensor_type.elem_type
    if kind in HALVES:
        _widen(part)
    return part if kind in HALVES or kind not in BORDER else None


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

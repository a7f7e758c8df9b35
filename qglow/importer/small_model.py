"""Small models of a few ONNX nodes, as onnxruntime is to execute them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import onnx
from onnx import ModelProto, NodeProto, TensorProto, helper

from qglow.core.types import ElementType, TensorType
from qglow.host.session import OWN_DOMAINS, tried_shapes
from qglow.importer.loading import first_line
from qglow.importer.node import CannotImport
from qglow.importer.tensors import BORDER, ELEMENTS
from qglow.interchange.inference import InferenceRefused, infer_types, require_harmless
from qglow.interchange.nodes import all_nodes, clear_stated_shapes, rename

IR_VERSION = 8
"""The IR version of the small models: the oldest that has every type here."""
NUMBERS = {element: number for number, element in (ELEMENTS | BORDER).items()}
"""ONNX's numbers of element types."""


class SmallModel:
    """A model of a few nodes, whose values are numbered: equal computations are equal bytes.

    states_shapes: whether shapes that bodies state of their inputs and outputs hold, as far as is known.
    """

    def __init__(self, nodes: Sequence[NodeProto], opsets: Sequence[onnx.OperatorSetIdProto]) -> None:
        self._model = ModelProto(ir_version=IR_VERSION)
        self._model.opset_import.extend(opsets)
        self._graph = self._model.graph
        self._graph.name = "opaque"
        self._names: dict[str, str] = {}
        self._nodes = nodes
        self.has_custom = _has_custom(nodes)
        self.states_shapes = True

    def input(self, name: str, kind: TensorType, width: int | None) -> None:
        """Add an input; reals of another width in the model, by ONNX's number, are converted first."""
        number = len(self._graph.input)
        given = self._names[name] = f"i{number}"
        shape = list(kind.shape)
        self._graph.input.append(helper.make_tensor_value_info(given, NUMBERS[kind.element], shape))
        if width is not None:
            self._names[name] = f"i{number}_cast"
            self._cast(given, self._names[name], width)

    def _cast(self, source: str, result: str, to: int) -> None:
        self._graph.node.append(helper.make_node("Cast", [source], [result], to=to))

    def bake(self, name: str, tensor: TensorProto) -> None:
        """Add a constant."""
        own = TensorProto()
        own.CopyFrom(tensor)
        own.name = self._names[name] = f"c{len(self._graph.initializer)}"
        own.ClearField("doc_string")
        self._graph.initializer.append(own)

    def untyped_output(self, name: str) -> None:
        """Add an output whose type is to be inferred."""
        self._finish_nodes()
        self._graph.output.append(onnx.ValueInfoProto(name=self._names[name]))

    def clear_outputs(self) -> None:
        """Remove all outputs."""
        del self._graph.output[:]

    def output(self, name: str, kind: TensorType, convert: bool) -> None:
        """Add an output; reals of another width are converted to float32."""
        own = self._names[name]
        if convert:
            own = f"w{len(self._graph.output)}"
            self._cast(self._names[name], own, TensorProto.FLOAT)
        self._graph.output.append(helper.make_tensor_value_info(own, NUMBERS[kind.element], list(kind.shape)))

    def output_of_any_shape(self, name: str, element: ElementType, shape: Sequence[int | None]) -> None:
        """Add an output of which not all dimensions are known; without any it has no shape at all."""
        own, number = self._names[name], NUMBERS[element]
        self._graph.output.append(helper.make_tensor_value_info(own, number, list(shape) or None))

    def tried(self, names: Sequence[str]) -> dict[str, tuple[int, ...]]:
        """Shapes of the outputs, by the model's names, where runs on different numbers give the same."""
        found = tried_shapes(self.serialized())
        return {name: shape for name, shape in zip(names, found, strict=True) if shape is not None}

    def inferred(self) -> dict[str, tuple[int, ...]]:
        """Static shapes of the outputs as onnx infers them, by the model's names."""
        mine = {own: name for name, own in self._names.items()}
        try:
            # Following data through a Range would list it, whatever memory that takes.
            follow = not any(node.op_type == "Range" for node in all_nodes(self._graph.node))
            model = infer_types(self._model, follow_data=follow)
        except InferenceRefused:
            return {}
        shapes: dict[str, tuple[int, ...]] = {}
        for value in model.graph.output:
            kind = value.type.tensor_type
            if kind.HasField("shape") and all(d.HasField("dim_value") for d in kind.shape.dim):
                shapes[mine[value.name]] = tuple(d.dim_value for d in kind.shape.dim)
        return shapes

    def require_fitting(self) -> None:
        """Raise CannotImport where onnxruntime may crash on the model instead of refusing it.

        That is so where operators of bodies do not take the shapes that they get, too. Shapes that bodies
        state of their own inputs and outputs, and that are not what they get, are removed.
        """
        has_bodies = len(list(all_nodes(self._graph.node))) > len(self._graph.node)
        try:
            if not has_bodies:
                require_harmless(self._model)
            elif not self._fits():
                clear_stated_shapes(self._graph.node)
                self.states_shapes = False
                infer_types(self._model, strict=True)
        except InferenceRefused as error:
            raise CannotImport(f"and its operators do not fit its inputs: {first_line(error)}") from error

    def _fits(self) -> bool:
        """Whether onnx infers the types of all nodes, also in bodies."""
        try:
            infer_types(self._model, strict=True)
        except InferenceRefused:
            return False
        return True

    def serialized(self) -> bytes:
        """The model as bytes, which are equal for equal models."""
        content: bytes = self._model.SerializeToString(deterministic=True)
        return content

    def _finish_nodes(self) -> None:
        """Add the nodes, with the names that inputs and constants have here."""
        numbers = itertools.count()
        nodes, self._nodes = self._nodes, ()
        for node in nodes:
            copy = NodeProto()
            copy.CopyFrom(node)
            rename(copy, self._names, lambda _: f"v{next(numbers)}")
            self._graph.node.append(copy)


def _has_custom(nodes: Sequence[NodeProto]) -> bool:
    """Whether an operator is of a library that the user named: such libraries seldom tell shapes."""
    return any(n.domain not in ("", "ai.onnx") and n.domain not in OWN_DOMAINS for n in all_nodes(nodes))

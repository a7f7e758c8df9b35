"""ONNX nodes that onnxruntime is to execute, as small models with a type for all that goes in and out.

A node whose result has no static type (a count that data decides, a sequence) cannot stand alone in a graph:
it is executed again together with every node that reads it, up to those whose results have one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

from qglow.core.errors import ModelError
from qglow.core.types import ElementType, TensorType
from qglow.graph.graph import Value
from qglow.graph.ops.opaque import Opaque
from qglow.host.session import encode, result_types
from qglow.host.tail import HostedTail
from qglow.importer.behind import members_behind
from qglow.importer.inference import Inferred
from qglow.importer.loading import ModelFile
from qglow.importer.node import CannotImport
from qglow.importer.small_model import NUMBERS, SmallModel
from qglow.importer.tensors import BORDER
from qglow.interchange.nodes import all_nodes, outer_inputs, outer_names, since_version, tensors

RANDOM = frozenset(
    {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
)
_SMALL = 1 << 10
"""Bytes of a constant that becomes part of the model: shapes are inferred from such constants."""
_LARGEST_EXTENT = 1 << 48
"""Product of the sizes of an array, those of 0 left out, beyond which numpy has none."""
_NAMED = 4
"""Operators that the name of a group lists."""


@dataclass(frozen=True)
class OpaqueGroup:
    """Nodes that run as one: the operator, its operands, and names and types of its results."""

    operator: Opaque
    operands: tuple[Value, ...]
    results: Mapping[str, TensorType]


@dataclass(frozen=True)
class OpaqueTail:
    """Nodes behind the graph, whose results have a shape that data decides.

    kinds: their operators, for people. members: their positions. model: them as text. operands: values of
    the graph that they read. results: names of the model's outputs that they give.
    """

    kinds: str
    members: tuple[int, ...]
    model: str
    operands: tuple[Value, ...]
    results: tuple[str, ...]

    def hosted(self, nodes: Sequence[str], outputs: Sequence[str]) -> HostedTail:
        """The tail of a graph, whose values have their names now. nodes: names of the nodes.

        outputs: of the whole model.
        """
        types = tuple(str(value.type) for value in self.operands)
        names = tuple(value.name for value in self.operands)
        return HostedTail(self.kinds, tuple(nodes), self.model, names, types, self.results, tuple(outputs))


class OpaqueNodes:
    """Opaque nodes of one model.

    nodes: all nodes in the order of their import, which grows. values: gives the graph's value of a name; it
    raises what an import function does. reals: gives 16-bit reals as float32. original: the tensor of a
    constant that the graph cannot hold, else None. inferred: what onnx infers for the whole model. used:
    whether anything reads a value.
    """

    def __init__(
        self,
        model: ModelFile,
        nodes: Sequence[NodeProto],
        values: Callable[[str], Value | None],
        reals: Callable[[Value], Value],
        original: Callable[[str], TensorProto | None],
        inferred: Callable[[], Inferred],
        used: Callable[[str], bool],
    ) -> None:
        self._model = model
        self._nodes = nodes
        self._values = values
        self._reals = reals
        self._original = original
        self._inferred = inferred
        self._used = used
        self._pending: dict[str, tuple[int, ...]] = {}
        self._elements: dict[str, int] = {}
        self._opsets = {entry.domain: entry.version for entry in model.proto.opset_import}

    def checkpoint(self) -> Callable[[], None]:
        """A function that takes back what is noted from now on."""
        pending, elements = dict(self._pending), dict(self._elements)

        def restore() -> None:
            self._pending, self._elements = pending, elements

        return restore

    def is_pending(self, name: str) -> bool:
        """Whether a value has no static type."""
        return name in self._pending

    def reads_pending(self, proto: NodeProto) -> bool:
        """Whether a node reads a value without a static type, perhaps in a body of its own."""
        return any(name in self._pending for name in outer_names(proto))

    def group(self, index: int) -> OpaqueGroup | None:
        """The node at this position with those that it needs; None if none of its results has a static type.

        Raises CannotImport where onnxruntime cannot execute them.
        """
        proto = self._nodes[index]
        wanted = [name for name in proto.output if name and self._used(name)]
        if not wanted:
            return None
        members = {index}
        for name in outer_names(proto):
            members.update(self._pending.get(name, ()))
        nodes = [self._nodes[member] for member in sorted(members)]
        small, operands = self._assembled(nodes)
        kinds = self._result_types(small, index, wanted)
        for name in wanted:
            if name not in kinds:
                self._pending[name] = tuple(sorted(members))
        if not kinds:
            return None
        for name, kind in kinds.items():
            small.output(name, kind, name in self._elements)
        operator = Opaque(
            _kinds(nodes),
            encode(small.serialized()),
            tuple(str(value.type) for value in operands),
            tuple(str(kind) for kind in kinds.values()),
        )
        return OpaqueGroup(operator, tuple(operands), kinds)

    def tail(
        self,
        names: Sequence[str],
        others: Sequence[str] = (),
        may_move: Callable[[int, bool], bool] | None = None,
    ) -> OpaqueTail:
        """The nodes that compute outputs of the model without a static type, all together.

        others: the model's other outputs. may_move: as for `members_behind`. Raises CannotImport where
        onnxruntime cannot execute them, or one is no tensor.
        """
        if may_move is not None:
            # Where one of these nodes is for qglow alone, all that may stay in the graph does.
            with suppress(CannotImport):
                return self._tail(
                    names, members_behind(self._nodes, names, others, self.is_pending, may_move)
                )
        return self._tail(names, sorted({member for name in names for member in self._pending[name]}))

    def _tail(self, names: Sequence[str], members: Sequence[int]) -> OpaqueTail:
        nodes = [self._nodes[member] for member in members]
        small, operands = self._assembled(nodes, largest=None)
        found = _types_in_onnxruntime(small, names)
        small.clear_outputs()
        for name, (element, shape) in zip(names, found, strict=True):
            if element is None:
                raise CannotImport(
                    f"'{name}' is no tensor of numbers; end the model before it with qglow cut"
                )
            small.output_of_any_shape(name, element, shape)
        model = encode(small.serialized())
        return OpaqueTail(_kinds(nodes), tuple(members), model, tuple(operands), tuple(names))

    def _assembled(
        self, nodes: Sequence[NodeProto], largest: int | None = _SMALL
    ) -> tuple[SmallModel, list[Value]]:
        """A model of these nodes without outputs, and what goes into it.

        largest: bytes of a constant that becomes part of it; None for any.
        """
        _require_executable(nodes)
        small = SmallModel(nodes, self._opset(nodes))
        operands = []
        for name in outer_inputs(nodes):
            original = self._original(name)
            if original is not None:
                small.bake(name, original)
                continue
            value = self._values(name)
            if value is None:
                raise CannotImport(f"its input '{name}' is missing")
            if value.data is not None and (largest is None or value.data.nbytes <= largest):
                small.bake(name, numpy_helper.from_array(value.data))
                continue
            read = self._reals(value) if value.type.is_half else value
            self._add_input(small, name, value, read)
            operands.append(read)
        return small, operands

    def _opset(self, nodes: Sequence[NodeProto]) -> list[onnx.OperatorSetIdProto]:
        """The oldest operator set in which all these nodes mean the same as in the model's, and others."""
        domains = {node.domain for node in all_nodes(nodes)}
        entries = [helper.make_opsetid(d, self._opsets.get(d, 1)) for d in sorted(domains - {"", "ai.onnx"})]
        oldest = max((since_version(n, self._model.opset) for n in all_nodes(nodes)), default=1)
        return [helper.make_opsetid("", max(oldest, 7)), *entries]

    def _add_input(self, small: SmallModel, name: str, value: Value, read: Value) -> None:
        """Add an input for a value of the model, which it is given in the form of `read`."""
        if value.type.is_quantized:
            raise CannotImport(
                f"'{name}' holds quantized integers, which only operators of quantization read"
            )
        width = NUMBERS[value.type.element] if read is not value else self._other_width(name, value)
        small.input(name, read.type, width)

    def _other_width(self, name: str, value: Value) -> int | None:
        """ONNX's number of the type that reals have in the model where they are float32 in the graph."""
        if value.is_constant or value.type.element is not ElementType.FLOAT:
            return None
        number = self._elements.get(name, self._inferred().elements.get(name))
        return number if number in BORDER else None

    def _result_types(self, small: SmallModel, index: int, wanted: Sequence[str]) -> dict[str, TensorType]:
        """Types of results that are static; reals of other widths are float32 and noted."""
        by_runtime = _types_in_onnxruntime(small, wanted)
        stated = _carried_shapes(self._nodes[index]) if small.states_shapes else {}
        by_onnx = stated | small.inferred()
        if any(element and not shape for element, shape in by_runtime) and small.has_custom:
            by_onnx |= small.tried(wanted)
        small.clear_outputs()
        kinds: dict[str, TensorType] = {}
        for name, (element, shape) in zip(wanted, by_runtime, strict=True):
            if element is not None and element in BORDER.values():
                self._elements[name], element = NUMBERS[element], ElementType.FLOAT
            if element is None:
                continue
            static = self._static_shape(name, shape, by_onnx.get(name))
            if static is not None and _is_absurd(static):
                raise CannotImport(f"and onnxruntime says that '{name}' has the shape {list(static)}")
            if static is not None:
                kinds[name] = TensorType(element, static)
        return kinds

    def _static_shape(
        self, name: str, by_runtime: tuple[int | None, ...], by_onnx: tuple[int, ...] | None
    ) -> tuple[int, ...] | None:
        """The shape of a result as onnxruntime, onnx or the whole model have it; None if it is not static.

        onnxruntime has no axes for a scalar and for a value of which it knows nothing.
        """
        static = tuple(size for size in by_runtime if size is not None)
        if static and len(static) == len(by_runtime):
            return static
        if by_onnx is not None:
            return by_onnx
        known = self._inferred().types.get(name)
        if known is None or (by_runtime and len(known.shape) != len(by_runtime)):
            return None
        return known.shape


def _is_absurd(shape: Sequence[int]) -> bool:
    """Whether no array has such a shape, even one without elements."""
    return min(shape, default=0) < 0 or math.prod(max(size, 1) for size in shape) > _LARGEST_EXTENT


def _types_in_onnxruntime(
    small: SmallModel, names: Sequence[str]
) -> Sequence[tuple[ElementType | None, tuple[int | None, ...]]]:
    """Types of results as onnxruntime infers them, which are outputs of the model from now on.

    Raises CannotImport where it refuses the model.
    """
    for name in names:
        small.untyped_output(name)
    small.require_fitting()
    try:
        return result_types(small.serialized())
    except ModelError as error:
        raise CannotImport(f"and {error}") from error


def _carried_shapes(node: NodeProto) -> dict[str, tuple[int, ...]]:
    """Static shapes that the body of a loop states for what it hands from round to round, by result.

    onnx leaves them open, because a body may change shapes.
    """
    bodies = [a.g for a in node.attribute if node.op_type == "Loop" and a.name == "body"]
    shapes = {}
    for body in bodies:
        for name, value in zip(node.output, list(body.output)[1 : len(node.input) - 1], strict=False):
            dims = value.type.tensor_type.shape.dim
            if value.type.tensor_type.HasField("shape") and all(d.HasField("dim_value") for d in dims):
                shapes[name] = tuple(d.dim_value for d in dims)
    return shapes


def _require_executable(nodes: Sequence[NodeProto]) -> None:
    for node in all_nodes(nodes):
        if node.op_type in RANDOM and node.domain in ("", "ai.onnx"):
            raise CannotImport("random numbers are not supported: results could not be compared")
        if node.op_type == "Dropout" and len(node.input) > 2 and node.input[2]:
            raise CannotImport("training mode draws random numbers; export the model for inference")
        for attribute in node.attribute:
            if any(t.data_location == TensorProto.EXTERNAL for t in tensors(attribute)):
                raise CannotImport("a constant of its body is in another file; store it in the model")


def _kinds(nodes: Sequence[NodeProto]) -> str:
    """Operators of nodes, for people."""
    domains = [f"{n.domain}." if n.domain not in ("", "ai.onnx") else "" for n in nodes]
    found = list(dict.fromkeys(f"{d}{n.op_type}" for d, n in zip(domains, nodes, strict=True)))
    return ", ".join(found[:_NAMED]) + (", ..." if len(found) > _NAMED else "")

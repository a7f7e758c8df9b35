"""Assembling an ONNX model: unique names, initializers, nodes, and the operator set that fits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from qglow.core.errors import InternalError
from qglow.core.types import Array, ElementType, TensorType
from qglow.core.version import __version__
from qglow.exporter.apart import DataApart
from qglow.interchange.nodes import all_nodes, outer_names

IR_VERSION = 10
# Q and DQ of opset 21 and later need IR version 10, which onnxruntime reads from 1.18 on.
OLDEST_OPSET = 21
_LARGE_DATA = 1 << 16
"""Bytes of a tensor's data above which the checker does without them."""

ONNX_TYPES: dict[ElementType, int] = {
    ElementType.FLOAT: onnx.TensorProto.FLOAT,
    ElementType.DOUBLE: onnx.TensorProto.DOUBLE,
    ElementType.FLOAT16: onnx.TensorProto.FLOAT16,
    ElementType.BFLOAT16: onnx.TensorProto.BFLOAT16,
    ElementType.INT8: onnx.TensorProto.INT8,
    ElementType.INT16: onnx.TensorProto.INT16,
    ElementType.INT32: onnx.TensorProto.INT32,
    ElementType.INT64: onnx.TensorProto.INT64,
    ElementType.UINT8: onnx.TensorProto.UINT8,
    ElementType.UINT16: onnx.TensorProto.UINT16,
    ElementType.UINT32: onnx.TensorProto.UINT32,
    ElementType.UINT64: onnx.TensorProto.UINT64,
    ElementType.BOOL: onnx.TensorProto.BOOL,
}


class ProtoBuilder:
    """Collects the parts of one model. `reserved` are names that only their owners may use.

    apart: keeps the data of large constants; None leaves them in the model.
    """

    def __init__(self, reserved: Iterable[str], apart: DataApart | None = None) -> None:
        self._apart = apart
        self._taken = set(reserved)
        self._node_names: set[str] = set()
        self._nodes: list[onnx.NodeProto] = []
        self._initializers: dict[str, onnx.TensorProto] = {}
        self._functions: dict[tuple[str, str], onnx.FunctionProto] = {}
        self._versions: dict[str, int] = {}

    def fresh(self, wanted: str) -> str:
        """`wanted`, or `wanted` with a number, whichever no tensor has; taken from then on."""
        return unique(wanted, self._taken)

    def node(self, op_type: str, name: str, inputs: Sequence[str], output: str, **attributes: Any) -> str:
        """Add a node with one output, whose name is returned. Trailing absent inputs are dropped."""
        self.node_of_several(op_type, name, inputs, [output], **attributes)
        return output

    def node_of_several(
        self, op_type: str, name: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any
    ) -> None:
        """Add a node with any number of outputs. Trailing absent inputs are dropped."""
        given = list(inputs)
        while given and not given[-1]:
            given.pop()
        label = unique(name, self._node_names)
        self._nodes.append(helper.make_node(op_type, given, list(outputs), label, **attributes))

    def initializer(self, name: str, data: Array) -> str:
        """Add a constant under exactly this name, once."""
        if name not in self._initializers:
            array = np.asarray(data, order="C")
            keep = numpy_helper.from_array if self._apart is None else self._apart.initializer
            self._initializers[name] = keep(array, name)
        return name

    def half_initializer(self, name: str, data: Array, element: ElementType) -> str:
        """Add a constant of reals of 16 bits, as numerics.half stores them, under exactly this name, once."""
        if name not in self._initializers:
            self._initializers[name] = half_tensor(name, data, element)
        return name

    def function(self, function: onnx.FunctionProto) -> None:
        """Add a function of the model, once."""
        self._functions.setdefault((function.domain, function.name), function)

    def tensor(self, wanted: str, tensor: onnx.TensorProto) -> str:
        """Add a constant as it is under a fresh name."""
        name = self.fresh(wanted)
        if self._apart is not None:
            self._initializers[name] = self._apart.tensor(tensor, name)
            return name
        copy = onnx.TensorProto()
        copy.CopyFrom(tensor)
        copy.name = name
        self._initializers[name] = copy
        return name

    def append(self, node: onnx.NodeProto, name: str) -> None:
        """Add a node as it is, but for its name."""
        node.name = unique(name, self._node_names)
        self._nodes.append(node)

    def version(self, domain: str, version: int) -> None:
        """State the operator set of another domain that nodes are of; the newest one stays."""
        self._versions[domain] = max(version, self._versions.get(domain, 1))

    def inside(self) -> ProtoBuilder:
        """A builder for the body of a node: its names and constants are those of this one."""
        inner = ProtoBuilder((), self._apart)
        inner._taken, inner._node_names = self._taken, self._node_names
        inner._initializers, inner._functions = self._initializers, self._functions
        inner._versions = self._versions
        return inner

    def body(
        self,
        name: str,
        inputs: Sequence[tuple[str, TensorType]],
        outputs: Sequence[tuple[str, TensorType]],
        *,
        sized: bool = True,
    ) -> onnx.GraphProto:
        """The nodes of a builder that is `inside` another one, as a body. sized: whether it states sizes."""
        taken, given = ([_value_info(n, t, False) for n, t in side] for side in (inputs, outputs))
        for value in () if sized else (*taken, *given):
            for dimension in value.type.tensor_type.shape.dim:
                dimension.Clear()
        return helper.make_graph(self._nodes, name, taken, given)

    def constant(self, wanted: str, data: Array) -> str:
        """Add a constant under a fresh name."""
        return self.initializer(self.fresh(wanted), data)

    def finish(
        self,
        name: str,
        inputs: Sequence[tuple[str, TensorType]],
        outputs: Sequence[tuple[str, TensorType | onnx.TypeProto]],
        *,
        unsigned: bool = False,
    ) -> onnx.ModelProto:
        """The checked model, without constants that nothing reads.

        outputs: names and types, as ONNX has them where shapes are not known.
        unsigned: quantized inputs and outputs hold uint8, not int8.

        Raises InternalError if onnx finds it invalid.
        """
        read = {n for node in self._nodes for n in outer_names(node)} | {n for n, _ in outputs}
        constants = [tensor for key, tensor in self._initializers.items() if key in read]
        graph = helper.make_graph(
            self._nodes,
            name,
            [_value_info(n, t, unsigned) for n, t in inputs],
            [_value_info(n, t, unsigned) for n, t in outputs],
        )
        nodes = list(all_nodes(self._nodes))
        own = {n.op_type for n in nodes if not n.domain}
        others = sorted({n.domain for n in nodes if n.domain})
        opsets = [helper.make_opsetid("", _lowest_opset(own))]
        opsets += [helper.make_opsetid(domain, self._versions.get(domain, 1)) for domain in others]
        model = helper.make_model(
            graph,
            opset_imports=opsets,
            functions=[self._functions[key] for key in sorted(self._functions)],
            ir_version=IR_VERSION,
            producer_name="qglow",
            producer_version=__version__,
        )
        return checked(model, constants)


def half_tensor(name: str, stored: Array, element: ElementType) -> onnx.TensorProto:
    """A constant of reals of 16 bits, as numerics.half stores them."""
    raw = np.ascontiguousarray(stored).view(np.uint16).astype("<u2").tobytes()
    return helper.make_tensor(name, ONNX_TYPES[element], stored.shape, raw, raw=True)


def checked(model: onnx.ModelProto, tensors: Sequence[onnx.TensorProto]) -> onnx.ModelProto:
    """The model with these initializers. Raises InternalError if onnx finds it invalid."""
    stored = model.graph.initializer
    del stored[:]
    stored.extend(map(_without_data, tensors))
    open_outputs = [v for v in model.graph.output if not v.type.tensor_type.HasField("shape")]
    for value in open_outputs:
        value.type.tensor_type.shape.SetInParent()  # the checker asks for one, runtimes do not
    try:
        onnx.checker.check_model(model)
    except onnx.checker.ValidationError as error:
        raise InternalError(f"the exported model of {model.graph.name} is not valid: {error}") from error
    for value in open_outputs:
        value.type.tensor_type.ClearField("shape")
    del stored[:]
    stored.extend(tensors)
    return model


def unique(wanted: str, taken: set[str]) -> str:
    """`wanted`, or `wanted` with a number, whichever is not taken; added to `taken`."""
    name, count = wanted, 0
    while name in taken:
        count += 1
        name = f"{wanted}__{count}"
    taken.add(name)
    return name


def _without_data(tensor: onnx.TensorProto) -> onnx.TensorProto:
    """Replace a large tensor by an empty one, because the checker gets the whole model as one string."""
    if tensor.ByteSize() <= _LARGE_DATA and tensor.data_location != onnx.TensorProto.EXTERNAL:
        return tensor
    return onnx.TensorProto(name=tensor.name, data_type=tensor.data_type, dims=[0], raw_data=b"")


def _value_info(name: str, kind: TensorType | onnx.TypeProto, unsigned: bool) -> onnx.ValueInfoProto:
    if isinstance(kind, onnx.TypeProto):
        return onnx.ValueInfoProto(name=name, type=kind)
    element = (
        onnx.TensorProto.UINT8
        if (unsigned or kind.unsigned) and kind.is_quantized
        else ONNX_TYPES[kind.element]
    )
    return helper.make_tensor_value_info(name, element, list(kind.shape))


def _lowest_opset(op_types: set[str]) -> int:
    for opset in range(OLDEST_OPSET, onnx.defs.onnx_opset_version() + 1):
        if all(onnx.defs.has(op_type, opset, "") for op_type in op_types):
            return opset
    raise InternalError(f"no operator set has all of {sorted(op_types)}")

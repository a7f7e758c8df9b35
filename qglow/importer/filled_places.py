"""Places of a mask that become one number: `hidden[~mask] = 0`.

Exporters write it as ScatterND at the places that NonZero finds, whose number data decides. It is what Where
gives of the mask, the number and the data. https://onnx.ai/onnx/operators/ ScatterND, NonZero, Where
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from math import prod

import onnx
from onnx import ModelProto, NodeProto, TensorProto, TensorShapeProto, helper, numpy_helper

from qglow.interchange.nodes import outer_names

_AXES_ARE_INPUTS = 13
"""Operator set from which on the axes of Unsqueeze are an input."""
_SAME_SHAPE = frozenset({"Not", "Cast", "Identity"})
Extent = int | str


def with_filled_places(proto: ModelProto, nodes: Sequence[NodeProto], opset: int) -> ModelProto:
    """The model with Where for what fills the places of a mask; the model itself where it has none.

    nodes: the model's, in topological order.
    """
    if not any(node.op_type == "NonZero" for node in nodes):
        return proto
    search = _Search(proto, nodes, opset)
    found = {node.output[0]: made for node in nodes if (made := search.replacement(node)) is not None}
    if not found:
        return proto
    changed = ModelProto()
    changed.CopyFrom(proto)
    kept = [part for node in nodes for part in found.get(next(iter(node.output), ""), [node])]
    replaced = [node for node in nodes if node.output and node.output[0] in found]
    del changed.graph.node[:]
    changed.graph.node.extend(_alive(kept, replaced, [value.name for value in proto.graph.output]))
    return changed


class _Search:
    """Search for filled places among the nodes of a model."""

    def __init__(self, proto: ModelProto, nodes: Sequence[NodeProto], opset: int) -> None:
        self._proto = proto
        self._opset = opset
        self._producers = {name: node for node in nodes for name in node.output}
        self._constants = {tensor.name: tensor for tensor in proto.graph.initializer}

    def replacement(self, node: NodeProto) -> list[NodeProto] | None:
        """Nodes in place of one that fills the places of a mask; None for others."""
        if node.op_type != "ScatterND" or node.domain or _reduces(node):
            return None
        data, indices, updates = node.input
        turned = self._made(indices, "Transpose")
        places = None if turned is None or not _is_turned(turned) else self._made(turned.input[0], "NonZero")
        number = self._number(updates)
        if places is None or number is None:
            return None
        mask = self._mask(places.input[0], data)
        if mask is None:
            return None
        source, missing = mask
        name = node.output[0]
        truth, along, filled = (f"{name}.{part}" for part in ("mask", "along", "number"))
        made = [helper.make_node("Cast", [source], [truth], f"{truth}.cast", to=TensorProto.BOOL)]
        if missing:
            made += self._unsqueezed(truth, along, missing)
        made.append(helper.make_node("Constant", [], [filled], value=number))
        made.append(helper.make_node("Where", [along if missing else truth, filled, data], [name], node.name))
        return made

    def _unsqueezed(self, value: str, result: str, axes: range) -> list[NodeProto]:
        """Nodes that add axes to a value."""
        if self._opset < _AXES_ARE_INPUTS:
            return [helper.make_node("Unsqueeze", [value], [result], f"{result}.expand", axes=list(axes))]
        tensor = helper.make_tensor(f"{result}.axes", TensorProto.INT64, [len(axes)], list(axes))
        return [
            helper.make_node("Constant", [], [tensor.name], value=tensor),
            helper.make_node("Unsqueeze", [value, tensor.name], [result], f"{result}.expand"),
        ]

    def _mask(self, mask: str, data: str) -> tuple[str, range] | None:
        """A mask that is spread to the data's shape, and the axes that it lacks; None for others."""
        node, origin = self._producers.get(mask), mask
        while node is not None and node.op_type in _SAME_SHAPE:
            origin = node.input[0]
            node = self._producers.get(origin)
        if node is not None and node.op_type == "Expand" and self._is_shape(node.input[1], data):
            return (node.input[0] if origin == mask else mask), range(0)
        own, whole = self._shapes.get(mask), self._shapes.get(data)
        if not own or not whole or None in own or own != whole[: len(own)]:
            return None
        return mask, range(len(own), len(whole))

    def _is_shape(self, name: str, data: str) -> bool:
        """Whether a value is the whole shape of this one."""
        node = self._made(name, "Shape")
        return (
            node is not None
            and node.input[0] == data
            and not any(a.i or a.name == "end" for a in node.attribute)
        )

    @cached_property
    def _shapes(self) -> dict[str, tuple[Extent | None, ...]]:
        """Extents of values, numbers or names; None for those that nothing tells."""
        try:
            inferred = onnx.shape_inference.infer_shapes(self._proto, data_prop=True)
        except (onnx.shape_inference.InferenceError, ValueError, RuntimeError):
            return {}
        graph = inferred.graph
        known = {
            value.name: tuple(_extent(dimension) for dimension in value.type.tensor_type.shape.dim)
            for value in (*graph.input, *graph.value_info)
            if value.type.tensor_type.HasField("shape")
        }
        return known | {name: tuple(tensor.dims) for name, tensor in self._constants.items()}

    def _number(self, name: str) -> TensorProto | None:
        """The number that is every element of a value; None where it is not told."""
        node = self._producers.get(name)
        while node is not None and node.op_type in ("Expand", "Reshape", "Identity", "Unsqueeze"):
            name = node.input[0]
            node = self._producers.get(name)
        tensor = self._constants.get(name)
        if node is not None and node.op_type in ("Constant", "ConstantOfShape"):
            tensor = next((a.t for a in node.attribute if a.name == "value"), None)
            if tensor is None and node.op_type == "ConstantOfShape":
                return helper.make_tensor("zero", TensorProto.FLOAT, [], [0.0])
        is_one = tensor is not None and prod(tensor.dims) == 1 and not tensor.external_data
        if tensor is None or not is_one:
            return None
        return numpy_helper.from_array(numpy_helper.to_array(tensor).reshape(()), "number")

    def _made(self, name: str, kind: str) -> NodeProto | None:
        node = self._producers.get(name)
        return node if node is not None and node.op_type == kind else None


def _reduces(node: NodeProto) -> bool:
    return any(each.name == "reduction" and each.s != b"none" for each in node.attribute)


def _is_turned(node: NodeProto) -> bool:
    """Whether a Transpose of two axes exchanges them."""
    return next((list(each.ints) == [1, 0] for each in node.attribute if each.name == "perm"), True)


def _extent(dimension: TensorShapeProto.Dimension) -> Extent | None:
    return dimension.dim_value if dimension.HasField("dim_value") else dimension.dim_param or None


def _alive(
    nodes: Sequence[NodeProto], replaced: Sequence[NodeProto], outputs: Sequence[str]
) -> list[NodeProto]:
    """Nodes without those that only the places and updates of replaced ones were computed for."""
    reads = Counter([*outputs, *(name for node in nodes for name in outer_names(node))])
    unread = {name for node in replaced for name in node.input[1:]}
    kept = []
    for node in reversed(nodes):
        if unread.intersection(node.output) and not any(reads[name] for name in node.output):
            read = outer_names(node)
            reads.subtract(read)
            unread.update(read)
        else:
            kept.append(node)
    return kept[::-1]

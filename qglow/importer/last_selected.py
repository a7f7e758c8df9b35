"""The last selected row of each sample: `hidden[mask].view(batch, -1, width)[:, -1]`.

Classifiers on encoder-decoders (BART, T5) score the state of the last token that ends a text. Exporters write
it by NonZero, whose size data decides. Where every sample has as many selected rows, which the model needs,
it is the row at the last place of the mask that holds. https://onnx.ai/onnx/operators/ NonZero, GatherND
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from qglow.core.types import Array
from qglow.interchange.nodes import integer_attribute, outer_names

OLDEST = 12
"""Operator set from which on GatherND has batches, and a Constant may be a number."""


def with_last_selected(proto: ModelProto, nodes: Sequence[NodeProto], opset: int) -> ModelProto:
    """The model with its last selected rows gathered; the model itself where it has none.

    nodes: the model's, in topological order.
    """
    if opset < OLDEST or not any(node.op_type == "NonZero" for node in nodes):
        return proto
    search = _Search(proto, nodes)
    found = {node.output[0]: made for node in nodes if (made := search.replacement(node)) is not None}
    if not found:
        return proto
    changed = ModelProto()
    changed.CopyFrom(proto)
    kept = [part for node in nodes for part in found.get(next(iter(node.output), ""), [node])]
    del changed.graph.node[:]
    changed.graph.node.extend(_alive(kept, [value.name for value in proto.graph.output]))
    return changed


class _Search:
    """Search for last selected rows among the nodes of a model."""

    def __init__(self, proto: ModelProto, nodes: Sequence[NodeProto]) -> None:
        self._producers = {name: node for node in nodes for name in node.output}
        self._constants = {tensor.name: tensor for tensor in proto.graph.initializer}

    def replacement(self, node: NodeProto) -> list[NodeProto] | None:
        """Nodes in place of one that takes the last selected row of each sample; None for others."""
        if not _is(node, "Gather", axis=1) or not self._holds(node.input[1], -1):
            return None
        view = self._made(node.input[0], "Reshape")
        rows = None if view is None else self._made(view.input[0], "GatherND")
        if view is None or rows is None or integer_attribute(rows, "batch_dims", 0):
            return None
        turned = self._made(rows.input[1], "Transpose")
        places = None if turned is None else self._made(turned.input[0], "NonZero")
        sizes = self._made(view.input[1], "Concat")
        if places is None or sizes is None or len(sizes.input) != 3 or not self._holds(sizes.input[1], -1):
            return None
        data, mask = rows.input[0], places.input[0]
        if not self._is_batch(sizes.input[0], {data, *self._masked(mask)}):
            return None
        name = node.output[0]
        number, axis, total, place, row, rows_of = (
            f"{name}.{part}" for part in ("selected", "axis", "total", "last", "row", "rows")
        )
        return [
            helper.make_node("Cast", [mask], [number], f"{name}.select", to=TensorProto.INT32),
            # Running sums are largest from the last place on.
            helper.make_node("Constant", [], [axis], value_int=1),
            helper.make_node("CumSum", [number, axis], [total], f"{name}.count"),
            helper.make_node("ArgMax", [total], [place], f"{name}.find", axis=1, keepdims=1),
            helper.make_node("GatherND", [data, place], [row], f"{name}.gather", batch_dims=1),
            helper.make_node("Reshape", [row, view.input[1]], [rows_of], f"{name}.view"),
            helper.make_node("Gather", [rows_of, node.input[1]], [name], node.name, axis=1),
        ]

    def _made(self, name: str, kind: str) -> NodeProto | None:
        node = self._producers.get(name)
        return node if node is not None and node.op_type == kind else None

    def _masked(self, mask: str) -> set[str]:
        """Names of the mask, and of what is compared for it."""
        names = {mask}
        node = self._producers.get(mask)
        while node is not None and node.op_type in ("Cast", "Equal"):
            names.update(node.input)
            node = self._producers.get(node.input[0])
        return names

    def _is_batch(self, name: str, values: set[str]) -> bool:
        """Whether a value is the first extent of one of these, alone in a list."""
        node = self._producers.get(name)
        if node is not None and node.op_type == "Unsqueeze":
            node = self._producers.get(node.input[0])
        if node is not None and _is(node, "Gather", axis=0) and self._holds(node.input[1], 0):
            shape = self._made(node.input[0], "Shape")
            return shape is not None and shape.input[0] in values and not integer_attribute(shape, "start", 0)
        if node is None or node.op_type != "Shape" or node.input[0] not in values:
            return False
        return (integer_attribute(node, "start", 0), integer_attribute(node, "end", None)) == (0, 1)

    def _holds(self, name: str, number: int) -> bool:
        """Whether a value is this number, as a constant of one element."""
        tensor, node = self._constants.get(name), self._made(name, "Constant")
        if tensor is None and node is not None:
            tensor = next((a.t for a in node.attribute if a.name == "value"), None)
        if tensor is None or tensor.data_type != TensorProto.INT64 or np.prod(tensor.dims) != 1:
            return False
        data: Array = numpy_helper.to_array(tensor)
        return int(data.reshape(-1)[0]) == number


def _is(node: NodeProto, kind: str, axis: int) -> bool:
    return node.op_type == kind and integer_attribute(node, "axis", 0) == axis


def _alive(nodes: Sequence[NodeProto], outputs: Sequence[str]) -> list[NodeProto]:
    """Nodes without those that select rows which nothing reads any more."""
    kept, reads = [], Counter([*outputs, *(name for node in nodes for name in outer_names(node))])
    for node in reversed(nodes):
        selects = node.op_type in ("NonZero", "Transpose", "GatherND", "Reshape")
        if selects and not any(reads[name] for name in node.output):
            reads.subtract(outer_names(node))
        else:
            kept.append(node)
    return kept[::-1]

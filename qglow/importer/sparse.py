"""Sparse constants of a file, made dense: sparse initializers, and Constant nodes with a sparse value.

https://onnx.ai/onnx/api/classes.html#sparsetensorproto
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import prod

import numpy as np
from onnx import (
    AttributeProto,
    GraphProto,
    ModelProto,
    NodeProto,
    SparseTensorProto,
    TensorProto,
    numpy_helper,
)

from qglow.core.errors import ModelError
from qglow.core.memory import require_more_memory
from qglow.core.types import Array
from qglow.interchange.nodes import all_nodes, bodies


def make_dense(proto: ModelProto) -> None:
    """Replace all sparse constants of a model, those of bodies and functions too.

    Raises ModelError for one whose indices or values are no sparse tensor's.
    """
    nodes = list(all_nodes((*proto.graph.node, *(n for each in proto.functions for n in each.node))))
    for graph in _graphs(proto.graph, nodes):
        for sparse in graph.sparse_initializer:
            name = sparse.values.name
            graph.initializer.append(_dense(sparse, f"sparse initializer '{name}'", name))
        del graph.sparse_initializer[:]
    for node in nodes:
        for attribute in node.attribute:
            if attribute.name == "sparse_value" and node.op_type == "Constant":
                tensor = _dense(attribute.sparse_tensor, f"sparse constant '{next(iter(node.output), '')}'")
                attribute.CopyFrom(AttributeProto(name="value", type=AttributeProto.TENSOR, t=tensor))


def _graphs(graph: GraphProto, nodes: Iterable[NodeProto]) -> Iterator[GraphProto]:
    yield graph
    for node in nodes:
        for attribute in node.attribute:
            yield from bodies(attribute)


def _dense(sparse: SparseTensorProto, what: str, name: str = "") -> TensorProto:
    shape = tuple(sparse.dims)
    values, indices = (_array(tensor, what) for tensor in (sparse.values, sparse.indices))
    forms = (values.shape, (values.size, len(shape)))
    if min(shape, default=-1) < 0 or values.ndim != 1 or indices.shape not in forms:
        raise ModelError(f"{what} is damaged: {_forms(shape, values, indices)}; export the model again")
    require_more_memory(prod(shape) * values.itemsize, what)
    limits = shape if indices.ndim == 2 else (prod(shape),)
    places = indices.reshape(-1, len(limits))
    if indices.dtype != np.int64 or not ((places >= 0) & (places < np.array(limits, np.int64))).all():
        raise ModelError(f"{what} is damaged: {_forms(shape, values, indices)}; export the model again")
    dense = np.zeros(limits, values.dtype)
    dense[tuple(places.T)] = values
    return numpy_helper.from_array(dense.reshape(shape), name)


def _array(tensor: TensorProto, what: str) -> Array:
    try:
        return numpy_helper.to_array(tensor)
    except (TypeError, ValueError) as error:
        raise ModelError(f"{what} cannot be read; store it dense, without external data") from error


def _forms(shape: tuple[int, ...], values: Array, indices: Array) -> str:
    taken = f"indices {indices.dtype}{list(indices.shape)}"
    return f"values {list(values.shape)} at {taken} do not fit {list(shape)}"

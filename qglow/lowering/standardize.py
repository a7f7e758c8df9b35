"""Normalizations by the input's own statistics, written as reductions and elementwise operators."""

from __future__ import annotations

import numpy as np

from qglow.core.types import Array
from qglow.graph.graph import Graph, Node, Value, constant
from qglow.graph.ops.elementwise import Add, Mul, Sub
from qglow.graph.ops.functions import Reciprocal, Sqrt
from qglow.graph.ops.normalization import InstanceNormalization, LayerNormalization
from qglow.graph.ops.reduce import ReduceMean
from qglow.graph.ops.shape import Reshape
from qglow.lowering.decompose import DECOMPOSITIONS, Parts


def _layer_normalization(node: Node, graph: Graph) -> list[Node]:
    operator, (x, scale, *more) = node.operator, node.inputs
    assert isinstance(operator, LayerNormalization) and x is not None and scale is not None
    rank = len(x.type.shape)
    parts = Parts(node, graph)
    value = _standardize(parts, x, tuple(range(operator.axis % rank, rank)), operator.epsilon)
    bias = more[0] if more else None
    if bias is None:
        return parts.finish(Mul(), value, scale)
    return parts.finish(Add(), parts.add("scaled", Mul(), value, scale), bias)


def _instance_normalization(node: Node, graph: Graph) -> list[Node]:
    operator, (x, scale, bias) = node.operator, node.inputs
    assert isinstance(operator, InstanceNormalization)
    assert x is not None and scale is not None and bias is not None
    rank = len(x.type.shape)
    parts = Parts(node, graph)
    value = _standardize(parts, x, tuple(range(2, rank)), operator.epsilon)
    value = parts.add("scaled", Mul(), value, _along_channels(parts, "scale", scale, rank))
    return parts.finish(Add(), value, _along_channels(parts, "bias", bias, rank))


def _standardize(parts: Parts, x: Value, axes: tuple[int, ...], epsilon: float) -> Value:
    centred = parts.add("centred", Sub(), x, parts.add("mean", ReduceMean(axes), x))
    squares = parts.add("squares", Mul(), centred, centred)
    variance = parts.add("variance", ReduceMean(axes), squares)
    shifted = parts.add("shifted", Add(), variance, _number(parts, "epsilon", epsilon))
    inverse = parts.add("inverse", Reciprocal(), parts.add("deviation", Sqrt(), shifted))
    return parts.add("standard", Mul(), centred, inverse)


def _along_channels(parts: Parts, name: str, vector: Value, rank: int) -> Value:
    """A vector [C] as it spreads over the pixels of images."""
    shape = (vector.type.shape[0], *(1,) * (rank - 2))
    if vector.data is not None:
        return _constant(parts, name, vector.data.reshape(shape))
    return parts.add(name, Reshape(shape=shape), vector)


def _number(parts: Parts, name: str, value: float) -> Value:
    return _constant(parts, name, np.array(value, np.float32))


def _constant(parts: Parts, name: str, data: Array) -> Value:
    return constant(parts.graph.unique_name(f"{parts.node.name}.{name}"), data)


DECOMPOSITIONS.update(
    {
        LayerNormalization: _layer_normalization,
        InstanceNormalization: _instance_normalization,
    }
)

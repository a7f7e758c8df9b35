"""Normalizations by the input's own statistics, written as reductions and elementwise operators."""

from __future__ import annotations

import numpy as np

from qglow.graph.graph import Node, Value
from qglow.graph.ops.elementwise import Add, Mul, Sub
from qglow.graph.ops.functions import Reciprocal, Sqrt
from qglow.graph.ops.normalization import InstanceNormalization, LayerNormalization
from qglow.graph.ops.reduce import ReduceMean
from qglow.graph.ops.shape import Reshape
from qglow.lowering.decompose import Parts, decomposes


@decomposes(LayerNormalization)
def decompose_layer_normalization(operator: LayerNormalization, parts: Parts) -> list[Node]:
    """Decompose into arithmetic and reductions: standardize, multiply by scale, add bias."""
    x, scale, more = parts.operand(0), parts.operand(1), parts.node.inputs[2:]
    rank = len(x.type.shape)
    value = _standardize(parts, x, tuple(range(operator.axis % rank, rank)), operator.epsilon)
    bias = more[0] if more else None
    if bias is None:
        return parts.finish(Mul(), value, scale)
    return parts.finish(Add(), parts.add("scaled", Mul(), value, scale), bias)


@decomposes(InstanceNormalization)
def decompose_instance_normalization(operator: InstanceNormalization, parts: Parts) -> list[Node]:
    """Decompose into arithmetic: standardize the pixels of each channel, multiply by scale, add bias."""
    x, scale, bias = (parts.operand(index) for index in range(3))
    rank = len(x.type.shape)
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
    """A vector [C] with trailing axes of size 1, so that it broadcasts over the pixels of images."""
    shape = (vector.type.shape[0], *(1,) * (rank - 2))
    if vector.data is not None:
        return parts.constant(name, vector.data.reshape(shape))
    return parts.add(name, Reshape(shape=shape), vector)


def _number(parts: Parts, name: str, value: float) -> Value:
    return parts.constant(name, np.array(value, np.float32))

"""BatchNormalization into the weights before it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from qglow.core.passes import Refused
from qglow.core.types import Array
from qglow.graph.graph import Graph, Node
from qglow.graph.ops.normalization import Affine, BatchNormalization
from qglow.graph.rewriting import (
    Outcome,
    RewritePass,
    constant_data,
    fuse,
    new_constant,
    operand,
    private,
)
from qglow.numerics.affine import fold_statistics64


@dataclass(frozen=True)
class FoldBatchnorm(RewritePass):
    """Scale the filters of a convolution or matrix product by a BatchNormalization or Affine of its result.

    Weights and bias are computed in float64 and rounded once.
    """

    name: ClassVar[str] = "fold-batchnorm"

    def rewrite(self, node: Node, graph: Graph) -> Outcome:
        """Fold one BatchNormalization or Affine into its producer."""
        if not isinstance(node.operator, BatchNormalization | Affine):
            return None
        x = operand(node, 0)
        producer = x.producer
        if producer is None or producer.operator.filters is None:
            source = "an input" if producer is None else f"the result of {producer.operator.name}"
            return Refused(f"%{x.name} is {source}, not of Conv or Gemm")
        refusal = private(graph, x) or _unfit(producer)
        if refusal is not None:
            return refusal
        factors = channel_factors(node)
        if isinstance(factors, Refused):
            return factors
        return _fold(graph, producer, node, *factors)


def channel_factors(node: Node) -> tuple[Array, Array] | Refused:
    """float64 (r, t) with `x * r[c] + t[c]`, of a BatchNormalization or Affine."""
    data = [constant_data(value) for value in node.inputs[1:]]
    arrays = [np.asarray(array) for array in data if array is not None]
    if len(arrays) < len(data):
        return Refused("its statistics are not constant")
    if isinstance(node.operator, BatchNormalization):
        scale, bias, mean, variance = arrays
        r, t = fold_statistics64(scale, bias, mean, variance, node.operator.epsilon)
    else:
        r, t = (np.asarray(array, np.float64) for array in arrays)
    if not (np.all(np.isfinite(r)) and np.all(np.isfinite(t))):
        return Refused("its statistics give factors that are not finite")
    return r, t


def _unfit(producer: Node) -> Refused | None:
    """Reason why a producer's weights cannot take a factor; None if they can."""
    operator = producer.operator
    if operator.bounds != (-math.inf, math.inf):
        return Refused(f"{operator.name} '{producer.name}' has bounds, which come before it")
    if producer.output.type.is_quantized or operand(producer, 0).type.is_quantized:
        return Refused(f"{operator.name} '{producer.name}' is quantized")
    bias = producer.operand("bias")
    if constant_data(producer.operand("w")) is None or (bias is not None and bias.data is None):
        return Refused(f"weights of {operator.name} '{producer.name}' are not constant")
    return None


def _fold(graph: Graph, producer: Node, node: Node, r: Array, t: Array) -> Outcome:
    operator, filters = producer.operator, producer.operator.filters
    assert filters is not None
    w, bias = operand(producer, 1), producer.operand("bias")
    weights = _product(np.asarray(w.data), filters.along_outputs(r, len(w.type.shape)))
    offset = _rounded(t if bias is None else np.asarray(bias.data, np.float64) * r + t)
    if not (np.all(np.isfinite(weights)) and np.all(np.isfinite(offset))):
        return Refused("the folded weights are not finite")
    names = f"{w.name}.folded", f"{producer.name}.bias" if bias is None else f"{bias.name}.folded"
    inputs = [
        operand(producer, 0),
        new_constant(graph, names[0], weights),
        new_constant(graph, names[1], offset),
    ]
    bounded = operator.bounded(*node.operator.bounds)
    if bounded is None:
        return Refused(f"{operator.name} '{producer.name}' takes no bounds")
    fuse(graph, producer, node, bounded, inputs)
    return f"folded into {operator.name} '{producer.name}'"


def _product(weights: Array, factors: Array) -> Array:
    """Products computed in float64 and rounded to float32, without a float64 array of their size."""
    rounded = np.empty(weights.shape, np.float32)
    with np.errstate(over="ignore"):
        return np.multiply(weights, factors, out=rounded, dtype=np.float64, casting="same_kind")


def _rounded(values: Array) -> Array:
    with np.errstate(over="ignore"):
        return np.asarray(values.astype(np.float32))

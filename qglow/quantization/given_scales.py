"""Scales of an activation's channels, as models with integers of their own have them, go into weights.

The importer divides such an activation by its scales, quantizes it with the scale 1, and multiplies by its
scales where it is read. Both factors are those of channels, so that the weights that make the channels and
those of a depthwise convolution, which reads each by itself, can have them in their own scales.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from qglow.core.passes import Refused
from qglow.core.types import Array, Quantization
from qglow.graph.graph import Graph, Node, Value, constant
from qglow.graph.ops.normalization import Affine
from qglow.graph.ops.quantize import Dequantize
from qglow.graph.rewriting import (
    Outcome,
    RewritePass,
    change,
    dequantized_constant,
    fuse,
    new_constant,
    operand,
    private,
    producer_of,
    remove_unread,
)
from qglow.numerics.quantize import INT8_MAX, parameters

APART = 1.0
"""Scale of integers that the importer has divided by scales of their own."""


@dataclass(frozen=True)
class ScalesIntoWeights(RewritePass):
    """Fold factors of channels into weights of integers: integers and zero points stay as they are."""

    name: ClassVar[str] = "scales-into-weights"

    def rewrite(self, node: Node, graph: Graph) -> Outcome:
        """Fold the factors before one Quantize, or before one depthwise convolution."""
        if node.operator.quantizes:
            return _into_producer(node, graph)
        return None if node.operator.filters is None else _into_reader(node, graph)


def _into_producer(node: Node, graph: Graph) -> Outcome:
    """Let a convolution whose result is scaled and quantized have the factors in its weights and bias."""
    kind, scaling = node.output.type.quantization, producer_of(operand(node), Affine)
    if kind is None or kind.axis is not None or kind.scale != APART or scaling is None:
        return None
    product, factors = operand(scaling).producer, _factors(scaling)
    if product is None or product.operator.filters is None or factors is None:
        return None
    weights = dequantized_constant(product.operand("w"))
    if weights is None:
        return None
    refusal = private(graph, scaling.output) or private(graph, product.output)
    if refusal is not None:
        return refusal
    lo, hi = product.operator.bounds
    if lo not in (-math.inf, 0.0):
        return Refused(f"'{product.name}' has the bound {lo}, which differs by channel then")
    if np.any(hi * factors < INT8_MAX - kind.zero_point):
        return Refused(f"'{product.name}' has a bound below the largest integer")
    bias = product.operand("bias")
    if bias is not None and bias.data is None:
        return Refused(f"the bias of '{product.name}' is not constant")
    rescaled = _rescaled(graph, product, weights, factors)
    if rescaled is None:
        return Refused("the products of scales are no float32")
    if bias is not None and bias.data is not None:
        bias = new_constant(graph, f"{bias.name}.scaled", (bias.data * factors).astype(np.float32))
    # The largest integer is reached before an upper bound, which would differ by channel.
    unbounded = product.operator.bounded(lo, math.inf) or product.operator
    fuse(graph, product, scaling, unbounded, (operand(product), rescaled, bias))
    return f"weights and bias have the factors of '{scaling.name}'"


def _into_reader(node: Node, graph: Graph) -> Outcome:
    """Let a depthwise convolution of scaled integers have the factors in its weights."""
    scaling = producer_of(operand(node), Affine)
    weights = dequantized_constant(node.operand("w"))
    if scaling is None or weights is None or producer_of(operand(scaling), Dequantize) is None:
        return None
    factors, filters = _factors(scaling), node.operator.filters
    if factors is None or filters is None:
        return None
    if filters.groups != factors.size:
        return Refused(f"'{node.name}' adds up channels of several scales")
    outputs = weights.type.shape[filters.outputs] // factors.size
    rescaled = _rescaled(graph, node, weights, np.repeat(factors, outputs))
    if rescaled is None:
        return Refused("the products of scales are no float32")
    change(node, node.operator, (operand(scaling), rescaled, *node.inputs[2:]))
    remove_unread(graph, scaling)
    return f"weights have the factors of '{scaling.name}'"


def _factors(node: Node) -> Array | None:
    """float32 factors of the channels that an Affine multiplies by, if it does nothing else."""
    operator, scale, shift = node.operator, node.operand("scale"), node.operand("shift")
    assert isinstance(operator, Affine)
    if scale is None or shift is None or scale.data is None or shift.data is None:
        return None
    plain = operator.bounds == (-math.inf, math.inf) and not np.any(shift.data)
    return scale.data if plain and np.all(scale.data > 0.0) else None


def _rescaled(graph: Graph, node: Node, weights: Value, factors: Array) -> Value | None:
    """The same integers with other scales of output channels; None where these are no scales of them."""
    found, filters = weights.type.quantization, node.operator.filters
    if found is None or filters is None or found.axis not in (None, filters.outputs):
        return None
    if weights.type.shape[filters.outputs] != factors.size:
        return None
    own, zeros = parameters(found)
    with np.errstate(over="ignore", under="ignore"):
        scales = (np.broadcast_to(own.reshape(-1), factors.shape) * factors).astype(np.float32)
    if not (np.all(scales > 0.0) and np.all(np.isfinite(scales))):
        return None
    kind = Quantization.per_channel(
        scales, filters.outputs, np.broadcast_to(zeros.reshape(-1), factors.shape), found.element
    )
    assert weights.data is not None
    integers = constant(graph.unique_name(f"{weights.name}.scaled"), weights.data, kind)
    real = operand(node, 1).type
    result = Value(graph.unique_name(f"{integers.name}.real"), real)
    graph.insert_before(node, Node(graph.unique_name(result.name), Dequantize(), [integers], [result]))
    return result

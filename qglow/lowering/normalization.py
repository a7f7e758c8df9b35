"""Affine maps per channel, among them a BatchNormalization that folds into no weights, and LRN."""

from __future__ import annotations

import numpy as np

from qglow.core.errors import UnsupportedError
from qglow.core.types import Array
from qglow.graph.graph import Node, Value
from qglow.graph.ops import normalization as graph
from qglow.instructions.ops.elementwise import Affine
from qglow.instructions.ops.normalization import LocalResponse
from qglow.lowering.bounds import bounds
from qglow.lowering.context import Lowering, natural
from qglow.lowering.decompose import Parts, decomposes
from qglow.lowering.rules import lowers
from qglow.numerics.affine import affine_multipliers, fold_statistics


@lowers(graph.Affine)
def lower_affine(lowering: Lowering, node: Node, operator: graph.Affine) -> None:
    """Lower to one affine over the channels, which lie innermost.

    Channels with equal factors may lie anywhere, so that the operand stays in its order.
    """
    x, scale, shift = node.inputs
    assert x is not None
    r, t = _constant(node, scale), _constant(node, shift)
    rank = len(x.type.shape)
    order = (0, *range(2, rank), 1) if rank > 1 else natural(x.type.shape)
    if rank > 1 and r.size and _is_uniform(r) and _is_uniform(t):
        order = lowering.order(x)
        r, t = (np.full(x.type.shape[order[-1]], part.flat[0], part.dtype) for part in (r, t))
    result = node.output.type
    if x.type.quantization is not None and result.quantization is not None:
        r, t = affine_multipliers(x.type.quantization, r, t, result.quantization)
    factors = [lowering.constant(f"{node.name}.scale", r), lowering.constant(f"{node.name}.shift", t)]
    source = lowering.read(x, order)
    dest = lowering.write(node.output, order)
    operation = Affine(**bounds(operator.lo, operator.hi, result))  # type: ignore[arg-type]
    lowering.emit(operation, dest, source, *factors)


@lowers(graph.LRN)
def lower_local_response(lowering: Lowering, node: Node, operator: graph.LRN) -> None:
    """Lower to one localresponse; the value is brought to an order that ends with the channels."""
    x = node.inputs[0]
    assert x is not None
    order = (0, *range(2, len(x.type.shape)), 1)
    source = lowering.read(x, order)
    dest = lowering.write(node.output, order)
    operation = LocalResponse(operator.size, operator.alpha, operator.beta, operator.bias)
    lowering.emit(operation, dest, source)


def _is_uniform(factors: Array) -> bool:
    """Whether all factors have the same bits."""
    return factors.tobytes() == factors[:1].tobytes() * factors.size


def _constant(node: Node, value: Value | None) -> Array:
    if value is None or value.data is None:
        raise UnsupportedError(f"node '{node.name}' (Affine): scale and shift must be constant")
    return value.data


@decomposes(graph.BatchNormalization)
def decompose_batch_normalization(operator: graph.BatchNormalization, parts: Parts) -> list[Node]:
    """Decompose into an affine of the folded statistics. Raises UnsupportedError for computed statistics."""
    x, *statistics = parts.node.inputs
    arrays = [value.data for value in statistics if value is not None and value.data is not None]
    if x is None or len(arrays) < len(statistics):
        name = parts.node.name
        raise UnsupportedError(f"node '{name}' (BatchNormalization): statistics must be constant")
    scale, bias, mean, variance = arrays
    r, t = fold_statistics(scale, bias, mean, variance, operator.epsilon)
    return parts.finish(graph.Affine(), x, parts.constant("scale", r), parts.constant("shift", t))

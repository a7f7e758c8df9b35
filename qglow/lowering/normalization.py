"""Affine maps of channels, what is left of a BatchNormalization that cannot fold, and LRN."""

from __future__ import annotations

from qglow.core.errors import UnsupportedError
from qglow.core.types import Array
from qglow.graph.graph import Node, Value
from qglow.graph.ops import normalization as graph
from qglow.instructions.ops.elementwise import Affine
from qglow.instructions.ops.normalization import LocalResponse
from qglow.lowering.bounds import bounds
from qglow.lowering.context import NHWC, Lowering, natural
from qglow.lowering.rules import lowers
from qglow.numerics.affine import affine_multipliers


@lowers(graph.Affine)
def lower_affine(lowering: Lowering, node: Node) -> None:
    """One affine over the channels, which lie innermost."""
    operator = node.operator
    assert isinstance(operator, graph.Affine)
    x, scale, shift = node.inputs
    assert x is not None
    r, t = _constant(node, scale), _constant(node, shift)
    rank = len(x.type.shape)
    order = NHWC if rank == 4 else natural(x.type.shape)
    if rank not in (2, 4):
        raise UnsupportedError(
            f"node '{node.name}' (Affine of {x.type}): only two or four axes are supported"
        )
    result = node.output.type
    if x.type.quantization is not None and result.quantization is not None:
        r, t = affine_multipliers(x.type.quantization, r, t, result.quantization)
    factors = [lowering.constant(f"{node.name}.scale", r), lowering.constant(f"{node.name}.shift", t)]
    source = lowering.read(x, order)
    dest = lowering.write(node.output, order)
    operation = Affine(**bounds(operator.lo, operator.hi, result))  # type: ignore[arg-type]
    lowering.emit(operation, dest, source, *factors)


@lowers(graph.LRN)
def lower_local_response(lowering: Lowering, node: Node) -> None:
    """One localresponse; the value is brought to an order that ends with the channels."""
    operator, x = node.operator, node.inputs[0]
    assert isinstance(operator, graph.LRN) and x is not None
    order = (0, *range(2, len(x.type.shape)), 1)
    source = lowering.read(x, order)
    dest = lowering.write(node.output, order)
    operation = LocalResponse(operator.size, operator.alpha, operator.beta, operator.bias)
    lowering.emit(operation, dest, source)


def _constant(node: Node, value: Value | None) -> Array:
    if value is None or value.data is None:
        raise UnsupportedError(f"node '{node.name}' (Affine): scale and shift must be constant")
    return value.data

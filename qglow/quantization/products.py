"""Matrix products of two activations in int8: whether they can be int8, and their margins to int32."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from qglow.core.errors import InternalError
from qglow.graph.graph import Node
from qglow.numerics.linear import worst_product
from qglow.numerics.quantize import INT8_MIN
from qglow.numerics.requantize import accumulator_margin


def unfit_product(node: Node) -> str | None:
    """Reason why a node of policy Products cannot run in int8 with any parameters; None if it can."""
    if all(v is None or v.is_constant for v in node.inputs):
        return "all its inputs are constants"
    depth = _depth(node)
    if _margin(worst_product(depth, INT8_MIN, INT8_MIN)) < 1.0:
        return f"sums of {depth} products might be beyond int32"
    for value in node.inputs:
        if value is not None and value.data is not None and not np.all(np.isfinite(value.data)):
            return f"its operand '{value.name}' holds NaN or infinities"
    return None


def product_margins(nodes: Iterable[Node]) -> dict[str, float]:
    """Return int32 margins of int8 nodes of policy Products, by name: the int32 limit over the worst sum."""
    margins = {}
    for node in nodes:
        if not node.operator.multiplies_activations:
            continue
        zeros = [v.type.quantization.zero_point for v in node.inputs if v is not None and v.type.quantization]
        if len(zeros) != 2:
            raise InternalError(f"{node} has no two int8 operands")
        margins[node.name] = _margin(worst_product(_depth(node), *zeros))
    return margins


def _margin(worst: int) -> float:
    return accumulator_margin(np.array(worst))


def _depth(node: Node) -> int:
    left = node.inputs[0]
    assert left is not None
    return left.type.shape[-1]

"""Knowledge of elements that are not live."""

from __future__ import annotations

import math
from enum import IntEnum

import numpy as np

from qglow.graph.axes import AxisEffect
from qglow.graph.graph import Node, Value

CHOSEN = AxisEffect(chosen=True)
"""Places of the first operand that the second one chooses."""


class Rest(IntEnum):
    """Elements behind the live ones: anything, NaN too; finite numbers; zeros."""

    ANY = 0
    FINITE = 1
    ZERO = 2


def at_least(value: Value, rest: Rest) -> Rest:
    """Return `rest` or more, where a value's type tells more: all integers are finite."""
    return max(rest, Rest.FINITE) if value.type.is_quantized or not value.type.is_float else rest


def rest_of(node: Node, index: int, operand: Rest, neutral: float | None, axis: int) -> Rest:
    """Return what a result has along an axis where operand `index` has `operand`."""
    types = node.input_types()
    table = node.inputs[0]
    if index and table is not None and _is_chosen_from(node, table):
        known = table.data is not None and bool(np.isfinite(table.data).all())
        return Rest.FINITE if known else Rest.ANY
    if neutral == -math.inf and node.operator.distributes_along(types) == axis:
        return Rest.ZERO  # shares of e ** -inf
    if neutral == -math.inf:
        return Rest.ANY
    if _is_seen_by_windows(node, axis):
        return Rest.ANY  # the first windows behind the live ones may see live places
    if node.operator.moves_elements and not node.operator.adds_values:
        return operand
    if node.operator.is_border and node.operator.dequantizes:
        return min(operand, Rest.FINITE)
    if operand is Rest.ZERO and node.operator.keeps_zeros and _all_reach(node, axis):
        return Rest.ZERO
    return Rest.ANY


def _is_seen_by_windows(node: Node, axis: int) -> bool:
    window = node.operator.window(node.input_types())
    return window is not None and axis >= 2 and window.kernel[axis - 2] > 1


def _is_chosen_from(node: Node, table: Value) -> bool:
    types = node.input_types()
    return any(node.operator.axis_effect(0, axis, types) == CHOSEN for axis in range(len(table.type.shape)))


def _all_reach(node: Node, axis: int) -> bool:
    """Whether no operand is spread along an axis of the result, so that all have the same places there."""
    shape = node.output.type.shape
    kinds = [kind for kind in node.input_types() if kind is not None]
    return all(len(kind.shape) == len(shape) and kind.shape[axis] == shape[axis] for kind in kinds)

"""Knowledge of elements that are not live."""

from __future__ import annotations

import math
from enum import IntEnum

import numpy as np

from qglow.core.types import Array, TensorType
from qglow.graph.axes import AxisEffect
from qglow.graph.graph import Node, Value
from qglow.numerics.quantize import quantize_by

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


def of_border(value: Value) -> Rest:
    """Return what a constant of one number has beside live places of other operands, and behind them."""
    data = value.data
    assert data is not None, "borders are constants"
    if not value.type.is_quantized and not np.any(data):
        return Rest.ZERO
    return Rest.FINITE if bool(np.isfinite(data).all()) else Rest.ANY


def neutral_element(kind: TensorType, neutral: float) -> Array | None:
    """The element [1, ...] of a type that stands for a number or an infinity; None where there is none."""
    number = np.full((1,) * len(kind.shape), neutral, np.float32)
    if kind.quantization is not None:
        return quantize_by(number, kind.quantization)
    if math.isinf(neutral) and not kind.is_float:
        if not np.issubdtype(kind.element.dtype, np.integer):
            return None
        known = np.iinfo(kind.element.dtype)
        return np.full(number.shape, known.min if neutral < 0 else known.max, known.dtype)
    return number.astype(kind.element.dtype)


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

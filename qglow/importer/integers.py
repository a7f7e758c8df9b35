"""Integers with parameters, on their way from one operator of the model to the next."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from qglow.core.types import Array, Quantization
from qglow.graph.graph import Value, constant
from qglow.graph.operator import Operator, OperatorTypeError
from qglow.graph.rewriting import dequantized_constant


def passed_on(operator: Operator, inputs: Sequence[Value | None]) -> Quantization | None:
    """Parameters of the result where an operator moves integers; None if it works on others.

    Raises OperatorTypeError for an operator that computes with them.
    """
    found = [value for value in inputs if value is not None and value.type.is_quantized]
    if not found or operator.is_border:
        return None
    first = found[0].type.quantization
    kept = operator.kept_operand
    if kept is not None and not operator.adds_values and inputs[kept] is found[0]:
        return first
    same = len(found) == len(inputs) and all(value.type.quantization == first for value in found)
    if operator.shares_parameters and same:
        return first
    raise OperatorTypeError(
        f"it reads the integers of '{found[0].name}', which only data movement and operators of "
        "quantization can; let it read their DequantizeLinear"
    )


def moved_integers(operator: Operator, inputs: Sequence[Value | None], name: str) -> Value | None:
    """The constant integers that stand for a moved dequantized constant; None for anything else.

    Movement of reals is movement of their integers, so weights keep theirs through a Transpose or a
    Reshape. Parameters per channel must lie along one axis afterwards.
    """
    if not operator.moves_elements or not inputs or operator.adds_values:
        return None
    source = dequantized_constant(inputs[0])
    if source is None or source.data is None or any(v is not None and v.data is None for v in inputs[1:]):
        return None
    others = [None if value is None else value.data for value in inputs[1:]]
    quantization = source.type.quantization
    if quantization is None:
        return None
    if quantization.axis is not None:
        channel = np.arange(len(quantization.scales), dtype=np.int32)
        shape = [-1 if axis == quantization.axis else 1 for axis in range(source.data.ndim)]
        channels = np.ascontiguousarray(np.broadcast_to(channel.reshape(shape), source.data.shape))
        moved = _along_one_axis(operator.evaluate([channels, *others])[0], quantization)
        if moved is None:
            return None
        quantization = moved
    return constant(name, np.ascontiguousarray(operator.evaluate([source.data, *others])[0]), quantization)


def _along_one_axis(channels: Array, quantization: Quantization) -> Quantization | None:
    """Parameters of a tensor whose elements belong to these channels; None if no one axis orders them."""
    for axis in range(channels.ndim):
        rows = np.moveaxis(channels, axis, 0).reshape(channels.shape[axis], -1)
        if rows.size and np.all(rows == rows[:, :1]):
            order = [int(channel) for channel in rows[:, 0]]
            scales = tuple(quantization.scales[channel] for channel in order)
            zeros = tuple(quantization.zero_points[channel] for channel in order)
            return Quantization(scales, zeros, axis, quantization.element)
    return None

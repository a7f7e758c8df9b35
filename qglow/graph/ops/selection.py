"""Choices between operands: Max, Min and Where. https://onnx.ai/onnx/operators/

Max and Min have two operands; importers make chains of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from qglow.core.types import Array, ElementType, Quantization, TensorType
from qglow.graph.operator import Operator, Policy, Unify, register, require
from qglow.graph.ops.rules import Arrays, Types, broadcast_shape, given, operand, parameters_of
from qglow.numerics import elementwise as numerics


class Extremum(Operator):
    """Base of Max and Min of two operands, broadcast as numpy does."""

    operands: ClassVar[tuple[str, ...]] = ("lhs", "rhs")
    policy: ClassVar[Policy] = Unify(rescales=True)
    commutative: ClassVar[bool] = True
    aligned: ClassVar[bool] = True
    choose: ClassVar[Callable[[Array, Array], Array]]
    choose_int8: ClassVar[Callable[[Array, Quantization, Array, Quantization, Quantization], Array]]

    def infer(self, inputs: Types) -> tuple[TensorType, ...]:
        """The broadcast shape; both operands must have the same element type."""
        return (_common(inputs, 0),)

    def evaluate(self, inputs: Arrays) -> tuple[Array, ...]:
        """NaN where either is."""
        return (type(self).choose(given(inputs, 0), given(inputs, 1)),)

    def evaluate_quantized(
        self, inputs: Arrays, input_types: Types, output_types: Sequence[TensorType]
    ) -> tuple[Array, ...]:
        """Rule 6 of the numeric contract: of values brought to the result's parameters."""
        a_quant, b_quant = parameters_of(input_types, 0), parameters_of(input_types, 1)
        y_quant = output_types[0].quantization
        if a_quant is None or b_quant is None or y_quant is None:
            return super().evaluate_quantized(inputs, input_types, output_types)
        return (type(self).choose_int8(given(inputs, 0), a_quant, given(inputs, 1), b_quant, y_quant),)


@register
@dataclass(frozen=True)
class Max(Extremum):
    """The larger of both operands."""

    name: ClassVar[str] = "Max"
    choose: ClassVar[Callable[..., Array]] = staticmethod(numerics.maximum)
    choose_int8: ClassVar[Callable[..., Array]] = staticmethod(numerics.max_int8)


@register
@dataclass(frozen=True)
class Min(Extremum):
    """The smaller of both operands."""

    name: ClassVar[str] = "Min"
    choose: ClassVar[Callable[..., Array]] = staticmethod(numerics.minimum)
    choose_int8: ClassVar[Callable[..., Array]] = staticmethod(numerics.min_int8)


@register
@dataclass(frozen=True)
class Where(Operator):
    """lhs where the condition holds, else rhs; all three broadcast as numpy does."""

    name: ClassVar[str] = "Where"
    operands: ClassVar[tuple[str, ...]] = ("condition", "lhs", "rhs")
    policy: ClassVar[Policy] = Unify(rescales=True)
    plain_operands: ClassVar[tuple[str, ...]] = ("condition",)
    aligned: ClassVar[bool] = True

    def infer(self, inputs: Types) -> tuple[TensorType, ...]:
        """The broadcast shape, elements of the chosen operands."""
        condition = operand(inputs, 0, "condition")
        require(condition.element is ElementType.BOOL, f"operand condition is {condition}, it must be bool")
        kind = _common(inputs, 1)
        return (kind.with_shape(broadcast_shape(condition.shape, kind.shape)),)

    def evaluate(self, inputs: Arrays) -> tuple[Array, ...]:
        """Compute with numpy.where."""
        return (np.where(given(inputs, 0), given(inputs, 1), given(inputs, 2)),)

    def evaluate_quantized(
        self, inputs: Arrays, input_types: Types, output_types: Sequence[TensorType]
    ) -> tuple[Array, ...]:
        """Select from values brought to the result's parameters, like Max and Min."""
        a_quant, b_quant = parameters_of(input_types, 1), parameters_of(input_types, 2)
        y_quant = output_types[0].quantization
        if a_quant is None or b_quant is None or y_quant is None:
            return super().evaluate_quantized(inputs, input_types, output_types)
        condition, a, b = (given(inputs, index) for index in range(3))
        return (numerics.where_int8(condition, a, a_quant, b, b_quant, y_quant),)


def _common(inputs: Types, first: int) -> TensorType:
    lhs, rhs = operand(inputs, first, "lhs"), operand(inputs, first + 1, "rhs")
    require(lhs.element is rhs.element, f"operands {lhs} and {rhs} differ in element type")
    return lhs.with_shape(broadcast_shape(lhs.shape, rhs.shape))

"""Softmax and LogSoftmax. https://onnx.ai/onnx/operators/onnx__Softmax.html"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from qglow.core.types import Array, TensorType
from qglow.graph.axes import AxisEffect
from qglow.graph.operator import Fixed, KeepFloat, Operator, Policy, register
from qglow.graph.ops.rules import Arrays, Types, float_operand, given, normal_axis, operand
from qglow.graph.traits import Bounds
from qglow.numerics.softmax import log_softmax_float, softmax_float


class Normalizing(Operator):
    """Base of both: along one axis."""

    operands: ClassVar[tuple[str, ...]] = ("x",)
    axis: int

    def infer(self, inputs: Types) -> tuple[TensorType, ...]:
        """The shape of x."""
        x = float_operand(inputs, 0, "x")
        normal_axis(self.axis, len(x.shape))
        return (x,)

    def axis_effect(self, index: int, axis: int, inputs: Types) -> AxisEffect | None:
        """The same axis, along which e^x is summed."""
        along = normal_axis(self.axis, len(operand(inputs, 0, "x").shape))
        return AxisEffect(axis, -math.inf if axis == along else None)

    def scores_along(self, inputs: Types) -> int | None:
        """The axis."""
        return normal_axis(self.axis, len(operand(inputs, 0, "x").shape))


@register
@dataclass(frozen=True)
class Softmax(Normalizing):
    """e^x / sum of e^x along one axis.

    masked_to_zero: rows without a finite score, which would be NaN, are zeros.
    """

    name: ClassVar[str] = "Softmax"
    policy: ClassVar[Policy] = KeepFloat("Softmax is computed in float: int8 would lose small probabilities")
    fixed: ClassVar[Fixed | None] = Fixed(1 / 256, -128)

    axis: int = -1
    masked_to_zero: bool = False

    @property
    def result_range(self) -> Bounds:
        """Probabilities."""
        return 0.0, 1.0

    def evaluate(self, inputs: Arrays) -> tuple[Array, ...]:
        """Compute with numerics.softmax."""
        return (softmax_float(given(inputs, 0), self.axis, self.masked_to_zero),)

    def distributes_along(self, inputs: Types) -> int | None:
        """Return the axis of the probabilities."""
        return normal_axis(self.axis, len(operand(inputs, 0, "x").shape))

    def transposed(self, perm: Sequence[int]) -> Self | str | None:
        """The operator along the axis that becomes `axis`."""
        return replace(self, axis=perm[self.axis % len(perm)])


@register
@dataclass(frozen=True)
class LogSoftmax(Normalizing):
    """ln of Softmax along one axis."""

    name: ClassVar[str] = "LogSoftmax"
    policy: ClassVar[Policy] = KeepFloat("LogSoftmax is computed in float, as Softmax is")

    axis: int = -1

    def evaluate(self, inputs: Arrays) -> tuple[Array, ...]:
        """Compute with numerics.softmax."""
        return (log_softmax_float(given(inputs, 0), self.axis),)

"""Reductions over axes. https://onnx.ai/onnx/operators/ under the same names"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

from qglow.core.types import Array, TensorType
from qglow.graph.axes import AxisEffect
from qglow.graph.operator import KeepFloat, Operator, Policy, Rescaled, SameAs, register, require
from qglow.graph.ops.rules import Arrays, Movement, Types, given, normal_axis, operand, parameters_of
from qglow.numerics.reduce import mean_int8, reduce, running_sum


class Reduction(Operator):
    """Base: elements along `axes` together give one; with `keepdims` the axes stay with extent 1."""

    operands: ClassVar[tuple[str, ...]] = ("x",)
    reduces: ClassVar[bool] = True
    kind: ClassVar[str]
    without_effect: ClassVar[float | None] = None
    """The number that leaves the result of the others as it is; None where their count matters."""
    axes: tuple[int, ...]
    keepdims: bool

    def infer(self, inputs: Types) -> tuple[TensorType, ...]:
        """The shape of x without the axes, or with extents of 1 there."""
        x = operand(inputs, 0, "x")
        axes = {normal_axis(axis, len(x.shape)) for axis in self.axes}
        require(len(axes) == len(self.axes), f"axes {list(self.axes)} name an axis twice")
        if self.keepdims:
            return (x.with_shape(tuple(1 if axis in axes else n for axis, n in enumerate(x.shape))),)
        return (x.with_shape(tuple(n for axis, n in enumerate(x.shape) if axis not in axes)),)

    def evaluate(self, inputs: Arrays) -> tuple[Array, ...]:
        """Compute with numerics.reduce."""
        return (reduce(given(inputs, 0), self.kind, self.axes, self.keepdims),)

    def axis_effect(self, index: int, axis: int, inputs: Types) -> AxisEffect | None:
        """Axes that stay are apart."""
        rank = len(operand(inputs, 0, "x").shape)
        gone = [normal_axis(one, rank) for one in self.axes]
        if axis not in gone:
            return AxisEffect(axis if self.keepdims else axis - sum(one < axis for one in gone))
        if self.without_effect is None or not self._counts_along(axis, gone, operand(inputs, 0, "x")):
            return None
        return AxisEffect(neutral=self.without_effect)

    def _counts_along(self, axis: int, gone: Sequence[int], x: TensorType) -> bool:
        """Whether elements keep their number in the order of a sum where fewer places of an axis count.

        Float results depend on that order (rule 9 of the numeric contract), but for the largest and smallest.
        """
        ordered = x.is_float and math.isfinite(self.without_effect or 0.0)
        return not ordered or all(x.shape[one] == 1 for one in gone if one < axis)

    def axis_after(self, axis: int) -> int:
        """The reduced axes before it are gone, unless they are kept."""
        return axis if self.keepdims else axis - sum(gone < axis for gone in self.axes)

    def axis_before(self, axis: int) -> int:
        """The reduced axes before it are back."""
        for gone in () if self.keepdims else sorted(self.axes):
            axis += gone <= axis
        return axis

    def _keeps_axis(self, axis: int) -> bool:
        """Whether an axis of x stays; never known for axes that are counted from the end."""
        return axis not in self.axes and min(self.axes, default=0) >= 0


@register
@dataclass(frozen=True)
class ReduceSum(Reduction):
    """Sums over `axes`."""

    name: ClassVar[str] = "ReduceSum"
    adds_up: ClassVar[bool] = True
    policy: ClassVar[Policy] = KeepFloat("a sum of many int8 values would lose them in one scale")
    kind: ClassVar[str] = "sum"
    without_effect: ClassVar[float | None] = 0.0

    axes: tuple[int, ...]
    keepdims: bool = True


@register
@dataclass(frozen=True)
class ReduceProd(Reduction):
    """Products over `axes`."""

    name: ClassVar[str] = "ReduceProd"
    policy: ClassVar[Policy] = KeepFloat("products over an axis span more than int8 holds")
    kind: ClassVar[str] = "prod"
    without_effect: ClassVar[float | None] = 1.0

    axes: tuple[int, ...]
    keepdims: bool = True


@register
@dataclass(frozen=True)
class ReduceMean(Reduction):
    """Means over `axes`."""

    name: ClassVar[str] = "ReduceMean"
    policy: ClassVar[Policy] = Rescaled()
    kind: ClassVar[str] = "mean"

    axes: tuple[int, ...]
    keepdims: bool = True

    def evaluate_quantized(
        self, inputs: Arrays, input_types: Types, output_types: Sequence[TensorType]
    ) -> tuple[Array, ...]:
        """Rule 6 of the numeric contract."""
        x_quant, y_quant = parameters_of(input_types, 0), output_types[0].quantization
        if x_quant is None or y_quant is None:
            return super().evaluate_quantized(inputs, input_types, output_types)
        result = mean_int8(given(inputs, 0), x_quant, y_quant, self.axes)
        return (result.reshape(output_types[0].shape),)

    @property
    def divided_sum(self) -> tuple[ReduceSum, tuple[int, ...]]:
        """The sum over the same axes."""
        return ReduceSum(self.axes, self.keepdims), self.axes

    def summed_elements(self, inputs: Types) -> int:
        """Number of elements along the axes."""
        shape = operand(inputs, 0, "x").shape
        return math.prod(shape[axis] for axis in self.axes)

    def scales_along(self, axis: int) -> bool:
        """Whether the axis stays, so that each of its indices has a mean of its own."""
        return self._keeps_axis(axis)

    def with_channels(self, count: int, inputs: Types) -> Self | None:
        """Return the operator itself, which works for any number of channels."""
        return self


class Extreme(Reduction, Movement):
    """Base of the largest and the smallest: they select elements, of int8 as they are."""

    policy: ClassVar[Policy] = SameAs(0)


@register
@dataclass(frozen=True)
class ReduceMax(Extreme):
    """Largest elements along `axes`."""

    name: ClassVar[str] = "ReduceMax"
    kind: ClassVar[str] = "max"
    without_effect: ClassVar[float | None] = -math.inf

    axes: tuple[int, ...]
    keepdims: bool = True

    def scales_along(self, axis: int) -> bool:
        """Whether the axis stays, so that each of its indices has a maximum of its own."""
        return self._keeps_axis(axis)

    def with_channels(self, count: int, inputs: Types) -> Self | None:
        """Return the operator itself, which works for any number of channels."""
        return self


@register
@dataclass(frozen=True)
class ReduceMin(Extreme):
    """Smallest elements along `axes`."""

    name: ClassVar[str] = "ReduceMin"
    kind: ClassVar[str] = "min"
    without_effect: ClassVar[float | None] = math.inf

    axes: tuple[int, ...]
    keepdims: bool = True


@register
@dataclass(frozen=True)
class CumSum(Operator):
    """Sums of the elements up to each place of `axis`, added one by one; see numerics.reduce.running_sum."""

    name: ClassVar[str] = "CumSum"
    adds_up: ClassVar[bool] = True
    operands: ClassVar[tuple[str, ...]] = ("x",)
    policy: ClassVar[Policy] = KeepFloat("sums of many int8 values would lose them in one scale")

    axis: int
    exclusive: bool = False
    reverse: bool = False

    def infer(self, inputs: Types) -> tuple[TensorType, ...]:
        """The type of x."""
        x = operand(inputs, 0, "x")
        normal_axis(self.axis, len(x.shape))
        return (x,)

    def axis_effect(self, index: int, axis: int, inputs: Types) -> AxisEffect | None:
        """The same axis; along its own, sums from the end begin with zeros, which add nothing.

        Reals that begin there have no such number: 0 added to -0 is 0.
        """
        x = operand(inputs, 0, "x")
        own = normal_axis(self.axis, len(x.shape))
        if axis != own or not self.reverse:
            return AxisEffect(axis, running=axis == own)
        return None if x.is_float and not self.exclusive else AxisEffect(axis, neutral=0.0, running=True)

    def evaluate(self, inputs: Arrays) -> tuple[Array, ...]:
        """Compute with numerics.reduce."""
        return (running_sum(given(inputs, 0), self.axis, self.exclusive, self.reverse),)

"""Elementwise arithmetic and clamps. https://onnx.ai/onnx/operators/ under the same names"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from qglow.core.types import Array, Quantization, TensorType
from qglow.graph.operator import Operator, Policy, Rescaled, register, require
from qglow.graph.ops.rules import (
    Arrays,
    Bounded,
    Types,
    broadcast_shape,
    float_operand,
    given,
    operand,
    parameters_of,
)
from qglow.graph.traits import Bounds
from qglow.numerics import elementwise as numerics
from qglow.numerics import integers
from qglow.numerics.requantize import quantized_bounds


@dataclass(frozen=True)
class Arithmetic:
    """One operation on float32, on plain integers and on int8."""

    real: Callable[[Array, Array, float, float], Array]
    integer: Callable[[Array, Array], Any]
    int8: Callable[[Array, Quantization, Array, Quantization, Quantization, int, int], Array]


class Binary(Bounded):
    """Base of arithmetic on two operands, broadcast as numpy does, within real bounds.

    The bounds apply to reals only.
    """

    operands: ClassVar[tuple[str, ...]] = ("lhs", "rhs")
    policy: ClassVar[Policy] = Rescaled()
    elementwise: ClassVar[bool] = True
    takes_slices: ClassVar[bool] = True
    arithmetic: ClassVar[Arithmetic]

    def infer(self, inputs: Types) -> tuple[TensorType, ...]:
        """The broadcast shape; both operands must have the same element type."""
        lhs, rhs = operand(inputs, 0, "lhs"), operand(inputs, 1, "rhs")
        require(lhs.element is rhs.element, f"operands {lhs} and {rhs} differ in element type")
        unbounded = math.isinf(self.lo) and math.isinf(self.hi)
        require(lhs.is_float or unbounded, f"bounds on {lhs.element.value} are not supported")
        return (TensorType(lhs.element, broadcast_shape(lhs.shape, rhs.shape)),)

    def evaluate(self, inputs: Arrays) -> tuple[Array, ...]:
        """float32 arithmetic and bounds, or plain arithmetic of integers."""
        lhs, rhs = given(inputs, 0), given(inputs, 1)
        if lhs.dtype == np.float32:
            return (self.arithmetic.real(lhs, rhs, self.lo, self.hi),)
        return (np.asarray(self.arithmetic.integer(lhs, rhs), lhs.dtype),)

    def evaluate_quantized(
        self, inputs: Arrays, input_types: Types, output_types: Sequence[TensorType]
    ) -> tuple[Array, ...]:
        """Rule 6 of the numeric contract."""
        a_quant, b_quant = parameters_of(input_types, 0), parameters_of(input_types, 1)
        y_quant = output_types[0].quantization
        if a_quant is None or b_quant is None or y_quant is None:
            return super().evaluate_quantized(inputs, input_types, output_types)
        bounds = quantized_bounds(self.lo, self.hi, y_quant)
        lhs, rhs = given(inputs, 0), given(inputs, 1)
        return (self.arithmetic.int8(lhs, a_quant, rhs, b_quant, y_quant, *bounds),)

    def scales_along(self, axis: int) -> bool:
        """Whether it is a sum without a lower bound other than 0, which factors would move."""
        return self.additive and self.lo in (0.0, -math.inf)

    def with_channels(self, count: int, inputs: Types) -> Self | None:
        """Return the operator itself, which works for any number of channels."""
        return self


@register
@dataclass(frozen=True)
class Add(Binary):
    """lhs + rhs."""

    name: ClassVar[str] = "Add"
    commutative: ClassVar[bool] = True
    additive: ClassVar[bool] = True
    neutral: ClassVar[float | None] = 0.0
    arithmetic: ClassVar[Arithmetic] = Arithmetic(numerics.add, integers.sum_of, numerics.add_int8)

    lo: float = -math.inf
    hi: float = math.inf


@register
@dataclass(frozen=True)
class Sub(Binary):
    """lhs - rhs."""

    name: ClassVar[str] = "Sub"
    additive: ClassVar[bool] = True
    neutral: ClassVar[float | None] = 0.0
    arithmetic: ClassVar[Arithmetic] = Arithmetic(numerics.sub, integers.difference, numerics.sub_int8)

    lo: float = -math.inf
    hi: float = math.inf


@register
@dataclass(frozen=True)
class Mul(Binary):
    """lhs * rhs."""

    name: ClassVar[str] = "Mul"
    commutative: ClassVar[bool] = True
    multiplicative: ClassVar[bool] = True
    neutral: ClassVar[float | None] = 1.0
    arithmetic: ClassVar[Arithmetic] = Arithmetic(numerics.mul, integers.product, numerics.mul_int8)

    lo: float = -math.inf
    hi: float = math.inf

    @property
    def keeps_zeros(self) -> bool:
        """Products of zeros are zeros unless the bounds cut them off."""
        return self.lo <= 0.0 <= self.hi


@register
@dataclass(frozen=True)
class Div(Binary):
    """lhs / rhs."""

    name: ClassVar[str] = "Div"
    divides: ClassVar[bool] = True
    arithmetic: ClassVar[Arithmetic] = Arithmetic(numerics.div, integers.quotient, numerics.div_int8)

    lo: float = -math.inf
    hi: float = math.inf


@register
@dataclass(frozen=True)
class Pow(Binary):
    """lhs to the power of rhs."""

    name: ClassVar[str] = "Pow"
    arithmetic: ClassVar[Arithmetic] = Arithmetic(numerics.power, integers.power, numerics.power_int8)

    lo: float = -math.inf
    hi: float = math.inf


@register
@dataclass(frozen=True)
class PRelu(Operator):
    """x, below 0 slope * x; the slope broadcasts to x and stays float in the int8 form."""

    name: ClassVar[str] = "PRelu"
    operands: ClassVar[tuple[str, ...]] = ("x", "slope")
    policy: ClassVar[Policy] = Rescaled()
    plain_operands: ClassVar[tuple[str, ...]] = ("slope",)
    aligned: ClassVar[bool] = True

    def infer(self, inputs: Types) -> tuple[TensorType, ...]:
        """The shape of x."""
        x, slope = float_operand(inputs, 0, "x"), float_operand(inputs, 1, "slope")
        fits = broadcast_shape(x.shape, slope.shape) == x.shape
        require(fits, f"operand slope is {slope}, which does not broadcast to {x}")
        return (x,)

    def evaluate(self, inputs: Arrays) -> tuple[Array, ...]:
        """Compute with numerics.elementwise.prelu."""
        return (numerics.prelu(given(inputs, 0), given(inputs, 1)),)

    def evaluate_quantized(
        self, inputs: Arrays, input_types: Types, output_types: Sequence[TensorType]
    ) -> tuple[Array, ...]:
        """Compute through float, by its own function only if both sides are int8."""
        x_quant, y_quant = parameters_of(input_types, 0), output_types[0].quantization
        if x_quant is None or y_quant is None:
            return super().evaluate_quantized(inputs, input_types, output_types)
        return (numerics.prelu_int8(given(inputs, 0), x_quant, given(inputs, 1), y_quant),)

    def scales_along(self, axis: int) -> bool:
        """Return True: factors are positive, so that they leave the side of 0 as it is."""
        return True


class Unary(Operator):
    """Base of float functions of each element."""

    operands: ClassVar[tuple[str, ...]] = ("x",)
    elementwise: ClassVar[bool] = True
    takes_slices: ClassVar[bool] = True

    def infer(self, inputs: Types) -> tuple[TensorType, ...]:
        """The shape of x."""
        return (float_operand(inputs, 0, "x"),)

    def with_channels(self, count: int, inputs: Types) -> Self | None:
        """Return the operator itself, which works for any number of channels."""
        return self


class Clamp(Unary):
    """Base of Relu and Clip: a rescale within bounds when int8."""

    policy: ClassVar[Policy] = Rescaled()
    clamps: ClassVar[bool] = True

    def scales_along(self, axis: int) -> bool:
        """Whether there is no lower bound other than 0, which factors would move."""
        return self.bounds[0] in (0.0, -math.inf)

    def evaluate(self, inputs: Arrays) -> tuple[Array, ...]:
        """Compute with numerics.elementwise.clip."""
        return (numerics.clip(given(inputs, 0), *self.bounds),)

    def evaluate_quantized(
        self, inputs: Arrays, input_types: Types, output_types: Sequence[TensorType]
    ) -> tuple[Array, ...]:
        """Rule 6 of the numeric contract: a rescale with narrowed bounds."""
        x_quant, y_quant = parameters_of(input_types, 0), output_types[0].quantization
        if x_quant is None or y_quant is None:
            return super().evaluate_quantized(inputs, input_types, output_types)
        return (numerics.clip_int8(given(inputs, 0), x_quant, y_quant, *self.bounds),)


@register
@dataclass(frozen=True)
class Relu(Clamp):
    """max(x, 0)."""

    name: ClassVar[str] = "Relu"

    @property
    def bounds(self) -> Bounds:
        """Bounds 0 and infinity."""
        return 0.0, math.inf


@register
@dataclass(frozen=True)
class Clip(Clamp, Bounded):
    """min(max(x, lo), hi)."""

    name: ClassVar[str] = "Clip"

    lo: float = -math.inf
    hi: float = math.inf

    def passes_through(self, inputs: Types) -> bool:
        """A clip without bounds."""
        return self.bounds == (-math.inf, math.inf)

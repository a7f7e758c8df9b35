"""Functions of one variable, tables in int8. https://onnx.ai/onnx/operators/ under the same names

PowerOf is Pow with one constant exponent.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from qglow.core.types import HALF_TYPES, Array, ElementType, TensorType
from qglow.graph.operator import KeepFloat, Policy, register, require
from qglow.graph.ops.elementwise import Tabulated
from qglow.graph.ops.rules import Arrays, Types, given, operand
from qglow.numerics import functions, polynomials
from qglow.numerics.half import round_to

Meaning = Callable[..., Array]
APPROXIMATIONS = ("none", "tanh")


class Function(Tabulated):
    """Base: `real` is the float32 meaning and `reference` the float64 one; both take x and the fields."""

    real: ClassVar[Meaning]
    reference: ClassVar[Meaning]

    def settings(self) -> tuple[Any, ...]:
        """The fields in order."""
        return tuple(getattr(self, field.name) for field in dataclasses.fields(self))

    def evaluate(self, inputs: Arrays) -> tuple[Array, ...]:
        """`real`."""
        return (type(self).real(given(inputs, 0), *self.settings()),)

    def reference64(self, x: Array) -> Array:
        """`reference`."""
        return type(self).reference(np.asarray(x, np.float64), *self.settings())


@register
@dataclass(frozen=True)
class Neg(Function):
    """-x."""

    name: ClassVar[str] = "Neg"
    real: ClassVar[Meaning] = staticmethod(functions.negative)
    reference: ClassVar[Meaning] = staticmethod(np.negative)

    def infer(self, inputs: Types) -> tuple[TensorType, ...]:
        """The type of x, which may hold integers."""
        x = operand(inputs, 0, "x")
        require(x.element is not ElementType.BOOL, f"operand x is {x}, it must be numbers")
        return (x,)

    def evaluate(self, inputs: Arrays) -> tuple[Array, ...]:
        """Of integers, too."""
        x = given(inputs, 0)
        return super().evaluate(inputs) if x.dtype == np.float32 else (np.negative(x),)


@register
@dataclass(frozen=True)
class Abs(Function):
    """|x|."""

    name: ClassVar[str] = "Abs"
    real: ClassVar[Meaning] = staticmethod(functions.absolute)
    reference: ClassVar[Meaning] = staticmethod(np.abs)


@register
@dataclass(frozen=True)
class Sqrt(Function):
    """The square root of x; NaN below 0."""

    name: ClassVar[str] = "Sqrt"
    real: ClassVar[Meaning] = staticmethod(functions.sqrt)
    reference: ClassVar[Meaning] = staticmethod(np.sqrt)


@register
@dataclass(frozen=True)
class Reciprocal(Function):
    """1 / x."""

    name: ClassVar[str] = "Reciprocal"
    real: ClassVar[Meaning] = staticmethod(functions.reciprocal)
    reference: ClassVar[Meaning] = staticmethod(functions.reciprocal_reference)


@register
@dataclass(frozen=True)
class Exp(Function):
    """e^x."""

    name: ClassVar[str] = "Exp"
    real: ClassVar[Meaning] = staticmethod(polynomials.exp)
    reference: ClassVar[Meaning] = staticmethod(polynomials.exp_reference)


@register
@dataclass(frozen=True)
class Log(Function):
    """The natural logarithm of x; NaN below 0."""

    name: ClassVar[str] = "Log"
    real: ClassVar[Meaning] = staticmethod(polynomials.log)
    reference: ClassVar[Meaning] = staticmethod(functions.log_reference)


@register
@dataclass(frozen=True)
class Erf(Function):
    """The error function."""

    name: ClassVar[str] = "Erf"
    real: ClassVar[Meaning] = staticmethod(polynomials.erf)
    reference: ClassVar[Meaning] = staticmethod(functions.erf_reference)


@register
@dataclass(frozen=True)
class Softplus(Function):
    """ln(1 + e^x)."""

    name: ClassVar[str] = "Softplus"
    real: ClassVar[Meaning] = staticmethod(polynomials.softplus)
    reference: ClassVar[Meaning] = staticmethod(functions.softplus_reference)


@register
@dataclass(frozen=True)
class Elu(Function):
    """x, below 0 alpha * (e^x - 1)."""

    name: ClassVar[str] = "Elu"
    real: ClassVar[Meaning] = staticmethod(functions.elu)
    reference: ClassVar[Meaning] = staticmethod(functions.elu_reference)

    alpha: float = 1.0


@register
@dataclass(frozen=True)
class LeakyRelu(Function):
    """x, below 0 alpha * x."""

    name: ClassVar[str] = "LeakyRelu"
    real: ClassVar[Meaning] = staticmethod(functions.leaky_relu)
    reference: ClassVar[Meaning] = staticmethod(functions.leaky_relu_reference)

    alpha: float = 0.01


@register
@dataclass(frozen=True)
class HardSigmoid(Function):
    """alpha * x + beta within 0 and 1."""

    name: ClassVar[str] = "HardSigmoid"
    real: ClassVar[Meaning] = staticmethod(functions.hard_sigmoid)
    reference: ClassVar[Meaning] = staticmethod(functions.hard_sigmoid_reference)

    alpha: float = 0.2
    beta: float = 0.5


@register
@dataclass(frozen=True)
class HardSwish(Function):
    """x times its hard sigmoid of slope 1/6."""

    name: ClassVar[str] = "HardSwish"
    real: ClassVar[Meaning] = staticmethod(functions.hard_swish)
    reference: ClassVar[Meaning] = staticmethod(functions.hard_swish_reference)


@register
@dataclass(frozen=True)
class Swish(Function):
    """x times the sigmoid of alpha * x; SiLU where alpha is 1."""

    name: ClassVar[str] = "Swish"
    real: ClassVar[Meaning] = staticmethod(functions.swish)
    reference: ClassVar[Meaning] = staticmethod(functions.swish_reference)

    alpha: float = 1.0


@register
@dataclass(frozen=True)
class Gelu(Function):
    """x times the normal distribution function; `approximate` is "none" or "tanh"."""

    name: ClassVar[str] = "Gelu"
    real: ClassVar[Meaning] = staticmethod(functions.gelu)
    reference: ClassVar[Meaning] = staticmethod(functions.gelu_reference)

    approximate: str = "none"

    def infer(self, inputs: Types) -> tuple[TensorType, ...]:
        """The shape of x."""
        require(self.approximate in APPROXIMATIONS, f"approximate is '{self.approximate}', not none or tanh")
        return super().infer(inputs)


@register
@dataclass(frozen=True)
class PowerOf(Function):
    """x^exponent."""

    name: ClassVar[str] = "PowerOf"
    real: ClassVar[Meaning] = staticmethod(functions.power_of)
    reference: ClassVar[Meaning] = staticmethod(functions.power_reference)

    exponent: float


@register
@dataclass(frozen=True)
class RoundTo(Function):
    """x rounded to the nearest number of `element`, "float16" or "bfloat16"; it stays float32.

    What ONNX has as a Cast to that type and another one back.
    """

    name: ClassVar[str] = "RoundTo"
    policy: ClassVar[Policy] = KeepFloat("it rounds reals to 16 bits")
    real: ClassVar[Meaning] = staticmethod(round_to)

    element: str = "float16"

    def infer(self, inputs: Types) -> tuple[TensorType, ...]:
        """The shape of x."""
        require(self.element in HALF_TYPES, f"element is '{self.element}', not {' or '.join(HALF_TYPES)}")
        return super().infer(inputs)

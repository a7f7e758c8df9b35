"""Functions of one variable, tables in int8. https://onnx.ai/onnx/operators/ under the same names

Settings, float32 meaning and float64 reference are those of numerics.scalar; here stand the operator's
name and what quantization does with it. PowerOf is Pow with one constant exponent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from qglow.core.types import Array, ElementType, TensorType
from qglow.graph.operator import Fixed, KeepFloat, Policy, Table, register, require
from qglow.graph.ops.elementwise import Unary
from qglow.graph.ops.rules import Arrays, Types, given, operand, parameters_of
from qglow.graph.traits import Bounds
from qglow.numerics.scalar import activations, angles, elementary
from qglow.numerics.scalar.arrays import evaluate
from qglow.numerics.scalar.function import ScalarFunction
from qglow.numerics.tables import apply_table, build_table


class Function(Unary, ScalarFunction):
    """Base of operators that are a scalar function, whose int8 form is a table of 256 entries (rule 7)."""

    policy: ClassVar[Policy] = Table()

    @property
    def result_range(self) -> Bounds:
        """Range that the function cannot leave."""
        return self.limits

    def infer(self, inputs: Types) -> tuple[TensorType, ...]:
        """The shape of x."""
        fault = self.fault()
        require(fault is None, str(fault))
        return super().infer(inputs)

    def evaluate(self, inputs: Arrays) -> tuple[Array, ...]:
        """The float32 meaning."""
        return (evaluate(self.real, given(inputs, 0)),)

    def evaluate_quantized(
        self, inputs: Arrays, input_types: Types, output_types: Sequence[TensorType]
    ) -> tuple[Array, ...]:
        """A look-up in the table of the actual parameters."""
        x_quant, y_quant = parameters_of(input_types, 0), output_types[0].quantization
        if x_quant is None or y_quant is None:
            return super().evaluate_quantized(inputs, input_types, output_types)
        table = build_table(self.reference64, x_quant, y_quant)
        return (apply_table(given(inputs, 0), table),)

    def reference64(self, x: Array) -> Array:
        """The float64 reference."""
        return self.reference(np.asarray(x, np.float64))


STEPS: Policy = KeepFloat("the rounding of its input decides between whole numbers")


@register
@dataclass(frozen=True)
class Neg(Function, elementary.Negative):
    """-x."""

    name: ClassVar[str] = "Neg"

    def infer(self, inputs: Types) -> tuple[TensorType, ...]:
        """The type of x, which may hold integers."""
        x = operand(inputs, 0, "x")
        require(x.element is not ElementType.BOOL, f"operand x is {x}, it must be numbers")
        return (x,)

    def evaluate(self, inputs: Arrays) -> tuple[Array, ...]:
        """The float32 meaning, or plain negation of integers."""
        x = given(inputs, 0)
        return super().evaluate(inputs) if x.dtype == np.float32 else (np.negative(x),)


@register
@dataclass(frozen=True)
class Abs(Function, elementary.Absolute):
    """|x|."""

    name: ClassVar[str] = "Abs"


@register
@dataclass(frozen=True)
class Round(Function, elementary.NearestWhole):
    """The nearest whole number, of two the even one."""

    name: ClassVar[str] = "Round"
    policy: ClassVar[Policy] = STEPS


@register
@dataclass(frozen=True)
class Floor(Function, elementary.Floored):
    """The largest whole number that is not above x."""

    name: ClassVar[str] = "Floor"
    policy: ClassVar[Policy] = STEPS


@register
@dataclass(frozen=True)
class Ceil(Function, elementary.Ceiling):
    """The smallest whole number that is not below x."""

    name: ClassVar[str] = "Ceil"
    policy: ClassVar[Policy] = STEPS


@register
@dataclass(frozen=True)
class Sign(Function, elementary.Signum):
    """1 above 0, -1 below, else 0; NaN stays."""

    name: ClassVar[str] = "Sign"
    policy: ClassVar[Policy] = STEPS


@register
@dataclass(frozen=True)
class Sqrt(Function, elementary.Sqrt):
    """The square root of x; NaN below 0."""

    name: ClassVar[str] = "Sqrt"
    tells_ratios: ClassVar[bool] = True
    is_root: ClassVar[bool] = True


@register
@dataclass(frozen=True)
class Reciprocal(Function, elementary.Reciprocal):
    """1 / x."""

    name: ClassVar[str] = "Reciprocal"


@register
@dataclass(frozen=True)
class Exp(Function, elementary.Exp):
    """e^x."""

    name: ClassVar[str] = "Exp"


@register
@dataclass(frozen=True)
class Log(Function, elementary.Log):
    """The natural logarithm of x; NaN below 0."""

    name: ClassVar[str] = "Log"
    tells_ratios: ClassVar[bool] = True


@register
@dataclass(frozen=True)
class Erf(Function, elementary.Erf):
    """The error function."""

    name: ClassVar[str] = "Erf"


@register
@dataclass(frozen=True)
class Sin(Function, angles.Sine):
    """The sine of x in radians."""

    name: ClassVar[str] = "Sin"


@register
@dataclass(frozen=True)
class Cos(Function, angles.Cosine):
    """The cosine of x in radians."""

    name: ClassVar[str] = "Cos"


@register
@dataclass(frozen=True)
class Atan(Function, angles.ArcTangent):
    """The angle whose tangent is x."""

    name: ClassVar[str] = "Atan"


@register
@dataclass(frozen=True)
class PowerOf(Function, elementary.PowerOf):
    """x^exponent."""

    name: ClassVar[str] = "PowerOf"


@register
@dataclass(frozen=True)
class RoundTo(Function, elementary.RoundTo):
    """x rounded to the nearest number of `element`, "float16" or "bfloat16"; it stays float32.

    What ONNX has as a Cast to that type and another one back.
    """

    name: ClassVar[str] = "RoundTo"
    policy: ClassVar[Policy] = KeepFloat("it rounds reals to 16 bits")

    @property
    def rounds_to(self) -> str:
        """`element`."""
        return self.element


@register
@dataclass(frozen=True)
class Sigmoid(Function, activations.Sigmoid):
    """1 / (1 + e^-x)."""

    name: ClassVar[str] = "Sigmoid"
    fixed: ClassVar[Fixed | None] = Fixed(1 / 256, -128)


@register
@dataclass(frozen=True)
class Tanh(Function, activations.Tanh):
    """The hyperbolic tangent."""

    name: ClassVar[str] = "Tanh"


@register
@dataclass(frozen=True)
class Softplus(Function, activations.Softplus):
    """ln(1 + e^x)."""

    name: ClassVar[str] = "Softplus"


@register
@dataclass(frozen=True)
class Elu(Function, activations.Elu):
    """x, below 0 alpha * (e^x - 1)."""

    name: ClassVar[str] = "Elu"


@register
@dataclass(frozen=True)
class LeakyRelu(Function, activations.LeakyRelu):
    """x, below 0 alpha * x."""

    name: ClassVar[str] = "LeakyRelu"

    def scales_along(self, axis: int) -> bool:
        """Return True: factors are positive, so that they leave the side of 0 as it is."""
        return True


@register
@dataclass(frozen=True)
class HardSigmoid(Function, activations.HardSigmoid):
    """alpha * x + beta within 0 and 1."""

    name: ClassVar[str] = "HardSigmoid"


@register
@dataclass(frozen=True)
class HardSwish(Function, activations.HardSwish):
    """x times its hard sigmoid of slope 1/6."""

    name: ClassVar[str] = "HardSwish"


@register
@dataclass(frozen=True)
class Swish(Function, activations.Swish):
    """x times the sigmoid of alpha * x; SiLU where alpha is 1."""

    name: ClassVar[str] = "Swish"


@register
@dataclass(frozen=True)
class Gelu(Function, activations.Gelu):
    """x times the normal distribution function; `approximate` is "none" or "tanh"."""

    name: ClassVar[str] = "Gelu"


@register
@dataclass(frozen=True)
class Mish(Function, activations.Mish):
    """x times tanh(ln(1 + e^x))."""

    name: ClassVar[str] = "Mish"

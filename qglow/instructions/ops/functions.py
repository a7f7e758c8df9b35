"""Functions of one variable, float32, as in numerics; attributes are their settings."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from qglow.core.types import HALF_TYPES, Array
from qglow.instructions.operation import Arrays, Operand, Operation, Types, out, read, register, require
from qglow.instructions.ops.rules import require_float, require_shape
from qglow.numerics import functions, polynomials
from qglow.numerics.half import round_to

Meaning = Callable[..., Array]


@dataclass(frozen=True)
class Function(Operation):
    """dest = meaning(src, attributes in order), float32."""

    signature: ClassVar[tuple[Operand, ...]] = (out(strided=True), read(strided=True))
    in_place: ClassVar[tuple[tuple[str, str], ...]] = (("dest", "src"),)
    data_parallel: ClassVar[bool] = True
    meaning: ClassVar[Meaning]

    def settings(self) -> tuple[Any, ...]:
        """The attributes in order."""
        return tuple(getattr(self, field.name) for field in dataclasses.fields(self))

    def verify(self, types: Types) -> None:
        """Floats of one shape."""
        require_float(types, "dest", "src")
        require_shape(types, "src", types["dest"].shape, "that of dest")

    def execute(self, arrays: Arrays, types: Types) -> None:
        """numerics.functions and numerics.polynomials."""
        arrays["dest"][...] = type(self).meaning(arrays["src"], *self.settings())


@register
@dataclass(frozen=True)
class Negative(Function):
    """dest = -src."""

    opcode: ClassVar[str] = "negative"
    meaning: ClassVar[Meaning] = staticmethod(functions.negative)


@register
@dataclass(frozen=True)
class Absolute(Function):
    """dest = |src|."""

    opcode: ClassVar[str] = "absolute"
    meaning: ClassVar[Meaning] = staticmethod(functions.absolute)


@register
@dataclass(frozen=True)
class Sqrt(Function):
    """dest = the square root of src."""

    opcode: ClassVar[str] = "sqrt"
    meaning: ClassVar[Meaning] = staticmethod(functions.sqrt)


@register
@dataclass(frozen=True)
class Reciprocal(Function):
    """dest = 1 / src."""

    opcode: ClassVar[str] = "reciprocal"
    meaning: ClassVar[Meaning] = staticmethod(functions.reciprocal)


@register
@dataclass(frozen=True)
class Exp(Function):
    """dest = e^src."""

    opcode: ClassVar[str] = "exp"
    meaning: ClassVar[Meaning] = staticmethod(polynomials.exp)


@register
@dataclass(frozen=True)
class Log(Function):
    """dest = ln src."""

    opcode: ClassVar[str] = "log"
    meaning: ClassVar[Meaning] = staticmethod(polynomials.log)


@register
@dataclass(frozen=True)
class Erf(Function):
    """dest = erf src."""

    opcode: ClassVar[str] = "erf"
    meaning: ClassVar[Meaning] = staticmethod(polynomials.erf)


@register
@dataclass(frozen=True)
class Softplus(Function):
    """dest = ln(1 + e^src)."""

    opcode: ClassVar[str] = "softplus"
    meaning: ClassVar[Meaning] = staticmethod(polynomials.softplus)


@register
@dataclass(frozen=True)
class Elu(Function):
    """dest = src, below 0 alpha * (e^src - 1)."""

    opcode: ClassVar[str] = "elu"
    meaning: ClassVar[Meaning] = staticmethod(functions.elu)

    alpha: float = 1.0


@register
@dataclass(frozen=True)
class LeakyRelu(Function):
    """dest = src, below 0 alpha * src."""

    opcode: ClassVar[str] = "leakyrelu"
    meaning: ClassVar[Meaning] = staticmethod(functions.leaky_relu)

    alpha: float = 0.01


@register
@dataclass(frozen=True)
class HardSigmoid(Function):
    """dest = alpha * src + beta within 0 and 1."""

    opcode: ClassVar[str] = "hardsigmoid"
    meaning: ClassVar[Meaning] = staticmethod(functions.hard_sigmoid)

    alpha: float = 0.2
    beta: float = 0.5


@register
@dataclass(frozen=True)
class HardSwish(Function):
    """dest = src times its hard sigmoid of slope 1/6."""

    opcode: ClassVar[str] = "hardswish"
    meaning: ClassVar[Meaning] = staticmethod(functions.hard_swish)


@register
@dataclass(frozen=True)
class Swish(Function):
    """dest = src times the sigmoid of alpha * src."""

    opcode: ClassVar[str] = "swish"
    meaning: ClassVar[Meaning] = staticmethod(functions.swish)

    alpha: float = 1.0


@register
@dataclass(frozen=True)
class Gelu(Function):
    """dest = src times the normal distribution function; `approximate` is "none" or "tanh"."""

    opcode: ClassVar[str] = "gelu"
    meaning: ClassVar[Meaning] = staticmethod(functions.gelu)

    approximate: str = "none"

    def verify(self, types: Types) -> None:
        """One of both forms."""
        known = self.approximate in ("none", "tanh")
        require(known, f"approximate is '{self.approximate}', not none or tanh")
        super().verify(types)


@register
@dataclass(frozen=True)
class PowerOf(Function):
    """dest = src^exponent."""

    opcode: ClassVar[str] = "powerof"
    meaning: ClassVar[Meaning] = staticmethod(functions.power_of)

    exponent: float = 1.0


@register
@dataclass(frozen=True)
class RoundTo(Function):
    """dest = src, rounded to the nearest "float16" or "bfloat16"; it stays float32."""

    opcode: ClassVar[str] = "roundto"
    meaning: ClassVar[Meaning] = staticmethod(round_to)

    element: str = "float16"

    def verify(self, types: Types) -> None:
        """A type of 16 bits."""
        require(self.element in HALF_TYPES, f"element is '{self.element}', not {' or '.join(HALF_TYPES)}")
        super().verify(types)

"""Elementary functions of one variable. See the ONNX operators of similar names."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from qglow.core.types import HALF_TYPES, Array
from qglow.numerics.scalar import algebra, half, polynomials
from qglow.numerics.scalar.algebra import Real
from qglow.numerics.scalar.clamps import floored, magnitude, negated, rounded
from qglow.numerics.scalar.function import ScalarFunction, declare

ROOTS = (0.25, 0.5, 0.75)
"""Exponents whose power is roots and one product: within 2.5 units in the last place, and no polynomial."""


def erf64(x: Array) -> Array:
    """The error function in float64."""
    return np.asarray(np.vectorize(math.erf, otypes=[np.float64])(x))


@declare
@dataclass(frozen=True)
class Negative(ScalarFunction):
    """-x."""

    def real(self, x: Real) -> Real:
        """The sign bit flipped."""
        return negated(x)

    def reference(self, x: Array) -> Array:
        """-x."""
        return np.negative(x)


@declare
@dataclass(frozen=True)
class Absolute(ScalarFunction):
    """|x|."""

    limits: ClassVar[tuple[float, float]] = (0.0, math.inf)

    def real(self, x: Real) -> Real:
        """The sign bit cleared."""
        return magnitude(x)

    def reference(self, x: Array) -> Array:
        """|x|."""
        return np.abs(x)


@declare
@dataclass(frozen=True)
class NearestWhole(ScalarFunction):
    """The nearest whole number, of two the even one."""

    def real(self, x: Real) -> Real:
        """Exact."""
        return rounded(x)

    def reference(self, x: Array) -> Array:
        """numpy.rint."""
        return np.asarray(np.rint(x))


@declare
@dataclass(frozen=True)
class Floored(ScalarFunction):
    """The largest whole number that is not above x."""

    def real(self, x: Real) -> Real:
        """Exact."""
        return floored(x)

    def reference(self, x: Array) -> Array:
        """numpy.floor."""
        return np.asarray(np.floor(x))


@declare
@dataclass(frozen=True)
class Ceiling(ScalarFunction):
    """The smallest whole number that is not below x."""

    def real(self, x: Real) -> Real:
        """Exact."""
        return negated(floored(negated(x)))

    def reference(self, x: Array) -> Array:
        """numpy.ceil."""
        return np.asarray(np.ceil(x))


@declare
@dataclass(frozen=True)
class Signum(ScalarFunction):
    """1 above 0, -1 below, else 0; NaN stays."""

    limits: ClassVar[tuple[float, float]] = (-1.0, 1.0)

    def real(self, x: Real) -> Real:
        """Exact."""
        return algebra.select(x > 0.0, 1.0, algebra.select(x.is_negative(), -1.0, x + 0.0))

    def reference(self, x: Array) -> Array:
        """numpy.sign."""
        return np.asarray(np.sign(x))


@declare
@dataclass(frozen=True)
class Sqrt(ScalarFunction):
    """The square root; NaN below 0."""

    limits: ClassVar[tuple[float, float]] = (0.0, math.inf)

    def real(self, x: Real) -> Real:
        """Correctly rounded."""
        return algebra.sqrt(x)

    def reference(self, x: Array) -> Array:
        """The square root."""
        return np.asarray(np.sqrt(x))


@declare
@dataclass(frozen=True)
class Reciprocal(ScalarFunction):
    """1 / x."""

    def real(self, x: Real) -> Real:
        """A true division."""
        return 1.0 / x

    def reference(self, x: Array) -> Array:
        """1 / x."""
        return np.asarray(1.0 / x)


@declare
@dataclass(frozen=True)
class Exp(ScalarFunction):
    """e^x."""

    limits: ClassVar[tuple[float, float]] = (0.0, math.inf)

    def real(self, x: Real) -> Real:
        """Compute with polynomials.exp."""
        return polynomials.exp(x)

    def reference(self, x: Array) -> Array:
        """e^x."""
        return np.exp(x)


@declare
@dataclass(frozen=True)
class Log(ScalarFunction):
    """The natural logarithm; NaN below 0."""

    def real(self, x: Real) -> Real:
        """Compute with polynomials.log."""
        return polynomials.log(x)

    def reference(self, x: Array) -> Array:
        """ln x."""
        return np.asarray(np.log(x))


@declare
@dataclass(frozen=True)
class Erf(ScalarFunction):
    """The error function."""

    def real(self, x: Real) -> Real:
        """Compute with polynomials.erf."""
        return polynomials.erf(x)

    def reference(self, x: Array) -> Array:
        """erf x."""
        return erf64(x)


@declare
@dataclass(frozen=True)
class PowerOf(ScalarFunction):
    """x^exponent."""

    exponent: float = 1.0

    def real(self, x: Real) -> Real:
        """Products and roots for the exponents that have them, else polynomials.power."""
        if self.exponent == 1.0:
            return x
        if self.exponent == 2.0:
            return x * x
        if self.exponent == 3.0:
            return (x * x) * x
        if self.exponent in ROOTS:
            return _root(x, self.exponent)
        return polynomials.power(x, x.constant(self.exponent))

    def reference(self, x: Array) -> Array:
        """x^exponent."""
        return np.asarray(np.power(x, self.exponent))


def _root(x: Real, exponent: float) -> Real:
    root = algebra.sqrt(x + 0.0)  # -0 has the roots of 0
    if exponent == 0.5:
        result = root
    else:
        fourth = algebra.sqrt(root)
        result = fourth if exponent == 0.25 else root * fourth
    return algebra.select(x.equals(-math.inf), math.inf, result)


@declare
@dataclass(frozen=True)
class RoundTo(ScalarFunction):
    """x rounded to the nearest number of `element`, "float16" or "bfloat16"; it stays float32."""

    element: str = "float16"

    def real(self, x: Real) -> Real:
        """Compute with half.rounded."""
        return half.rounded(x, self.element)

    def fault(self) -> str | None:
        """A type of 16 bits is needed."""
        known = self.element in HALF_TYPES
        return None if known else f"element is '{self.element}', not {' or '.join(HALF_TYPES)}"

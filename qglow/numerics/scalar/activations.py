"""Activation functions of one variable. See the ONNX operators of these names."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from qglow.core.types import Array
from qglow.numerics.scalar import polynomials
from qglow.numerics.scalar.algebra import Real, select
from qglow.numerics.scalar.clamps import clip
from qglow.numerics.scalar.elementary import erf64
from qglow.numerics.scalar.function import ScalarFunction, declare

SIXTH = 0.1666666716337204
GELU_LINEAR = 1.5957691669464111
"""2 sqrt(2 / pi): twice the argument of Gelu's tanh, because (1 + tanh u) / 2 = sigmoid(2 u)."""
GELU_CUBIC = 0.044714998453855515
APPROXIMATIONS = ("none", "tanh")


def sigmoid64(x: Array) -> Array:
    """1 / (1 + e^-x) in float64."""
    with np.errstate(over="ignore"):
        return np.asarray(1.0 / (1.0 + np.exp(-x)))


def softplus64(x: Array) -> Array:
    """ln(1 + e^x) in float64."""
    return np.asarray(np.logaddexp(0.0, x))


@declare
@dataclass(frozen=True)
class Sigmoid(ScalarFunction):
    """1 / (1 + e^-x)."""

    limits: ClassVar[tuple[float, float]] = (0.0, 1.0)

    def real(self, x: Real) -> Real:
        """Compute with polynomials.sigmoid."""
        return polynomials.sigmoid(x)

    def reference(self, x: Array) -> Array:
        """1 / (1 + e^-x)."""
        return sigmoid64(x)


@declare
@dataclass(frozen=True)
class Tanh(ScalarFunction):
    """The hyperbolic tangent."""

    def real(self, x: Real) -> Real:
        """Compute with polynomials.tanh."""
        return polynomials.tanh(x)

    def reference(self, x: Array) -> Array:
        """tanh x."""
        return np.tanh(x)


@declare
@dataclass(frozen=True)
class Softplus(ScalarFunction):
    """ln(1 + e^x)."""

    limits: ClassVar[tuple[float, float]] = (0.0, math.inf)

    def real(self, x: Real) -> Real:
        """Compute with polynomials.softplus."""
        return polynomials.softplus(x)

    def reference(self, x: Array) -> Array:
        """ln(1 + e^x)."""
        return softplus64(x)


@declare
@dataclass(frozen=True)
class Elu(ScalarFunction):
    """x, below 0 alpha * (e^x - 1)."""

    alpha: float = 1.0

    def real(self, x: Real) -> Real:
        """Select x, or alpha times polynomials.expm1 below 0."""
        below = self.alpha * polynomials.expm1(x)
        return select(x.is_negative(), below, x)

    def reference(self, x: Array) -> Array:
        """x, below 0 alpha * (e^x - 1)."""
        return np.where(x < 0.0, self.alpha * np.expm1(x), x)


@declare
@dataclass(frozen=True)
class LeakyRelu(ScalarFunction):
    """x, below 0 alpha * x."""

    alpha: float = 0.01

    def real(self, x: Real) -> Real:
        """One product."""
        below = self.alpha * x
        return select(x.is_negative(), below, x)

    def reference(self, x: Array) -> Array:
        """x, below 0 alpha * x."""
        return np.where(x < 0.0, self.alpha * x, x)


@declare
@dataclass(frozen=True)
class HardSigmoid(ScalarFunction):
    """alpha * x + beta within 0 and 1."""

    limits: ClassVar[tuple[float, float]] = (0.0, 1.0)

    alpha: float = 0.2
    beta: float = 0.5

    def real(self, x: Real) -> Real:
        """A product, a sum and two bounds."""
        return clip(x * self.alpha + self.beta, 0.0, 1.0)

    def reference(self, x: Array) -> Array:
        """alpha * x + beta within 0 and 1."""
        return np.asarray(np.clip(self.alpha * x + self.beta, 0.0, 1.0))


@declare
@dataclass(frozen=True)
class HardSwish(ScalarFunction):
    """x times its hard sigmoid of slope 1/6."""

    def real(self, x: Real) -> Real:
        """One product more than the hard sigmoid."""
        return x * HardSigmoid(SIXTH, 0.5).real(x)

    def reference(self, x: Array) -> Array:
        """x times its hard sigmoid."""
        return np.asarray(x * HardSigmoid(1 / 6, 0.5).reference(x))


@declare
@dataclass(frozen=True)
class Swish(ScalarFunction):
    """x times the sigmoid of alpha * x; SiLU where alpha is 1."""

    alpha: float = 1.0

    def real(self, x: Real) -> Real:
        """Multiply x by polynomials.sigmoid of alpha x."""
        inner = x if self.alpha == 1.0 else x * self.alpha
        return polynomials.sigmoid(inner) * x

    def reference(self, x: Array) -> Array:
        """x times the sigmoid of alpha * x."""
        return np.asarray(x * sigmoid64(self.alpha * x))


@declare
@dataclass(frozen=True)
class Gelu(ScalarFunction):
    """x times the normal distribution function; `approximate` is "none" or "tanh"."""

    approximate: str = "none"

    def real(self, x: Real) -> Real:
        """Compute with polynomials.normal_distribution, or with the tanh approximation as a sigmoid."""
        if self.approximate == "tanh":
            cube = (x * x) * x
            return x * polynomials.sigmoid((cube * GELU_CUBIC + x) * GELU_LINEAR)
        return x * polynomials.normal_distribution(x)

    def reference(self, x: Array) -> Array:
        """Compute with erf or tanh."""
        if self.approximate == "tanh":
            return np.asarray(0.5 * x * (1.0 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))))
        return np.asarray(0.5 * x * (1.0 + erf64(x / math.sqrt(2))))

    def fault(self) -> str | None:
        """One of both forms is needed."""
        known = self.approximate in APPROXIMATIONS
        return None if known else f"approximate is '{self.approximate}', not none or tanh"


@declare
@dataclass(frozen=True)
class Mish(ScalarFunction):
    """x times tanh(ln(1 + e^x))."""

    def real(self, x: Real) -> Real:
        """Within 4 units in the last place down to x = -87, where e^x loses digits."""
        return x * polynomials.tanh(polynomials.softplus(x))

    def reference(self, x: Array) -> Array:
        """x times tanh(ln(1 + e^x))."""
        return np.asarray(x * np.tanh(softplus64(x)))

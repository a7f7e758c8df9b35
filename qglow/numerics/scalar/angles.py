"""Sine, cosine and arc tangent. See the ONNX operators of these names."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from qglow.core.types import Array
from qglow.numerics.scalar.algebra import Condition, Int, Real, select
from qglow.numerics.scalar.clamps import magnitude, with_sign_of
from qglow.numerics.scalar.function import ScalarFunction, declare
from qglow.numerics.scalar.polynomials import ROUND_MAGIC, ROUND_MAGIC_BITS, horner

TWO_BY_PI = 0.6366197466850281
HALF_PI_PARTS = (1.5703125, 4.837512969970703e-4, 7.549789415861596e-8)
"""Half of pi in three numbers, the first two of few bits: their products with small integers are exact."""
LARGEST_ANGLE = 4194304.0
"""2^22: from here on neighbouring numbers lie so far apart that quarters of a turn cannot be counted."""
SINE_COEFFICIENTS = (
    2.6083159809786594e-06,
    -0.0001981069071916863,
    0.008333078585565090,
    -0.16666659712791443,
)
"""q of sin(r) = r + r^3 q(r^2) for |r| <= pi / 4, highest power first."""
COSINE_COEFFICIENTS = (
    -2.7181184236724221e-07,
    2.4799044695100747e-05,
    -0.0013888878747820854,
    0.041666664183139801,
    -0.5,
)
"""q of cos(r) = 1 + r^2 q(r^2) for |r| <= pi / 4, highest power first."""

TAN_THREE_EIGHTHS = 2.414213562373095
TAN_EIGHTH = 0.4142135623730950
"""Tangents of 3/8 and 1/8 of pi: above the first -1 / x is taken, above the second (x - 1) / (x + 1)."""
ATAN_COEFFICIENTS = (0.0805374449538, -0.138776856032, 0.199777106478, -0.333329491539)
"""q of atan(x) = x + x^3 q(x^2) for |x| <= tan(pi / 8), highest power first."""


def _turned(x: Real, quarters: int) -> Real:
    """The sine of x and some quarters of a turn, within 1e-7 up to 10^4; NaN from LARGEST_ANGLE on."""
    shifted = x * TWO_BY_PI + ROUND_MAGIC
    whole = shifted - ROUND_MAGIC
    rest = x
    for part in HALF_PI_PARTS:
        rest = rest - whole * part
    count = (shifted.bits() - ROUND_MAGIC_BITS) + quarters
    square = rest * rest
    sine = (square * horner(square, SINE_COEFFICIENTS)) * rest + rest
    cosine = square * horner(square, COSINE_COEFFICIENTS) + 1.0
    y = select(_is_zero(count & 1), sine, cosine)
    y = select(_is_zero(count & 2), y, 0.0 - y)
    return select(magnitude(x) < LARGEST_ANGLE, y, math.nan)


def _is_zero(n: Int) -> Condition:
    return n.compared("==", 0)


@declare
@dataclass(frozen=True)
class Sine(ScalarFunction):
    """The sine of an angle in radians."""

    limits: ClassVar[tuple[float, float]] = (-1.0, 1.0)

    def real(self, x: Real) -> Real:
        """A polynomial of what is left of whole quarters of a turn."""
        return _turned(x, 0)

    def reference(self, x: Array) -> Array:
        """numpy.sin."""
        return np.asarray(np.sin(x))


@declare
@dataclass(frozen=True)
class Cosine(ScalarFunction):
    """The cosine of an angle in radians."""

    limits: ClassVar[tuple[float, float]] = (-1.0, 1.0)

    def real(self, x: Real) -> Real:
        """The sine a quarter of a turn on."""
        return _turned(x, 1)

    def reference(self, x: Array) -> Array:
        """numpy.cos."""
        return np.asarray(np.cos(x))


@declare
@dataclass(frozen=True)
class ArcTangent(ScalarFunction):
    """The angle in radians, between -pi / 2 and pi / 2, whose tangent is x."""

    def real(self, x: Real) -> Real:
        """A polynomial around 0, within 2e-7; infinities give quarters of a turn."""
        size = magnitude(x)
        large, middle = size > TAN_THREE_EIGHTHS, size > TAN_EIGHTH
        reduced = select(middle, (size - 1.0) / (size + 1.0), size)
        reduced = select(large, -1.0 / size, reduced)
        start = select(large, math.pi / 2, select(middle, math.pi / 4, 0.0))
        square = reduced * reduced
        y = (square * horner(square, ATAN_COEFFICIENTS)) * reduced + reduced
        return with_sign_of(start + y, x)

    def reference(self, x: Array) -> Array:
        """numpy.arctan."""
        return np.asarray(np.arctan(x))

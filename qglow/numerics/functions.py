"""Functions of one variable: the float32 sequence of operations, and the float64 reference for tables.

Each pair takes the operator's settings after x. See the ONNX operators of these names.
"""

from __future__ import annotations

import math

import numpy as np

from qglow.core.types import Array
from qglow.numerics.elementwise import clip
from qglow.numerics.polynomials import ONE, SIGN_BIT, erf, expm1, power, sigmoid, sigmoid_reference

SQRT_HALF = np.float32(0.7071067690849304)
SIXTH = np.float32(0.1666666716337204)
GELU_LINEAR = np.float32(1.5957691669464111)
"""2 sqrt(2 / pi): twice the argument of Gelu's tanh, because (1 + tanh u) / 2 = sigmoid(2 u)."""
GELU_CUBIC = np.float32(0.044714998453855515)


def negative(x: Array) -> Array:
    """-x: the sign bit flipped."""
    return np.asarray((np.asarray(x, np.float32).view(np.int32) ^ SIGN_BIT).view(np.float32))


def absolute(x: Array) -> Array:
    """|x|."""
    return np.abs(np.asarray(x, np.float32))


def sqrt(x: Array) -> Array:
    """The square root, correctly rounded; NaN below 0."""
    with np.errstate(invalid="ignore"):
        return np.asarray(np.sqrt(np.asarray(x, np.float32)))


def reciprocal(x: Array) -> Array:
    """1 / x."""
    with np.errstate(all="ignore"):
        return np.asarray(ONE / np.asarray(x, np.float32))


def leaky_relu(x: Array, alpha: float) -> Array:
    """x, below 0 `alpha * x`."""
    x = np.asarray(x, np.float32)
    with np.errstate(all="ignore"):
        return np.where(np.float32(0.0) > x, np.float32(alpha) * x, x)


def elu(x: Array, alpha: float) -> Array:
    """x, below 0 `alpha * (e^x - 1)`."""
    x = np.asarray(x, np.float32)
    return np.where(np.float32(0.0) > x, np.float32(alpha) * expm1(x), x)


def hard_sigmoid(x: Array, alpha: float, beta: float) -> Array:
    """`alpha * x + beta` within 0 and 1."""
    with np.errstate(all="ignore"):
        return clip(np.asarray(x, np.float32) * np.float32(alpha) + np.float32(beta), 0.0, 1.0)


def hard_swish(x: Array) -> Array:
    """x times its hard sigmoid of slope 1/6."""
    with np.errstate(all="ignore"):
        return np.asarray(np.asarray(x, np.float32) * hard_sigmoid(x, float(SIXTH), 0.5))


def swish(x: Array, alpha: float) -> Array:
    """x times the sigmoid of `alpha * x`."""
    x = np.asarray(x, np.float32)
    with np.errstate(all="ignore"):
        return np.asarray(sigmoid(x if alpha == 1.0 else x * np.float32(alpha)) * x)


def gelu(x: Array, approximate: str) -> Array:
    """x times the normal distribution function: by erf, or by the tanh approximation as a sigmoid."""
    x = np.asarray(x, np.float32)
    with np.errstate(all="ignore"):
        if approximate == "tanh":
            cube = (x * x) * x
            return np.asarray(x * sigmoid((cube * GELU_CUBIC + x) * GELU_LINEAR))
        return np.asarray((x * np.float32(0.5)) * (erf(x * SQRT_HALF) + ONE))


def power_of(x: Array, exponent: float) -> Array:
    """x^exponent: products and roots for the exponents that have them, else polynomials.power."""
    x = np.asarray(x, np.float32)
    with np.errstate(all="ignore"):
        if exponent == 1.0:
            return x
        if exponent == 2.0:
            return x * x
        if exponent == 3.0:
            return (x * x) * x
        if exponent in ROOTS:
            return _root(x, exponent)
        return power(x, np.full_like(x, exponent))


ROOTS = (0.25, 0.5, 0.75)
"""Exponents whose power is roots and one product: within 2.5 units in the last place, and no polynomial."""


def _root(x: Array, exponent: float) -> Array:
    root = sqrt(x)
    if exponent == 0.5:
        return root
    fourth = sqrt(root)
    return fourth if exponent == 0.25 else np.asarray(root * fourth)


def log_reference(x: Array) -> Array:
    """ln x in float64."""
    return np.asarray(np.log(x))


def erf_reference(x: Array) -> Array:
    """erf in float64."""
    return np.asarray(np.vectorize(math.erf, otypes=[np.float64])(x))


def softplus_reference(x: Array) -> Array:
    """ln(1 + e^x) in float64."""
    return np.asarray(np.logaddexp(0.0, np.asarray(x, np.float64)))


def reciprocal_reference(x: Array) -> Array:
    """1 / x in float64."""
    return np.asarray(1.0 / np.asarray(x, np.float64))


def leaky_relu_reference(x: Array, alpha: float) -> Array:
    """As leaky_relu, in float64."""
    return np.where(x < 0.0, alpha * x, x)


def elu_reference(x: Array, alpha: float) -> Array:
    """As elu, in float64."""
    return np.where(x < 0.0, alpha * np.expm1(x), x)


def hard_sigmoid_reference(x: Array, alpha: float, beta: float) -> Array:
    """As hard_sigmoid, in float64."""
    return np.asarray(np.clip(alpha * x + beta, 0.0, 1.0))


def hard_swish_reference(x: Array) -> Array:
    """As hard_swish, in float64."""
    return np.asarray(x * hard_sigmoid_reference(x, 1 / 6, 0.5))


def swish_reference(x: Array, alpha: float) -> Array:
    """As swish, in float64."""
    return np.asarray(x * sigmoid_reference(alpha * np.asarray(x, np.float64)))


def gelu_reference(x: Array, approximate: str) -> Array:
    """As gelu, in float64."""
    x = np.asarray(x, np.float64)
    if approximate == "tanh":
        return np.asarray(0.5 * x * (1.0 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))))
    return np.asarray(0.5 * x * (1.0 + erf_reference(x / math.sqrt(2))))


def power_reference(x: Array, exponent: float) -> Array:
    """x^exponent in float64."""
    return np.asarray(np.power(np.asarray(x, np.float64), exponent))

"""Transcendental functions as one sequence of float32 operations each (rule 8 of the contract).

Every line below is one IEEE float32 or int32 operation per element, so that a code generator
can follow it line by line and give the same bits: a multiplication and the addition after it
are rounded separately (no fused multiply-add). Constants are float32 values in full. The
coefficients are minimax fits in float64, rounded to float32.
"""

from __future__ import annotations

import numpy as np

from qglow.core.types import Array

LOG2_E = np.float32(1.44269502162933349609375)
LN2_HIGH = np.float32(0.693359375)
"""ln 2 in 9 bits: its product with an integer below 2^15 is exact."""
LN2_LOW = np.float32(-2.12194442166946828365325927734375e-4)
"""ln 2 - LN2_HIGH."""

ROUND_MAGIC = np.float32(12582912.0)
"""1.5 * 2^23: adding it rounds to an integer, half to even, which is then in the low bits."""
ROUND_MAGIC_BITS = np.int32(0x4B400000)

EXP_LOWEST = np.float32(-104.0)
"""exp is 0 from here down."""
EXP_HIGHEST = np.float32(89.0)
"""exp is infinite from here up."""
EXP_COEFFICIENTS = (
    np.float32(1.3863667845726013e-3),
    np.float32(8.367609232664108e-3),
    np.float32(4.166724160313606e-2),
    np.float32(1.6666533052921295e-1),
    np.float32(0.5),
)
"""q of exp(r) = 1 + (r + r^2 * q(r)) for |r| <= ln 2 / 2, highest power first."""
EXPONENT_BIAS = np.int32(127)
MANTISSA_BITS = np.int32(23)

TANH_SMALL = np.float32(0.625)
"""Below this magnitude tanh is a polynomial, above it a quotient of exponentials."""
TANH_COEFFICIENTS = (
    np.float32(-5.704986862838268e-3),
    np.float32(2.06390880048275e-2),
    np.float32(-5.373971536755562e-2),
    np.float32(1.3331441581249237e-1),
    np.float32(-3.333328068256378e-1),
)
"""q of tanh(x) = x + x * (x^2 * q(x^2)), highest power first."""

LOG_COEFFICIENTS = (
    np.float32(0.06746640801429749),
    np.float32(-0.11675652116537094),
    np.float32(0.11888162046670914),
    np.float32(-0.1240558922290802),
    np.float32(0.14219552278518677),
    np.float32(-0.1666799634695053),
    np.float32(0.2000211924314499),
    np.float32(-0.25000008940696716),
    np.float32(0.3333331346511841),
)
"""q of log(1 + f) = f - f^2 / 2 + f^3 * q(f) for sqrt(1/2) <= 1 + f <= sqrt(2), highest power first."""
SQRT_HALF_BITS = np.int32(0x3F3504F3)
SQRT_TWO_LESS_ONE = np.float32(0.41421356797218323)
SMALLEST_NORMAL = np.float32(1.1754943508222875e-38)
TWO_TO_23 = np.float32(8388608.0)

EXPM1_SMALL = np.float32(0.34375)
"""Below this magnitude e^x - 1 is exp's polynomial, where a difference would lose its digits."""

ERF_SMALL = np.float32(0.921875)
"""Below this magnitude erf is a polynomial, above it 1 - e^p(x)."""
ERF_LARGE = np.float32(4.0)
"""erf is 1 from here on."""
ERF_SMALL_COEFFICIENTS = (
    np.float32(-0.0005990853533148766),
    np.float32(0.004993180278688669),
    np.float32(-0.026766616851091385),
    np.float32(0.1128181591629982),
    np.float32(-0.37612494826316833),
    np.float32(0.12837915122509003),
)
"""q of erf(x) = x + x * q(x^2), highest power first."""
ERF_LARGE_COEFFICIENTS = (
    np.float32(0.0001957207132363692),
    np.float32(-0.003041093237698078),
    np.float32(0.022218452766537666),
    np.float32(-0.10391402989625931),
    np.float32(-0.637202262878418),
    np.float32(-1.1276637315750122),
    np.float32(-0.0001985546841751784),
)
"""p of erf(x) = 1 - e^p(x), highest power first."""

ONE = np.float32(1.0)
TWO = np.float32(2.0)
HALF = np.float32(0.5)
SIGN_BIT = np.int32(-(2**31))
MAGNITUDE_BITS = np.int32(2**31 - 1)


def exp(x: Array) -> Array:
    """e^x of float32, within 1 unit in the last place and monotone; underflow is gradual, NaN passes."""
    x = np.asarray(x, np.float32)
    with np.errstate(all="ignore"):
        x = np.where(x < EXP_LOWEST, EXP_LOWEST, x)
        x = np.where(x > EXP_HIGHEST, EXP_HIGHEST, x)
        shifted = x * LOG2_E + ROUND_MAGIC
        whole = shifted - ROUND_MAGIC
        n = shifted.view(np.int32) - ROUND_MAGIC_BITS
        r = x - whole * LN2_HIGH
        r = r - whole * LN2_LOW
        q = horner(r, EXP_COEFFICIENTS)
        y = (r * r) * q
        y = y + r
        y = y + ONE
        # Two factors, because 2^n itself may be infinite or zero where the result is not.
        half = n >> np.int32(1)
        y = y * power_of_two(half)
        return np.asarray(y * power_of_two(n - half))


def sigmoid(x: Array) -> Array:
    """1 / (1 + e^-x) of float32: e / (1 + e) with e = e^-|x| and 1 as numerator for x >= 0.

    Within 3 units in the last place, also where the result is tiny; monotone but for single
    units below 0; NaN passes.
    """
    x = np.asarray(x, np.float32)
    negated = (x.view(np.int32) | SIGN_BIT).view(np.float32)
    e = exp(negated)
    numerator = np.where(np.float32(0.0) > x, e, ONE)
    with np.errstate(all="ignore"):
        return np.asarray(numerator / (ONE + e))


def tanh(x: Array) -> Array:
    """tanh of float32, within 2 units in the last place, monotone and odd; -0.0 and NaN pass."""
    x = np.asarray(x, np.float32)
    bits = x.view(np.int32)
    magnitude = _magnitude(x)
    with np.errstate(all="ignore"):
        square = magnitude * magnitude
        small = square * horner(square, TANH_COEFFICIENTS)
        small = magnitude * small
        small = small + magnitude
        e = exp(magnitude * TWO)
        large = ONE - TWO / (e + ONE)
        y = np.where(magnitude < TANH_SMALL, small, large)
    return np.asarray((y.view(np.int32) | (bits & SIGN_BIT)).view(np.float32))


def expm1(x: Array) -> Array:
    """e^x - 1 of float32, within 4 units in the last place; NaN passes."""
    x = np.asarray(x, np.float32)
    with np.errstate(all="ignore"):
        small = (x * x) * horner(x, EXP_COEFFICIENTS)
        small = small + x
        large = exp(x) - ONE
        return np.where(_magnitude(x) < EXPM1_SMALL, small, large)


def log(x: Array) -> Array:
    """ln x of float32, within 1 unit in the last place; NaN below 0, -inf at 0; NaN passes."""
    x = np.asarray(x, np.float32)
    with np.errstate(all="ignore"):
        tiny = x < SMALLEST_NORMAL
        bits = np.where(tiny, x * TWO_TO_23, x).view(np.int32)
        n = (bits - SQRT_HALF_BITS) >> MANTISSA_BITS
        mantissa = (bits - (n << MANTISSA_BITS)).view(np.float32)
        n = n - np.where(tiny, MANTISSA_BITS, np.int32(0))
        y = _log_of(mantissa - ONE, n.astype(np.float32))
        y = np.where(x < np.float32(np.inf), y, x)
        y = np.where(x == np.float32(0.0), np.float32(-np.inf), y)
        return np.where(np.float32(0.0) > x, np.float32(np.nan), y)


def log1p_of_unit(x: Array) -> Array:
    """ln(1 + x) of float32 in [0, 1], within 2 units in the last place; NaN passes."""
    x = np.asarray(x, np.float32)
    with np.errstate(all="ignore"):
        upper = x > SQRT_TWO_LESS_ONE
        f = np.where(upper, (x - ONE) * HALF, x)
        return _log_of(f, np.where(upper, ONE, np.float32(0.0)))


def _log_of(f: Array, n: Array) -> Array:
    """ln((1 + f) * 2^n), 1 + f between the square roots of 1/2 and 2."""
    square = f * f
    y = (f * square) * horner(f, LOG_COEFFICIENTS)
    y = y + n * LN2_LOW
    y = y - HALF * square
    y = y + f
    return np.asarray(y + n * LN2_HIGH)


def softplus(x: Array) -> Array:
    """ln(1 + e^x) of float32, within 3 units in the last place; NaN passes."""
    x = np.asarray(x, np.float32)
    with np.errstate(all="ignore"):
        rest = log1p_of_unit(exp((x.view(np.int32) | SIGN_BIT).view(np.float32)))
        return np.where(np.float32(0.0) > x, np.float32(0.0), x) + rest


def erf(x: Array) -> Array:
    """The error function of float32, within 2 units in the last place and odd; NaN passes."""
    x = np.asarray(x, np.float32)
    sign = x.view(np.int32) & SIGN_BIT
    magnitude = _magnitude(x)
    with np.errstate(all="ignore"):
        square = magnitude * magnitude
        small = magnitude * horner(square, ERF_SMALL_COEFFICIENTS)
        small = small + magnitude
        held = np.where(magnitude > ERF_LARGE, ERF_LARGE, magnitude)
        large = ONE - exp(horner(held, ERF_LARGE_COEFFICIENTS))
        y = np.where(magnitude < ERF_SMALL, small, large)
    return np.asarray((y.view(np.int32) | sign).view(np.float32))


def power(x: Array, y: Array) -> Array:
    """x^y of float32 as e^(y ln |x|), with the sign of whole exponents; NaN for others below 0.

    The error is 2 units in the last place and 2 more for every unit of |y ln x|.
    """
    x, y = np.asarray(x, np.float32), np.asarray(y, np.float32)
    with np.errstate(all="ignore"):
        result = exp(y * log(_magnitude(x)))
        result = np.where((y == np.float32(0.0)) | (x == ONE), ONE, result)
        whole, even = _is_whole(y), _is_whole(y * HALF)
        signed = np.where(even, result, (result.view(np.int32) ^ SIGN_BIT).view(np.float32))
        negative = np.where(whole, signed, np.float32(np.nan))
        return np.where(np.float32(0.0) > x, negative, result)


def _is_whole(y: Array) -> Array:
    """Whether float32 values are integers; those from 2^23 on are."""
    magnitude = _magnitude(y)
    rounded = (magnitude + TWO_TO_23) - TWO_TO_23
    return np.asarray((rounded == magnitude) | (magnitude >= TWO_TO_23))


def _magnitude(x: Array) -> Array:
    return np.asarray((x.view(np.int32) & MAGNITUDE_BITS).view(np.float32))


def horner(x: Array, coefficients: tuple[np.float32, ...]) -> Array:
    """The polynomial with these coefficients, highest power first: multiply, then add."""
    y = np.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        y = y * x
        y = y + coefficient
    return y


def power_of_two(n: Array) -> Array:
    """2^n for int32 -126 <= n <= 127: n goes into the exponent field."""
    return np.asarray(((n + EXPONENT_BIAS) << MANTISSA_BITS).view(np.float32))


def exp_reference(x: Array) -> Array:
    """e^x in float64, for tables."""
    return np.exp(np.asarray(x, np.float64))


def sigmoid_reference(x: Array) -> Array:
    """1 / (1 + e^-x) in float64, for tables."""
    with np.errstate(over="ignore"):
        return np.asarray(1.0 / (1.0 + np.exp(-np.asarray(x, np.float64))))


def tanh_reference(x: Array) -> Array:
    """tanh in float64, for tables."""
    return np.tanh(np.asarray(x, np.float64))

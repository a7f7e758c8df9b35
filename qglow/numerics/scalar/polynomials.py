"""Transcendental functions as one sequence of float32 operations each (rule 8 of the contract).

Constants are float32 values in full. The coefficients are minimax fits in float64, rounded to float32.
"""

from __future__ import annotations

import math

from qglow.numerics.scalar.algebra import Condition, Int, Real, select, select_integer
from qglow.numerics.scalar.clamps import SIGN_BIT, clip, magnitude, negative_magnitude, with_sign_of

LOG2_E = 1.44269502162933349609375
LN2_HIGH = 0.693359375
"""ln 2 in 9 bits: its product with an integer below 2^15 is exact."""
LN2_LOW = -2.12194442166946828365325927734375e-4
"""ln 2 - LN2_HIGH."""

ROUND_MAGIC = 12582912.0
"""1.5 * 2^23: adding it rounds to an integer, half to even, which is then in the low bits."""
ROUND_MAGIC_BITS = 0x4B400000

EXP_LOWEST = -104.0
"""exp is 0 from here down."""
EXP_HIGHEST = 89.0
"""exp is infinite from here up."""
EXP_COEFFICIENTS = (
    1.3863667845726013e-3,
    8.367609232664108e-3,
    4.166724160313606e-2,
    1.6666533052921295e-1,
    0.5,
)
"""q of exp(r) = 1 + (r + r^2 * q(r)) for |r| <= ln 2 / 2, highest power first."""
RAISED = 64
TWO_TO_MINUS_64 = 2.0**-64
EXPONENT_BIAS = 127
MANTISSA_BITS = 23

TANH_SMALL = 0.625
"""Below this magnitude tanh is a polynomial, above it a quotient of exponentials."""
TANH_COEFFICIENTS = (
    -5.704986862838268e-3,
    2.06390880048275e-2,
    -5.373971536755562e-2,
    1.3331441581249237e-1,
    -3.333328068256378e-1,
)
"""q of tanh(x) = x + x * (x^2 * q(x^2)), highest power first."""

LOG_COEFFICIENTS = (
    0.06746640801429749,
    -0.11675652116537094,
    0.11888162046670914,
    -0.1240558922290802,
    0.14219552278518677,
    -0.1666799634695053,
    0.2000211924314499,
    -0.25000008940696716,
    0.3333331346511841,
)
"""q of log(1 + f) = f - f^2 / 2 + f^3 * q(f) for sqrt(1/2) <= 1 + f <= sqrt(2), highest power first."""
SQRT_HALF_BITS = 0x3F3504F3
SQRT_TWO_LESS_ONE = 0.41421356797218323
SMALLEST_NORMAL = 1.1754943508222875e-38
TWO_TO_23 = 8388608.0

EXPM1_SMALL = 0.34375
"""Below this magnitude e^x - 1 is exp's polynomial, where a difference would lose its digits."""

ERF_SMALL = 0.921875
"""Below this magnitude erf is a polynomial, above it 1 - e^p(x)."""
ERF_LARGE = 4.0
"""erf is 1 from here on."""
ERF_SMALL_COEFFICIENTS = (
    -0.0005990853533148766,
    0.004993180278688669,
    -0.026766616851091385,
    0.1128181591629982,
    -0.37612494826316833,
    0.12837915122509003,
)
"""q of erf(x) = x + x * q(x^2), highest power first."""
ERF_LARGE_COEFFICIENTS = (
    0.0001957207132363692,
    -0.003041093237698078,
    0.022218452766537666,
    -0.10391402989625931,
    -0.637202262878418,
    -1.1276637315750122,
    -0.0001985546841751784,
)
"""p of erf(x) = 1 - e^p(x), highest power first."""


NORMAL_LARGE = 5.423329830169678
"""From this magnitude on the normal distribution function is 0 or 1: here the quotient is exactly 1/2."""
NORMAL_NUMERATOR = (
    2.3589134201529305e-08,
    6.324028618109878e-06,
    0.0001607271406101063,
    0.004629157949239016,
    0.03303242474794388,
    0.3989422619342804,
)
NORMAL_DENOMINATOR = (
    1.2197925798318465e-06,
    7.118370558600873e-05,
    0.0018388351891189814,
    0.028181863948702812,
    0.24946646392345428,
    1.0,
)
"""p and q of the normal distribution function 1/2 + x * p(x^2) / q(x^2), highest power first."""


def exp(x: Real) -> Real:
    """e^x, within 1 unit in the last place and monotone; underflow is gradual, NaN passes."""
    x = select(x < EXP_LOWEST, EXP_LOWEST, x)
    x = select(x > EXP_HIGHEST, EXP_HIGHEST, x)
    shifted = x * LOG2_E + ROUND_MAGIC
    whole = shifted - ROUND_MAGIC
    y = _exp_of_rest(x, whole)

    def by_two_factors() -> Real:
        # 2^n itself may be infinite or zero where the result is not.
        n = shifted.bits() - ROUND_MAGIC_BITS
        half = n >> 1
        return y * power_of_two(half) * power_of_two(n - half)

    return y.scaled(whole, by_two_factors)


def exp_of_negative(x: Real) -> Real:
    """e^x for x <= 0: the bits of `exp`, with fewer operations; underflow is gradual, NaN passes."""
    x = select(x < EXP_LOWEST, EXP_LOWEST, x)
    shifted = x * LOG2_E + ROUND_MAGIC
    whole = shifted - ROUND_MAGIC
    y = _exp_of_rest(x, whole)

    def raised() -> Real:
        n = shifted.bits() - (ROUND_MAGIC_BITS - RAISED)
        # First the result times 2^64, which is a normal number, so that the last product alone is rounded.
        return y * power_of_two(n) * TWO_TO_MINUS_64

    return y.scaled(whole, raised)


def moderate_exp(x: Real) -> Real:
    """e^x for x between -87 and 88, where it is neither subnormal nor infinite: the bits of `exp`."""
    shifted = x * LOG2_E + ROUND_MAGIC
    whole = shifted - ROUND_MAGIC
    y = _exp_of_rest(x, whole)
    return y.scaled(whole, lambda: y * power_of_two(shifted.bits() - ROUND_MAGIC_BITS))


def _exp_of_rest(x: Real, whole: Real) -> Real:
    """e^(x - whole ln 2), for an integer `whole` with a rest of at most ln 2 / 2."""
    r = x.less_exact_product(whole, LN2_HIGH)
    r = r - whole * LN2_LOW
    y = (r * r) * horner(r, EXP_COEFFICIENTS)
    return y + r + 1.0


def sigmoid(x: Real) -> Real:
    """1 / (1 + e^-x): e / (1 + e) with e = e^-|x| and 1 as numerator for x >= 0.

    Within 3 units in the last place, also where the result is tiny; monotone but for single
    units below 0; NaN passes.
    """
    e = exp_of_negative(negative_magnitude(x))
    numerator = select(x.is_negative(), e, 1.0)
    return numerator / (1.0 + e)


def tanh(x: Real) -> Real:
    """The hyperbolic tangent, within 2 units in the last place, monotone and odd; -0.0 and NaN pass."""
    size = magnitude(x)
    square = size * size
    small = square * horner(square, TANH_COEFFICIENTS)
    small = size * small + size
    large = 1.0 - 2.0 / (exp(size * 2.0) + 1.0)
    return with_sign_of(select(size < TANH_SMALL, small, large), x)


def expm1(x: Real) -> Real:
    """e^x - 1, within 4 units in the last place; NaN passes."""
    small = (x * x) * horner(x, EXP_COEFFICIENTS) + x
    large = exp(x) - 1.0
    return select(magnitude(x) < EXPM1_SMALL, small, large)


def log(x: Real) -> Real:
    """ln x, within 1 unit in the last place; NaN below 0, -inf at 0; NaN passes."""
    tiny = x < SMALLEST_NORMAL
    bits = select(tiny, x * TWO_TO_23, x).bits()
    n = (bits - SQRT_HALF_BITS) >> MANTISSA_BITS
    mantissa = (bits - (n << MANTISSA_BITS)).as_real()
    n = n - select_integer(tiny, MANTISSA_BITS, 0)
    y = _log_of(mantissa - 1.0, n.converted())
    y = select(x < math.inf, y, x)
    y = select(x.equals(0.0), -math.inf, y)
    return select(x.is_negative(), math.nan, y)


def log1p_of_unit(x: Real) -> Real:
    """ln(1 + x) of x in [0, 1], within 2 units in the last place; NaN passes."""
    upper = x > SQRT_TWO_LESS_ONE
    f = select(upper, (x - 1.0) * 0.5, x)
    return _log_of(f, select(upper, 1.0, 0.0))


def _log_of(f: Real, n: Real) -> Real:
    """ln((1 + f) * 2^n), 1 + f between the square roots of 1/2 and 2."""
    square = f * f
    y = (f * square) * horner(f, LOG_COEFFICIENTS)
    y = y + n * LN2_LOW
    y = y - 0.5 * square
    y = y + f
    return y + n * LN2_HIGH


def softplus(x: Real) -> Real:
    """ln(1 + e^x), within 3 units in the last place; NaN passes."""
    rest = log1p_of_unit(exp_of_negative(negative_magnitude(x)))
    return select(x.is_negative(), 0.0, x) + rest


def erf(x: Real) -> Real:
    """The error function, within 2 units in the last place and odd; NaN passes."""
    size = magnitude(x)
    square = size * size
    small = size * horner(square, ERF_SMALL_COEFFICIENTS) + size
    held = select(size > ERF_LARGE, ERF_LARGE, size)
    large = 1.0 - moderate_exp(horner(held, ERF_LARGE_COEFFICIENTS))
    return with_sign_of(select(size < ERF_SMALL, small, large), x)


def normal_distribution(x: Real) -> Real:
    """Distribution function of the standard normal distribution, within 2.4e-7; NaN passes.

    One quotient of polynomials takes two fifths of the time of the error function.
    """
    held = clip(x, -NORMAL_LARGE, NORMAL_LARGE)
    square = held * held
    numerator = held * horner(square, NORMAL_NUMERATOR)
    return numerator / horner(square, NORMAL_DENOMINATOR) + 0.5


def power(x: Real, y: Real) -> Real:
    """x^y as e^(y ln |x|), with the sign of odd exponents; NaN for fractions of finite numbers below 0.

    At zeros of both signs, infinities and NaN it is what C's pow is. The error is 2 units in the last place
    and 2 more for every unit of |y ln x|.
    """
    size = magnitude(x)
    result = exp(y * log(size))
    # 1^NaN is 1; (-1)^y has the size 1 for an infinite y, but is NaN where y is NaN.
    result = select(y.equals(0.0) | x.equals(1.0), 1.0, result)
    result = select(size.equals(1.0), select(y.is_nan(), result, 1.0), result)
    whole, even = _is_whole(y), _is_whole(y * 0.5)
    flipped = (result.bits() ^ SIGN_BIT).as_real()
    signed = select(even, result, flipped)
    negative = select(whole, signed, select(size.equals(0.0) | size.equals(math.inf), result, math.nan))
    below = x.is_negative() | x.bits().compared("==", SIGN_BIT)
    return select(below, negative, result)


def _is_whole(y: Real) -> Condition:
    """Whether a number is an integer; those from 2^23 on are."""
    size = magnitude(y)
    rounded = (size + TWO_TO_23) - TWO_TO_23
    return rounded.equals(size) | (size >= TWO_TO_23)


def horner(x: Real, coefficients: tuple[float, ...]) -> Real:
    """The polynomial with these coefficients, highest power first: multiply, then add."""
    y = x.constant(coefficients[0])
    for coefficient in coefficients[1:]:
        y = y * x + coefficient
    return y


def power_of_two(n: Int) -> Real:
    """2^n for -126 <= n <= 127: n goes into the exponent field."""
    return ((n + EXPONENT_BIAS) << MANTISSA_BITS).as_real()

"""Bounds, signs, slopes and the larger of two: a few operations each."""

from __future__ import annotations

import math

from qglow.numerics.scalar.algebra import Real, select

SIGN_BIT = -(2**31)
MAGNITUDE_BITS = 2**31 - 1
WHOLE_FROM = 2.0**23
"""Least number from which on every float32 is whole."""


def clip(x: Real, lo: float = -math.inf, hi: float = math.inf) -> Real:
    """`x` held within [lo, hi]; NaN passes, and so does the sign of zero. Infinite bounds cost nothing.

    `lo > x ? lo : x`, then `hi < y ? hi : y`: one x86 instruction each.
    """
    if lo > -math.inf:
        bound = x.constant(lo)
        x = select(bound > x, bound, x)
    if hi < math.inf:
        bound = x.constant(hi)
        x = select(bound < x, bound, x)
    return x


def larger(a: Real, b: Real) -> Real:
    """The larger of both; NaN where either is."""
    return select((a > b) | a.is_nan(), a, b)


def smaller(a: Real, b: Real) -> Real:
    """The smaller of both; NaN where either is."""
    return select((a < b) | a.is_nan(), a, b)


def prelu(x: Real, slope: Real) -> Real:
    """x, below 0 `slope * x`."""
    return select(x.is_negative(), slope * x, x)


def negated(x: Real) -> Real:
    """-x: the sign bit flipped."""
    return (x.bits() ^ SIGN_BIT).as_real()


def magnitude(x: Real) -> Real:
    """|x|: the pattern without the sign bit."""
    return (x.bits() & MAGNITUDE_BITS).as_real()


def negative_magnitude(x: Real) -> Real:
    """-|x|: the pattern with the sign bit."""
    return (x.bits() | SIGN_BIT).as_real()


def with_sign_of(size: Real, x: Real) -> Real:
    """A number without a sign, with that of x."""
    sign = x.bits() & SIGN_BIT
    return (size.bits() | sign).as_real()


def rounded(x: Real) -> Real:
    """The nearest whole number, of two the even one, with the sign of x; NaN and infinities stay."""
    size = magnitude(x)
    # Numbers from 2^23 on have no fraction; below, adding it pushes the fraction out.
    whole = select(size < WHOLE_FROM, (size + WHOLE_FROM) - WHOLE_FROM, size)
    return with_sign_of(whole, x)


def floored(x: Real) -> Real:
    """The largest whole number that is not above x."""
    whole = rounded(x)
    return select(whole > x, whole - 1.0, whole)

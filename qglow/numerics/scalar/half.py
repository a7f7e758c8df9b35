"""Reals of 16 bits, float16 (IEEE binary16) and bfloat16 (the upper half of binary32), in float32 and int32.

Rounding is to nearest even. Subnormals are kept; float16 overflows to infinity; NaN becomes quiet and
keeps its sign and the upper bits of its payload, as F16C's conversions have it.
"""

from __future__ import annotations

from qglow.core.types import HALF_TYPES, ElementType
from qglow.numerics.scalar.algebra import Int, Real, select_integer
from qglow.numerics.scalar.clamps import MAGNITUDE_BITS, SIGN_BIT

INFINITY = 0x7F800000
QUIET = 0x00400000
LEAST_NORMAL = 0x38800000
"""Pattern of 2^-14, the smallest normal float16."""
OVERFLOW = 0x47800000
"""Pattern of 2^16: what rounds to it is beyond float16."""
SUBNORMAL_MAGIC = 0.5
"""Its last place is 2^-24, that of float16's subnormals: adding and subtracting it rounds to them."""

EXPONENT_OFFSET = 2.0**112
"""Factor that a float16's bits lack where a float32 has them: the difference of the exponents' biases."""
NOT_FINITE = 0x7C00
"""Bits of float16 from which on a magnitude is infinity or NaN."""
DROPPED_BITS = {ElementType.FLOAT16: 13, ElementType.BFLOAT16: 16}
"""Number of bits of a float32's fraction that a type has no room for."""


def rounded(x: Real, element: str) -> Real:
    """`x` rounded to the nearest number of "float16" or "bfloat16". Raises KeyError for another name."""
    kind = HALF_TYPES[element]
    drop = DROPPED_BITS[kind]
    rest = (1 << drop) - 1
    kept = ~rest & 0xFFFFFFFF
    pattern = x.bits()
    size = pattern & MAGNITUDE_BITS
    odd = size.shifted_right(drop) & 1
    result = (size + (rest >> 1) + odd) & kept
    if kind is ElementType.FLOAT16:
        result = _within_float16(size, result)
    quiet = (size | QUIET) & kept
    is_nan = size.compared(">", INFINITY)
    sign = pattern & SIGN_BIT
    return (select_integer(is_nan, quiet, result) | sign).as_real()


def _within_float16(size: Int, result: Int) -> Int:
    """The rounded magnitude where the exponent fits float16, else infinity or the nearest subnormal."""
    result = select_integer(result.compared(">=", OVERFLOW), INFINITY, result)
    subnormal = (size.as_real() + SUBNORMAL_MAGIC) - SUBNORMAL_MAGIC
    small = size.compared("<", LEAST_NORMAL)
    return select_integer(small, subnormal.bits(), result)


def narrowed(x: Real, element: ElementType) -> Int:
    """The 16 bits of `x` as FLOAT16 or BFLOAT16, in the lower half of an int32."""
    name = next(name for name, kind in HALF_TYPES.items() if kind is element)
    pattern = rounded(x, name).bits()
    if element is ElementType.BFLOAT16:
        return pattern.shifted_right(16)
    size = pattern & MAGNITUDE_BITS
    # The exponent's bias changes by a product that is exact, as rounding has left float16's bits only.
    finite = (size.as_real() * (1 / EXPONENT_OFFSET)).bits().shifted_right(13)
    special = (size.shifted_right(13) & 0x3FF) | NOT_FINITE
    found = select_integer(size.compared(">=", INFINITY), special, finite)
    return found | (pattern & SIGN_BIT).shifted_right(16)


def widened_float16(stored: Int) -> Real:
    """The float32 of a float16's 16 bits, exactly.

    A multiplication by a power of two brings exponents, subnormal ones too, to their place.
    """
    size = stored & 0x7FFF
    moved = size << 13
    scaled = moved.as_real() * EXPONENT_OFFSET
    special = moved | INFINITY
    not_finite = size.compared(">=", NOT_FINITE)
    found = select_integer(not_finite, special, scaled.bits())
    sign = (stored & 0x8000) << 16
    return (found | sign).as_real()


def widened_bfloat16(stored: Int) -> Real:
    """The float32 of a bfloat16's 16 bits, exactly."""
    return (stored << 16).as_real()

"""Reals of 16 bits: float16 (IEEE binary16) and bfloat16 (the upper half of binary32).

Arithmetic stays float32. Here are rounding to what 16 bits hold, to nearest even, and both ways of
storage. Subnormals are kept; float16 overflows to infinity; NaN becomes quiet and keeps its sign and
the upper bits of its payload, as F16C's conversions have it.
"""

from __future__ import annotations

import numpy as np

from qglow.core.types import HALF_TYPES, Array, ElementType

MAGNITUDE = np.uint32(0x7FFFFFFF)
INFINITY = np.uint32(0x7F800000)
QUIET = np.uint32(0x00400000)
LEAST_NORMAL = np.uint32(0x38800000)
"""Bits of 2^-14, the smallest normal float16."""
OVERFLOW = np.uint32(0x47800000)
"""Bits of 2^16: what rounds to it is beyond float16."""
SUBNORMAL_MAGIC = np.float32(0.5)
"""Its last place is 2^-24, that of float16's subnormals: adding and subtracting it rounds to them."""


def dropped_bits(element: ElementType) -> int:
    """How many bits of a float32's fraction the type has no room for. Raises KeyError for another type."""
    return {ElementType.FLOAT16: 13, ElementType.BFLOAT16: 16}[element]


def round_to(x: Array, element: str) -> Array:
    """float32 `x` rounded to the nearest number of "float16" or "bfloat16", ties to even.

    Raises KeyError for another name.
    """
    kind = HALF_TYPES[element]
    drop = dropped_bits(kind)
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    magnitude = bits & MAGNITUDE
    rest = np.uint32((1 << drop) - 1)
    odd = (magnitude >> np.uint32(drop)) & np.uint32(1)
    rounded = (magnitude + (rest >> np.uint32(1)) + odd) & ~rest
    if kind is ElementType.FLOAT16:
        rounded = np.where(rounded >= OVERFLOW, INFINITY, rounded)
        small = np.where(magnitude < LEAST_NORMAL, magnitude, np.uint32(0)).view(np.float32)
        subnormal = (small + SUBNORMAL_MAGIC) - SUBNORMAL_MAGIC
        rounded = np.where(magnitude < LEAST_NORMAL, subnormal.view(np.uint32), rounded)
    rounded = np.where(magnitude > INFINITY, (magnitude | QUIET) & ~rest, rounded)
    return np.asarray(rounded | (bits & ~MAGNITUDE)).view(np.float32).reshape(np.shape(x))


def store(x: Array, element: str) -> Array:
    """float32 `x`, rounded, in 16 bits an element: a float16 array, or the bits of bfloat16 as uint16."""
    rounded = round_to(x, element)
    if HALF_TYPES[element] is ElementType.FLOAT16:
        with np.errstate(invalid="ignore"):
            return rounded.astype(np.float16)
    return np.asarray((rounded.view(np.uint32) >> np.uint32(16)).astype(np.uint16))


def store_as(x: Array, kind: ElementType) -> Array:
    """`store` by the element type of the result. Raises KeyError for one that is not of 16 bits."""
    return store(x, {found: name for name, found in HALF_TYPES.items()}[kind])


def widen(stored: Array) -> Array:
    """float32 of what `store` gave, exactly; any other array as it is."""
    if stored.dtype == np.float16:
        return stored.astype(np.float32)
    if stored.dtype == ElementType.BFLOAT16.dtype:
        return (stored.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return stored


def holds(x: Array, element: str) -> bool:
    """Whether every element of float32 `x` is a number of the type, so that storing it loses nothing."""
    whole = np.ascontiguousarray(x, np.float32)
    return np.array_equal(round_to(whole, element).view(np.uint32), whole.view(np.uint32))

"""Reals of 16 bits: float16 (IEEE binary16) and bfloat16 (the upper half of binary32).

Arithmetic stays float32. Here are rounding to what 16 bits hold (scalar.half), and both ways of storage.
"""

from __future__ import annotations

import numpy as np

from qglow.core.types import HALF_TYPES, Array, ElementType
from qglow.numerics.scalar.arrays import evaluate
from qglow.numerics.scalar.half import rounded


def round_to(x: Array, element: str) -> Array:
    """float32 `x` rounded to the nearest number of "float16" or "bfloat16", ties to even.

    Raises KeyError for another name.
    """
    return evaluate(lambda value: rounded(value, element), x)


def store(x: Array, element: str) -> Array:
    """float32 `x`, rounded, in 16 bits an element: a float16 or a bfloat16 array."""
    nearest = round_to(x, element)
    if HALF_TYPES[element] is ElementType.FLOAT16:
        with np.errstate(invalid="ignore"):
            return nearest.astype(np.float16)
    bits = (nearest.view(np.uint32) >> np.uint32(16)).astype(np.uint16)
    return np.asarray(bits.view(ElementType.BFLOAT16.dtype))


def store_as(x: Array, kind: ElementType) -> Array:
    """`store` by the element type of the result. Raises KeyError for one that is not of 16 bits."""
    return store(x, {found: name for name, found in HALF_TYPES.items()}[kind])


def widen(stored: Array) -> Array:
    """float32 of what `store` gave, exactly; any other array as it is."""
    if stored.dtype == np.float16:
        return stored.astype(np.float32)
    if stored.dtype == ElementType.BFLOAT16.dtype:
        return (stored.view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)
    return stored


def holds(x: Array, element: str) -> bool:
    """Whether every element of float32 `x` is a number of the type, so that storing it loses nothing."""
    whole = np.ascontiguousarray(x, np.float32)
    return np.array_equal(round_to(whole, element).view(np.uint32), whole.view(np.uint32))

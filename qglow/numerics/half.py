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


def exact_element(x: Array) -> ElementType | None:
    """The type of 16 bits that holds every element of float32 `x`; None for neither, float16 for both."""
    bits = np.ascontiguousarray(x, np.float32).reshape(-1).view(np.uint32)
    parts = [bits[start : start + _AT_ONCE] for start in range(0, bits.size, _AT_ONCE)]
    for element, fits in _EXACT.items():
        if all(fits(part) for part in parts):  # ends at the first that does not
            return element
    return None


def store_exactly(x: Array, element: ElementType) -> Array:
    """`store` of float32 `x` in the type that `exact_element` gives, in less time."""
    if element is ElementType.FLOAT16:
        return np.asarray(x, np.float16)
    bits = (np.ascontiguousarray(x, np.float32).view(np.uint32) >> np.uint32(16)).astype(np.uint16)
    return np.asarray(bits.view(element.dtype))


def _fits_float16(bits: Array) -> bool:
    """Whether float16 holds float32 numbers given by their bits.

    None may have a digit behind the tenth. That suffices where the exponent is that of a normal float16.
    """
    if np.any(bits & np.uint32(0x1FFF)):
        return False
    exponents = bits >> np.uint32(23) & np.uint32(0xFF)
    rare = bits[(exponents < 127 - 14) | (exponents > 127 + 15)]
    values = rare.view(np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        return np.array_equal(values.astype(np.float16).astype(np.float32).view(np.uint32), rare)


def _fits_bfloat16(bits: Array) -> bool:
    return not np.any(bits & np.uint32(0xFFFF))


_AT_ONCE = 1 << 14
"""Elements that are looked at together, so that they stay in a near cache."""
_EXACT = {ElementType.FLOAT16: _fits_float16, ElementType.BFLOAT16: _fits_bfloat16}


def widen(stored: Array) -> Array:
    """float32 of what `store` gave, exactly; any other array as it is."""
    if stored.dtype == np.float16:
        return _as_float32(stored)
    if stored.dtype == ElementType.BFLOAT16.dtype:
        return (stored.view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)
    return stored


def _as_float32(stored: Array) -> Array:
    """float32 of float16. NaN keep their bits: on some processors NumPy makes them quiet."""
    with np.errstate(invalid="ignore"):
        found = stored.astype(np.float32)
    unknown = np.isnan(found)
    if np.any(unknown):
        bits = stored.view(np.uint16).astype(np.uint32)
        signs, digits = bits & np.uint32(0x8000), bits & np.uint32(0x3FF)
        exact = signs << np.uint32(16) | np.uint32(0x7F800000) | digits << np.uint32(13)
        found = np.where(unknown, exact, found.view(np.uint32)).view(np.float32)
    return found


def holds(x: Array, element: str) -> bool:
    """Whether every element of float32 `x` is a number of the type, so that storing it loses nothing."""
    whole = np.ascontiguousarray(x, np.float32)
    return np.array_equal(round_to(whole, element).view(np.uint32), whole.view(np.uint32))

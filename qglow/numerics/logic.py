"""Comparisons, and conversions between element types."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from qglow.core.types import HALF_TYPES, Array, ElementType
from qglow.numerics.half import store_as, widen

RELATIONS: dict[str, Callable[[Array, Array], Array]] = {
    "equal": np.equal,
    "not-equal": np.not_equal,
    "greater": np.greater,
    "greater-or-equal": np.greater_equal,
    "less": np.less,
    "less-or-equal": np.less_equal,
}
"""Relations by name; NaN is in none of them but not-equal."""


def cast(x: Array, element: ElementType) -> Array:
    """x in another element type.

    Reals lose their fraction and saturate at the ends of an integer type, NaN becomes 0;
    integers wrap; everything but 0 is true. Reals of 16 bits are what float32 of x rounds to.
    """
    x = widen(np.asarray(x))
    if element in HALF_TYPES.values():
        with np.errstate(over="ignore", invalid="ignore"):
            return store_as(x.astype(np.float32), element)
    if element is ElementType.BOOL:
        return np.asarray(x != 0)
    if x.dtype.kind != "f" or element in (ElementType.FLOAT, ElementType.DOUBLE):
        with np.errstate(over="ignore", invalid="ignore"):
            return np.asarray(x.astype(element.dtype))
    low, high = np.iinfo(element.dtype).min, np.iinfo(element.dtype).max
    inside = (x > float(low)) & (x < float(high))
    whole = np.where(inside, x, 0).astype(element.dtype)
    return np.where(inside | np.isnan(x), whole, np.where(x > 0, high, low).astype(element.dtype))

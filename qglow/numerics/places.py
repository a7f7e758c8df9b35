"""Numbers of elements in a tensor whose elements are one row."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from qglow.core.types import Array


def first_places(rank: int, axes: Iterable[tuple[int, int, int]]) -> Array:
    """Number of the element at index 0 of all other axes, int64, whose extent along these is 1.

    axes: each with its extent and with the elements from one place of it to the next.
    """
    places = np.zeros((1,) * rank, np.int64)
    for axis, extent, stride in axes:
        along = [1] * rank
        along[axis] = extent
        places = places + (np.arange(extent) * stride).reshape(along)
    return places

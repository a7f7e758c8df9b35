"""The order of elements along an axis, and the places of the first ones in it.

See the ONNX operators ArgMax, ArgMin and TopK. They leave NaN open; here NaN ranks before every
number, among the largest and among the smallest, as it wins a maximum and a minimum.
"""

from __future__ import annotations

import numpy as np

from qglow.core.types import Array


def rank_keys(x: Array, largest: bool = True) -> Array:
    """int64 numbers of which a larger one ranks earlier; equal for equal elements, 0.0 and -0.0 too."""
    x = np.asarray(x)
    if x.dtype.kind != "f":
        least = np.iinfo(np.int64).min
        keys = x.view(np.int64) ^ least if x.dtype == np.uint64 else x.astype(np.int64)
        return keys if largest else ~keys
    with np.errstate(invalid="ignore"):
        bits = (x + x.dtype.type(0.0)).view(np.int32 if x.dtype == np.float32 else np.int64)
    top = np.iinfo(bits.dtype).max
    # The larger of two negative floats has the smaller pattern, so all bits but the sign are inverted.
    keys = np.where(bits < 0, bits ^ top, bits)
    keys = np.where(np.isnan(x), top, keys if largest else ~keys)
    return keys.astype(np.int64)


def first_indices(x: Array, axis: int, count: int, largest: bool = True, last: bool = False) -> Array:
    """int64 places of the `count` elements that rank first along `axis`, in their order.

    Of equal elements the one with the lower index comes first, with `last` the one with the higher.
    """
    keys = rank_keys(x, largest)
    extent = keys.shape[axis]
    # A stable sort keeps equal ones in order; ~ turns an order round without overflow.
    falling = ~(np.flip(keys, axis) if last else keys)
    order = np.argsort(falling, axis=axis, kind="stable").astype(np.int64)
    chosen = np.take(order, np.arange(count), axis=axis)
    return np.asarray(extent - 1 - chosen if last else chosen)


def first_values(x: Array, axis: int, count: int, largest: bool = True) -> Array:
    """The elements at `first_indices`."""
    return np.take_along_axis(np.asarray(x), first_indices(x, axis, count, largest), axis)

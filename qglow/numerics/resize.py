"""Resampling along one axis: which elements go into a result, and with which weights.

A resize of several axes is one such step an axis, the last axis first. Coordinates are
computed in float32, as other runtimes do, so that the same elements are nearest.
See the ONNX operator Resize.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from qglow.core.types import Array

COORDINATES = (
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    "tf_half_pixel_for_nn",
    "tf_crop_and_resize",
)
NEAREST = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil", "floor_or_ceil")
"""Modes that round a coordinate to an index. `floor_or_ceil` is that of opset 10: ceil only to shrink."""
MODES = ("nearest", "linear", "cubic")


@dataclass(frozen=True)
class Sampling:
    """One axis: `size` elements from `extent`, `scale` results an element.

    `start` and `end` are the part that `tf_crop_and_resize` takes, in shares of the axis.
    """

    extent: int
    size: int
    scale: float
    coordinates: str = "half_pixel"
    start: float = 0.0
    end: float = 1.0

    @property
    def is_identity(self) -> bool:
        """Whether every element stays where it is."""
        whole = self.coordinates != "tf_crop_and_resize" or (self.start, self.end) == (0.0, 1.0)
        return self.extent == self.size and self.scale == 1.0 and whole


@dataclass(frozen=True)
class Taps:
    """Result i is `offsets[i]` plus the sum of `weights[i, k] * x[indices[i, k]]`, k ascending.

    int32 and float32 of shape [size, taps]; no `offsets` where all are 0.
    """

    indices: Array
    weights: Array
    offsets: Array | None = None


def positions(axis: Sampling) -> Array:
    """float32[size]: where every result lies on the axis that is resampled."""
    return np.asarray(_POSITIONS[axis.coordinates](axis, np.arange(axis.size, dtype=np.float32)), np.float32)


def _half_pixel(axis: Sampling, i: Array) -> Array:
    return np.asarray((i + np.float32(0.5)) / np.float32(axis.scale) - np.float32(0.5))


def _symmetric(axis: Sampling, i: Array) -> Array:
    adjustment = np.float32(axis.size) / (np.float32(axis.scale) * np.float32(axis.extent))
    offset = np.float32(axis.extent) / np.float32(2) * (np.float32(1) - adjustment)
    return np.asarray(offset + (i + np.float32(0.5)) / np.float32(axis.scale) - np.float32(0.5))


def _pytorch(axis: Sampling, i: Array) -> Array:
    return _half_pixel(axis, i) if axis.size > 1 else np.zeros_like(i)


def _align_corners(axis: Sampling, i: Array) -> Array:
    if axis.size == 1:
        return np.zeros_like(i)
    return np.asarray(i * np.float32(axis.extent - 1) / np.float32(axis.size - 1))


def _asymmetric(axis: Sampling, i: Array) -> Array:
    return np.asarray(i / np.float32(axis.scale))


def _for_nearest(axis: Sampling, i: Array) -> Array:
    return np.asarray((i + np.float32(0.5)) / np.float32(axis.scale))


def _crop(axis: Sampling, i: Array) -> Array:
    start, end, last = np.float32(axis.start), np.float32(axis.end), np.float32(axis.extent - 1)
    if axis.size == 1:
        return np.full_like(i, np.float32(0.5) * (start + end) * last)
    return np.asarray(start * last + i * (end - start) * last / np.float32(axis.size - 1))


_POSITIONS: dict[str, Callable[[Sampling, Array], Array]] = dict(
    zip(
        COORDINATES,
        (_half_pixel, _symmetric, _pytorch, _align_corners, _asymmetric, _for_nearest, _crop),
        strict=True,
    )
)


def nearest_indices(axis: Sampling, rounding: str) -> Array:
    """int32[size]: the element that every result takes."""
    x = positions(axis)
    down = rounding == "floor" or (rounding == "floor_or_ceil" and axis.scale >= 1.0)
    if rounding == "round_prefer_floor":
        found = np.ceil(x - np.float32(0.5))
    elif rounding == "round_prefer_ceil":
        found = np.floor(x + np.float32(0.5))
    else:
        found = np.floor(x) if down else np.ceil(x)
    return np.asarray(np.clip(found, 0, axis.extent - 1), np.int32)


def nearest_taps(axis: Sampling, rounding: str, extrapolation: float) -> Taps:
    """One element each, with weight 1."""
    indices = nearest_indices(axis, rounding)[:, None]
    return _with_outside(axis, Taps(indices, np.ones(indices.shape, np.float32)), extrapolation)


def linear_taps(axis: Sampling, exclude_outside: bool, antialias: bool, extrapolation: float) -> Taps:
    """Two neighbours by distance; more where a shrinking axis is smoothed (`antialias`)."""
    return _filter_taps(axis, _triangle, 1, exclude_outside, antialias, extrapolation)


def cubic_taps(
    axis: Sampling, coefficient: float, exclude_outside: bool, antialias: bool, extrapolation: float
) -> Taps:
    """Four neighbours by R. Keys' cubic convolution with the coefficient `a` (1981)."""
    return _filter_taps(axis, lambda x: _keys(x, coefficient), 2, exclude_outside, antialias, extrapolation)


def _triangle(distance: Array) -> Array:
    return np.maximum(1.0 - np.abs(distance), 0.0)


def _keys(distance: Array, a: float) -> Array:
    x = np.abs(distance)
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return np.asarray(np.where(x <= 1, near, np.where(x < 2, far, 0.0)))


def _filter_taps(
    axis: Sampling,
    weigh: Callable[[Array], Array],
    radius: int,
    exclude_outside: bool,
    antialias: bool,
    extrapolation: float,
) -> Taps:
    """Weights of a filter of this radius around every position; edges repeat unless excluded."""
    x = positions(axis).astype(np.float64)[:, None]
    shrink = min(float(np.float32(axis.scale)), 1.0) if antialias else 1.0
    first = int(np.floor(-radius / shrink)) + 1
    indices = np.floor(x) + np.arange(first, 2 - first)
    weights = weigh((indices - x) * shrink)
    if exclude_outside:
        weights = np.where((indices >= 0) & (indices < axis.extent), weights, 0.0)
    if exclude_outside or antialias:
        weights = weights / weights.sum(axis=1, keepdims=True)
    inside = np.clip(indices, 0, axis.extent - 1).astype(np.int32)
    return _with_outside(axis, Taps(inside, weights.astype(np.float32)), extrapolation)


def _with_outside(axis: Sampling, taps: Taps, extrapolation: float) -> Taps:
    """The taps with a constant where a crop reaches beyond the axis."""
    if axis.coordinates != "tf_crop_and_resize":
        return taps
    x = positions(axis)
    outside = (x < 0) | (x > axis.extent - 1)
    if not outside.any():
        return taps
    weights = np.where(outside[:, None], np.float32(0), taps.weights)
    return Taps(taps.indices, weights, np.where(outside, np.float32(extrapolation), np.float32(0)))


def interpolate(x: Array, taps: Taps, axis: int) -> Array:
    """float32 `x` with one axis resampled: products added one after the other, the offset last."""
    rows = np.moveaxis(np.asarray(x, np.float32), axis, 0)
    spread = (-1, *(1,) * (rows.ndim - 1))
    with np.errstate(over="ignore", invalid="ignore"):
        total = rows[taps.indices[:, 0]] * taps.weights[:, 0].reshape(spread)
        for k in range(1, taps.indices.shape[1]):
            total = total + rows[taps.indices[:, k]] * taps.weights[:, k].reshape(spread)
        if taps.offsets is not None:
            total = total + taps.offsets.reshape(spread)
    return np.ascontiguousarray(np.moveaxis(total, 0, axis))

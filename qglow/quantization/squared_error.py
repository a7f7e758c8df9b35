"""The range with the least expected squared quantization error.

Inside the range the error of a step s is s^2 / 12, except that elements below half a step
become 0; outside it is the distance to the range's end. All three are sums over the
histogram that cumulative moments give at once, so every pair of ends on a grid is tried.

Where one function is all that reads a value, the error is that of the function's result: steps are
weighted by the slope, and distances are those between results. So the input of a Swish does not spend
half of its levels on negative values that become about 0 anyway.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from qglow.core.types import Array
from qglow.numerics.schema import Schema
from qglow.profiling.distribution import Distribution
from qglow.profiling.histogram import ValueProfile

GRID = 96
_SMALLEST_FRACTION = 0.02
_SLOPE_STEP = 1e-4

Function = Callable[[Array], Array]
"""Elementwise function from float64 to float64 of the same shape."""


@dataclass(frozen=True, slots=True)
class LeastError:
    """The best range [low, high], low <= 0 <= high, and the sum of squared errors expected of it."""

    low: float
    high: float
    error: float

    @property
    def bounds(self) -> tuple[float, float]:
        """The range."""
        return self.low, self.high


def least_squared_error_of(profile: ValueProfile, schema: Schema) -> LeastError:
    """`least_squared_error` of a profile's finite elements, worked out once until more is counted in."""
    key = "least squared error", schema
    return profile.derived(key, lambda: least_squared_error(Distribution.of(profile), schema))


def least_squared_error(
    distribution: Distribution, schema: Schema, function: Function | None = None
) -> LeastError:
    """The range whose expected squared error is least, among fractions of the extremes at either end.

    function: the error is that of its result; None: that of the elements themselves.
    """
    low, high = distribution.range
    low, high = min(low, 0.0), max(high, 0.0)
    lows, highs = np.full(1, low), np.full(1, high)
    if distribution.total > 0.0:
        fractions = np.linspace(1.0, _SMALLEST_FRACTION, GRID)
        lows = low * fractions if low < 0.0 else lows
        highs = high * fractions if high > 0.0 else highs
    errors = expected_squared_error(distribution, lows[:, None], highs[None, :], schema, function)
    row, column = np.unravel_index(int(np.argmin(errors)), errors.shape)
    return LeastError(float(lows[row]), float(highs[column]), float(errors[row, column]))


def expected_squared_error(
    distribution: Distribution, low: Array, high: Array, schema: Schema, function: Function | None = None
) -> Array:
    """Return the expected sum of squared errors of ranges [low, high], low <= 0 <= high.

    Their shapes are broadcast: of a grid, what depends on one end alone is computed once for each. A function
    that is not finite for all elements and all ends of ranges is ignored.
    """
    step, low, high = _steps(np.asarray(low, np.float64), np.asarray(high, np.float64), schema)
    moments = _Moments(distribution, function)
    if not (moments.are_finite() and _are_finite(moments.result(low), moments.result(high))):
        moments = _Moments(distribution, None)
    points = moments.places(low), moments.places(high)
    near = moments.places(np.maximum(-step / 2, low)), moments.places(np.minimum(step / 2, high))
    above, below = moments.between(points[1], moments.end), moments.between(np.intp(0), points[0])
    vanishing = moments.between(*near)
    rounded = np.maximum(moments.slopes(*points) - vanishing[3], 0.0) * step**2 / 12.0
    ends = moments.result(low), moments.result(high)
    zero = moments.result(np.zeros(()))
    return np.asarray(
        rounded + _distance(vanishing, zero) + _distance(above, ends[1]) + _distance(below, ends[0])
    )


def _are_finite(*arrays: Array) -> bool:
    return all(bool(np.all(np.isfinite(array))) for array in arrays)


def _steps(low: Array, high: Array, schema: Schema) -> tuple[Array, Array, Array]:
    """Return scale, low and high of the range that int8 covers in fact; see numerics.schema."""
    whole = (high - low) / 255.0
    if schema is Schema.asymmetric:
        return whole, low, high
    step = np.maximum(low / -128.0, high / 127.0)
    if schema is Schema.symmetric_with_power2_scale:
        step = np.exp2(np.ceil(np.log2(np.maximum(step, 1e-300))))
    covered_low, covered_high = -128.0 * step, 127.0 * step
    if schema is Schema.symmetric_with_uint8:
        one_sided = low == 0.0
        step = np.where(one_sided, whole, step)
        covered_low = np.where(one_sided, low, covered_low)
        covered_high = np.where(one_sided, high, covered_high)
    return step, covered_low, covered_high


def _distance(moments: tuple[Array, ...], end: Array) -> Array:
    """Sum of (f(x) - end)^2 from the zeroth, first and second moments."""
    zeroth, first, second = moments[:3]
    return np.asarray(np.maximum(second - 2.0 * end * first + end**2 * zeroth, 0.0))


class _Moments:
    """Cumulative sums of 1, f(x), f(x)^2 and the squared slope of f over the histogram's points."""

    def __init__(self, distribution: Distribution, function: Function | None) -> None:
        self._function = function
        self._points, weights = distribution.points()
        results, slopes = self.result(self._points), self._slopes()
        with np.errstate(all="ignore"):
            powers = (weights, weights * results, weights * results**2, weights * slopes**2)
        self._sums = [np.concatenate([[0.0], np.cumsum(power)]) for power in powers]

    def result(self, x: Array) -> Array:
        """f(x); x itself where there is no function."""
        if self._function is None:
            return x
        with np.errstate(all="ignore"):
            return np.asarray(self._function(x), np.float64)

    def are_finite(self) -> bool:
        """Whether the function is finite for every element."""
        return _are_finite(*self._sums)

    @property
    def end(self) -> np.intp:
        """The place after all points."""
        return np.intp(self._points.size)

    def places(self, ends: Array) -> Array:
        """Numbers of points that are at most each of these ends."""
        return np.searchsorted(self._points, ends, side="right")

    def between(self, start: Array | np.intp, stop: Array | np.intp) -> tuple[Array, ...]:
        """Sums over the points from place `start` to before `stop`."""
        stop = np.maximum(stop, start)
        return tuple(np.asarray(total[stop] - total[start]) for total in self._sums)

    def slopes(self, start: Array, stop: Array) -> Array:
        """The last of `between`."""
        return np.asarray(self._sums[3][np.maximum(stop, start)] - self._sums[3][start])

    def _slopes(self) -> Array:
        """Slopes by finite differences, over a width that is small beside any step of int8."""
        if self._function is None:
            return np.ones_like(self._points)
        near = _SLOPE_STEP * np.maximum(np.max(np.abs(self._points), initial=0.0), 1e-30)
        with np.errstate(all="ignore"):
            rise = self.result(self._points + near) - self.result(self._points - near)
            return np.asarray(rise / (2.0 * near))

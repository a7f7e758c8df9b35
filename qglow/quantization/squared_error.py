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

import numpy as np

from qglow.core.types import Array
from qglow.numerics.schema import Schema
from qglow.profiling.distribution import Distribution

GRID = 96
_SMALLEST_FRACTION = 0.02
_SLOPE_STEP = 1e-4

Function = Callable[[Array], Array]
"""Elementwise function from float64 to float64 of the same shape."""


def least_squared_error(
    distribution: Distribution, schema: Schema, function: Function | None = None
) -> tuple[float, float]:
    """The range whose expected squared error is least, among fractions of the extremes at either end.

    function: the error is that of its result; None: that of the elements themselves.
    """
    low, high = distribution.range
    low, high = min(low, 0.0), max(high, 0.0)
    if distribution.total == 0.0 or low == high:
        return low, high
    fractions = np.linspace(1.0, _SMALLEST_FRACTION, GRID)
    lows = low * fractions if low < 0.0 else np.zeros(1)
    highs = high * fractions if high > 0.0 else np.zeros(1)
    grid_low, grid_high = np.meshgrid(lows, highs, indexing="ij")
    errors = expected_squared_error(distribution, grid_low, grid_high, schema, function)
    best = np.unravel_index(int(np.argmin(errors)), errors.shape)
    return float(grid_low[best]), float(grid_high[best])


def expected_squared_error(
    distribution: Distribution, low: Array, high: Array, schema: Schema, function: Function | None = None
) -> Array:
    """Return the expected sum of squared errors of ranges [low, high] (equal shapes, low <= 0 <= high).

    A function that is not finite for all elements and all ends of ranges is ignored.
    """
    step, low, high = _steps(np.asarray(low, np.float64), np.asarray(high, np.float64), schema)
    moments = _Moments(distribution, function)
    if not moments.are_finite() or not np.all(np.isfinite(moments.result(np.stack([low, high])))):
        moments = _Moments(distribution, None)
    above = moments.between(high, np.full_like(high, np.inf))
    below = moments.between(np.full_like(low, -np.inf), low)
    inside = moments.between(low, high)
    vanishing = moments.between(np.maximum(-step / 2, low), np.minimum(step / 2, high))
    rounded = np.maximum(inside[3] - vanishing[3], 0.0) * step**2 / 12.0
    ends = moments.result(low), moments.result(high)
    zero = moments.result(np.zeros_like(low))
    return np.asarray(
        rounded + _distance(vanishing, zero) + _distance(above, ends[1]) + _distance(below, ends[0])
    )


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
        return all(bool(np.all(np.isfinite(total))) for total in self._sums)

    def between(self, low: Array, high: Array) -> tuple[Array, ...]:
        """Sums over the points in (low, high]."""
        start = np.searchsorted(self._points, low, side="right")
        stop = np.maximum(np.searchsorted(self._points, high, side="right"), start)
        return tuple(total[stop] - total[start] for total in self._sums)

    def _slopes(self) -> Array:
        """Slopes by finite differences, over a width that is small beside any step of int8."""
        if self._function is None:
            return np.ones_like(self._points)
        near = _SLOPE_STEP * np.maximum(np.max(np.abs(self._points), initial=0.0), 1e-30)
        with np.errstate(all="ignore"):
            rise = self.result(self._points + near) - self.result(self._points - near)
            return np.asarray(rise / (2.0 * near))

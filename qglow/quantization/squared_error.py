"""The range with the least expected squared quantization error.

Inside the range the error of a step s is s^2 / 12, except that elements below half a step
become 0; outside it is the distance to the range's end. All three are sums over the
histogram that cumulative moments give at once, so every pair of ends on a grid is tried.
"""

from __future__ import annotations

import numpy as np

from qglow.core.types import Array
from qglow.numerics.schema import Schema
from qglow.profiling.distribution import Distribution

GRID = 96
_SMALLEST_FRACTION = 0.02


def least_squared_error(distribution: Distribution, schema: Schema) -> tuple[float, float]:
    """The range whose expected squared error is least, among fractions of the extremes at either end."""
    low, high = distribution.range
    low, high = min(low, 0.0), max(high, 0.0)
    if distribution.total == 0.0 or low == high:
        return low, high
    fractions = np.linspace(1.0, _SMALLEST_FRACTION, GRID)
    lows = low * fractions if low < 0.0 else np.zeros(1)
    highs = high * fractions if high > 0.0 else np.zeros(1)
    grid_low, grid_high = np.meshgrid(lows, highs, indexing="ij")
    errors = expected_squared_error(distribution, grid_low, grid_high, schema)
    best = np.unravel_index(int(np.argmin(errors)), errors.shape)
    return float(grid_low[best]), float(grid_high[best])


def expected_squared_error(distribution: Distribution, low: Array, high: Array, schema: Schema) -> Array:
    """Expected sum of squared errors of ranges [low, high] (equal shapes, low <= 0 <= high)."""
    step, low, high = _steps(np.asarray(low, np.float64), np.asarray(high, np.float64), schema)
    moments = _Moments(distribution)
    above = moments.between(high, np.full_like(high, np.inf))
    below = moments.between(np.full_like(low, -np.inf), low)
    inside = moments.between(low, high)
    vanishing = moments.between(np.maximum(-step / 2, low), np.minimum(step / 2, high))
    rounded = np.maximum(inside[0] - vanishing[0], 0.0) * step**2 / 12.0
    return np.asarray(rounded + vanishing[2] + _distance(above, high) + _distance(below, low))


def _steps(low: Array, high: Array, schema: Schema) -> tuple[Array, Array, Array]:
    """(scale, low, high) of the range that int8 then really covers; see numerics.schema."""
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


def _distance(moments: tuple[Array, Array, Array], end: Array) -> Array:
    """Sum of (x - end)^2 from the zeroth, first and second moments."""
    zeroth, first, second = moments
    return np.asarray(np.maximum(second - 2.0 * end * first + end**2 * zeroth, 0.0))


class _Moments:
    """Cumulative sums of 1, x and x^2 over the histogram's points."""

    def __init__(self, distribution: Distribution) -> None:
        self._points, weights = distribution.points()
        powers = (weights, weights * self._points, weights * self._points**2)
        self._sums = [np.concatenate([[0.0], np.cumsum(power)]) for power in powers]

    def between(self, low: Array, high: Array) -> tuple[Array, Array, Array]:
        """Moments of the points in (low, high]."""
        start = np.searchsorted(self._points, low, side="right")
        stop = np.maximum(np.searchsorted(self._points, high, side="right"), start)
        zeroth, first, second = (total[stop] - total[start] for total in self._sums)
        return zeroth, first, second

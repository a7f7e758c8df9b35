"""A value's histogram as a distribution on the real line: quantiles, linear bins, points.

Inside a bin (0.8 % of its value wide) elements are taken to be spread evenly.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qglow.core.types import Array
from qglow.numerics.histogram import NEGATIVE_INFINITY_BIN, POSITIVE_INFINITY_BIN, SIGN
from qglow.profiling.histogram import ValueProfile

_SMALLEST = 2.0**-134


@dataclass(frozen=True)
class Distribution:
    """Finite elements only: bins in ascending order, [`lower`, `upper`] with `counts` elements each.

    All are float64 and only bins that hold something are kept. The outermost bins are cut at the
    exact extremes.
    """

    lower: Array
    upper: Array
    counts: Array

    @staticmethod
    def of(profile: ValueProfile) -> Distribution:
        """The distribution of a profile's finite elements, worked out once until more is counted in."""
        return profile.derived("distribution", lambda: Distribution._made(profile))

    @staticmethod
    def _made(profile: ValueProfile) -> Distribution:
        filled = np.flatnonzero(profile.counts > 0)
        positive = filled[: np.searchsorted(filled, POSITIVE_INFINITY_BIN)]
        negative = filled[slice(*np.searchsorted(filled, (SIGN, NEGATIVE_INFINITY_BIN)))]
        order = np.concatenate([negative[::-1], positive])
        magnitude = order & ~SIGN
        near, far = _bin_edge(magnitude), _bin_edge(magnitude + 1)
        below = order >= SIGN
        lower, upper = np.where(below, -far, near), np.where(below, -near, far)
        if np.isfinite(profile.low):
            lower, upper = np.maximum(lower, profile.low), np.maximum(upper, profile.low)
        if np.isfinite(profile.high):
            lower, upper = np.minimum(lower, profile.high), np.minimum(upper, profile.high)
        return Distribution(lower, upper, profile.counts[order].astype(np.float64))

    def without_zeros(self) -> Distribution:
        """The same without the bins of zero (which share theirs with values below 2^-133)."""
        kept = (self.lower > _SMALLEST) | (self.upper < -_SMALLEST)
        return Distribution(self.lower[kept], self.upper[kept], self.counts[kept])

    @property
    def total(self) -> float:
        """Number of finite elements."""
        return float(self.counts.sum())

    @property
    def range(self) -> tuple[float, float]:
        """Smallest and largest finite element; (0, 0) where there is none."""
        if not self.counts.size:
            return 0.0, 0.0
        return float(self.lower[0]), float(self.upper[-1])

    def quantile(self, fraction: float) -> float:
        """The value below which this fraction (0 to 1) of the elements lies; 0 where there is none."""
        if not self.counts.size:
            return 0.0
        cumulative = np.cumsum(self.counts)
        wanted = min(max(fraction, 0.0), 1.0) * cumulative[-1]
        index = min(int(np.searchsorted(cumulative, wanted)), self.counts.size - 1)
        inside = 1.0 - (cumulative[index] - wanted) / self.counts[index]
        return float(self.lower[index] + inside * (self.upper[index] - self.lower[index]))

    def linear_histogram(self, bins: int, low: float, high: float) -> Array:
        """float64[bins]: elements in each of `bins` equal parts of [low, high]; others are left out.

        The highest part is closed. Raises ValueError unless low < high.
        """
        if not low < high:
            raise ValueError(f"[{low}, {high}] is not a range")
        edges = np.linspace(low, high, bins + 1)
        below = self.elements_below(edges)
        below[-1] = self.elements_below(np.array([np.nextafter(high, np.inf)]))[0]
        return np.diff(below)

    def points(self, a_bin: int = 4) -> tuple[Array, Array]:
        """(values, weights): every bin as `a_bin` evenly spaced points of equal weight."""
        inside = (np.arange(a_bin) + 0.5) / a_bin
        width = (self.upper - self.lower)[:, None]
        values = self.lower[:, None] + width * inside
        weights = np.repeat(self.counts / a_bin, a_bin)
        return values.reshape(-1), weights

    def power(self) -> float:
        """Mean square of the elements; 0 where there is none."""
        if not self.counts.size:
            return 0.0
        values, weights = self.points()
        return float(np.average(values**2, weights=weights))

    def power_outside(self, low: float, high: float) -> float:
        """Share of the power, 0 to 1, that is lost where elements are cut off at `low` and `high`."""
        if not self.counts.size:
            return 0.0
        values, weights = self.points()
        lost = float(np.sum(weights * np.square(values - np.clip(values, low, high))))
        return lost / max(float(np.sum(weights * np.square(values))), 1e-300)

    def share_outside(self, low: float, high: float) -> float:
        """Share of the elements outside of [low, high], zeros aside: 0 to 1; 0 where there is none."""
        others = self.without_zeros()
        outside = others.counts[(others.lower >= high) | (others.upper <= low)]
        return float(outside.sum()) / max(others.total, 1.0)

    def elements_below(self, x: Array) -> Array:
        """Number of elements strictly below each x, float64 of its shape, with even spread inside bins."""
        if not self.counts.size:
            return np.zeros(len(x))
        before = np.concatenate([[0.0], np.cumsum(self.counts)])
        index = np.searchsorted(self.lower, x, side="left")
        last = np.maximum(index - 1, 0)
        width = self.upper[last] - self.lower[last]
        step = np.divide(x - self.lower[last], width, out=np.ones(len(x)), where=width > 0.0)
        inside = np.clip(step, 0.0, 1.0) * self.counts[last]
        return np.asarray(np.where(index == 0, 0.0, before[last] + inside))


def _bin_edge(magnitude: Array) -> Array:
    """float64 of the pattern `magnitude << 16`; the upper edge of the last finite bin is 2^128."""
    patterns = (np.minimum(magnitude, POSITIVE_INFINITY_BIN - 1).astype(np.uint32)) << np.uint32(16)
    edges = patterns.view(np.float32).astype(np.float64)
    return np.asarray(np.where(magnitude >= POSITIVE_INFINITY_BIN, 2.0**128, edges))

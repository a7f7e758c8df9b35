"""Distance between two distributions: the Wasserstein-1 distance.

It is the mean way that elements would have to be moved to make the one of the other, in the unit of
the values, so that it can be read beside a scale. On a line it is the area between the cumulative
functions: S. S. Vallender, "Calculation of the Wasserstein distance between probability distributions on
the line" (1974).
"""

from __future__ import annotations

import numpy as np

from qglow.core.types import Array
from qglow.profiling.distribution import Distribution


def wasserstein(first: Distribution, second: Distribution) -> float:
    """The Wasserstein-1 distance of the finite elements, spread evenly inside bins; exact for that.

    Inf where one of the two has no elements, 0 where both have none.
    """
    if not first.total or not second.total:
        return 0.0 if first.total == second.total else float("inf")
    edges = np.unique(np.concatenate([first.lower, first.upper, second.lower, second.upper]))
    # Between edges both functions are straight; a bin of no width is a jump at its edge.
    after = _share_below(first, np.nextafter(edges[:-1], np.inf)) - _share_below(
        second, np.nextafter(edges[:-1], np.inf)
    )
    before = _share_below(first, edges[1:]) - _share_below(second, edges[1:])
    return float(np.sum(np.diff(edges) * _mean_magnitude(after, before)))


def _share_below(distribution: Distribution, x: Array) -> Array:
    return np.asarray(distribution.elements_below(x) / distribution.total)


def _mean_magnitude(start: Array, end: Array) -> Array:
    """Mean of |y| over straight lines from `start` to `end`, which may cross zero."""
    total = np.abs(start) + np.abs(end)
    crossing = start * end < 0.0
    squares = np.divide(start**2 + end**2, total, out=np.zeros_like(total), where=crossing)
    return np.asarray(np.where(crossing, squares, total) / 2.0)

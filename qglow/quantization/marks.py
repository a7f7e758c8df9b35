"""Marks (sentinels): elements far from all others, such as the -10000 and infinities of a mask.

A scale that covers a mark leaves the other elements no levels.
"""

from __future__ import annotations

import math

import numpy as np

from qglow.core.types import Array
from qglow.numerics.histogram import NEGATIVE_INFINITY_BIN, POSITIVE_INFINITY_BIN
from qglow.profiling.distribution import Distribution
from qglow.profiling.histogram import ValueProfile

SENTINEL = 100.0
"""Least magnitude of a mark."""
_GAP = 16.0
"""Least ratio of all marks to the largest other element."""
_WIDTH = 1.05
"""Largest ratio of two magnitudes in one mark: they differ, because a mask is added to scores."""
_MOST = 3
"""Most different marks in one value: where masks are added up, -10000 and -20000."""
_MARKED = 0.01
"""Least share of the elements that are marks: fewer are extremes of the signal."""
_LONE = 100.0
"""Ratio from which on fewer elements are marks too: int8 would round all others to a few numbers."""


def without_marks(x: Array, weights: Array, lone: bool = False) -> tuple[Array, float | None]:
    """Return which elements are no mark, as bool, and the outermost mark, or None.

    Marks are nearly equal to each other and far from all others. lone: few elements count too, where they
    are very far.
    """
    magnitude = np.abs(x)
    far = np.zeros(len(x), bool)
    for _ in range(_MOST):
        largest = float(magnitude[~far].max(initial=0.0))
        if largest < SENTINEL:
            break
        far |= magnitude * _WIDTH >= largest
        rest = float(magnitude[~far].max(initial=0.0))
        ratio = float(magnitude[far].min()) / rest if rest > 0.0 else 0.0
        many = float(weights[far].sum()) >= _MARKED * float(weights.sum())
        if ratio >= _GAP and (many or (lone and ratio >= _LONE)):
            return ~far, float(x[far][np.argmax(magnitude[far])])
    return np.ones(len(x), bool), None


def mark_in_profile(profile: ValueProfile, lone: bool = False) -> float | None:
    """Return the outermost mark of a profiled value, an infinity where it has some; None if it has none."""
    if not profile.total or math.isnan(profile.low):
        return None
    for bin_, infinity in ((NEGATIVE_INFINITY_BIN, -math.inf), (POSITIVE_INFINITY_BIN, math.inf)):
        count = int(profile.counts[bin_])
        if count and (lone or count >= _MARKED * profile.total):
            return infinity
    if max(-profile.low, profile.high) < SENTINEL:
        return None
    mark = without_marks(*Distribution.of(profile).points(1), lone)[1]
    if mark is None:
        return None
    return profile.low if mark < 0.0 else profile.high

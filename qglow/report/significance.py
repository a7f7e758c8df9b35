"""Statistics of small evaluation sets: intervals of accuracy, and tests on the samples that flipped."""

from __future__ import annotations

import math
from dataclasses import dataclass

NOISE = 0.05
"""A difference with a higher p-value than this is within noise."""

_Z = 1.959963984540054
"""97.5 per cent of a normal distribution lie below it."""


@dataclass(frozen=True, slots=True)
class Flips:
    """Labelled samples that a program gets wrong and its reference right (lost), and the reverse (won)."""

    samples: int
    lost: int
    won: int

    @property
    def p_value(self) -> float:
        """McNemar's exact test: how often two equally good programs would differ by as much."""
        return sign_test(self.lost, self.won)

    @property
    def drop_error(self) -> float:
        """Half of the 95 % interval of the share that is lost, in percentage points, also where none flipped.

        A. Agresti and Y. Min, "Simple improved confidence intervals for comparing matched proportions", 2005.

        >>> round(Flips(1000, 9, 6).drop_error, 2)
        0.8
        """
        samples, cases, difference = self.samples + 2, self.lost + self.won + 1, self.lost - self.won
        return 100.0 * _Z * math.sqrt(cases - difference * difference / samples) / samples


def wilson_interval(hits: int, samples: int) -> tuple[float, float]:
    """95 % interval (low, high), each 0 to 1, of a share: E. B. Wilson, 1927. Raises ValueError for none."""
    if samples < 1:
        raise ValueError("no samples have been counted")
    share, square = hits / samples, _Z * _Z / samples
    centre = share + square / 2
    spread = _Z * math.sqrt(share * (1 - share) / samples + square / (4 * samples))
    low, high = (centre - spread) / (1 + square), (centre + spread) / (1 + square)
    return (0.0 if hits == 0 else low), (1.0 if hits == samples else high)


def sign_test(first: int, second: int) -> float:
    """Two-sided exact p-value of these counts, where either is as likely for every case; 1 without cases."""
    cases, fewer = first + second, min(first, second)
    # The largest term of the tail by logarithms, since for thousands of cases none fits a float before
    # it is divided by 2^cases; the others relative to it.
    largest = math.lgamma(cases + 1) - math.lgamma(fewer + 1) - math.lgamma(cases - fewer + 1)
    tail = term = 1.0
    for count in range(fewer, 0, -1):
        term *= count / (cases - count + 1)
        tail += term
    return min(1.0, 2.0 * tail * math.exp(largest - cases * math.log(2.0)))


def change_p_value(before: Flips, now: Flips) -> float | None:
    """Bound of how often two equally good programs would differ as these do; None for different data.

    Both were compared with one reference over the same samples, but which samples flipped is not
    known. A sample that flipped in both adds a case to either side, which only raises the p-value: so
    this is an upper bound of the paired test between the two.
    """
    if before.samples != now.samples:
        return None
    return sign_test(now.lost + before.won, now.won + before.lost)


def outside_median(values: int, error: float = 0.01) -> int:
    """Number of values at either end that an interval of the median may leave out.

    The interval then misses the true median in at most `error` of all cases, whatever the distribution: each
    value lies below it as often as a coin shows heads. 0 where so few values cannot tell.

    >>> outside_median(20), outside_median(50)
    (3, 15)
    """
    left, tail = 0, 0.5**values
    term = tail
    while 2.0 * tail <= error:
        left += 1
        term *= (values - left + 1) / left
        tail += term
    return max(left - 1, 0)

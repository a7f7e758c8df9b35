"""Statistics of every value that becomes integer, and the real range that its integers cover."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from qglow.core.types import Quantization
from qglow.numerics.schema import Schema
from qglow.profiling.distribution import Distribution
from qglow.profiling.histogram import ValueProfile
from qglow.quantization.assign import Assignment
from qglow.quantization.channels import ChannelRanges, channel_ranges
from qglow.quantization.ranges import EVERYTHING, Ranges

BINS = 48


@dataclass(frozen=True, slots=True)
class TensorRange:
    """Histogram of one value, and the real range from `low` to `high` that its integers cover.

    counts: elements in equal bins between `seen_low` and `seen_high`; empty where channels were rescaled,
    because only the extremes are known then. clipped: share of the elements that are outside the range by
    more than half a step, the most that rounding moves, 0 to 1.
    scale, zero_point: before rescales are folded. channels: None where the value has no channels.
    """

    value: str
    schema: str
    calibration: str
    seen_low: float
    seen_high: float
    counts: tuple[int, ...]
    low: float
    high: float
    clipped: float
    scale: float
    zero_point: int
    channels: ChannelRanges | None = None


def tensor_ranges(
    assignment: Assignment, statistics: Mapping[str, ValueProfile], ranges: Ranges
) -> tuple[TensorRange, ...]:
    """Return the ranges of all values of the assignment that were profiled, in the assignment's order."""
    found = []
    for value, quantization in assignment.items():
        profile = statistics.get(value.name)
        if profile is not None and not value.is_constant:
            wide = Schema.symmetric.name, str(EVERYTHING)
            chosen = ranges.schema(value).name, str(ranges.calibration(value))
            names = wide if quantization.is_wide else chosen
            found.append(_range(value.name, names, profile, quantization))
    return tuple(found)


def _range(
    name: str, choice: tuple[str, str], profile: ValueProfile, quantization: Quantization
) -> TensorRange:
    covered = quantization.real_range
    counts: tuple[int, ...] = ()
    low, high, clipped = profile.low, profile.high, 0.0
    if profile.total:
        low, high, counts = profile.derived("shown", lambda: _shown(Distribution.of(profile)))
        moved = covered[0] - quantization.scale / 2, covered[1] + quantization.scale / 2
        clipped = profile.derived(("outside", moved), lambda: _outside(Distribution.of(profile), moved))
    finite = [bound if math.isfinite(bound) else 0.0 for bound in (low, high)]
    scale, zero_point = quantization.scale, quantization.zero_point
    return TensorRange(
        name,
        *choice,
        finite[0],
        finite[1],
        counts,
        *covered,
        clipped,
        scale,
        zero_point,
        channel_ranges(profile),
    )


def _shown(distribution: Distribution) -> tuple[float, float, tuple[int, ...]]:
    """Return the extremes, and the counts between them."""
    low, high = distribution.range
    return low, high, _counts(distribution, low, high)


def _counts(distribution: Distribution, low: float, high: float) -> tuple[int, ...]:
    if not low < high:
        return ()
    return tuple(int(count) for count in np.rint(distribution.linear_histogram(BINS, low, high)))


def _outside(distribution: Distribution, bounds: tuple[float, float]) -> float:
    """Return the share of the elements outside the bounds, 0 to 1."""
    if not distribution.total:
        return 0.0
    outside = (distribution.lower >= bounds[1]) | (distribution.upper <= bounds[0])
    return float(distribution.counts[outside].sum() / distribution.total)

"""Statistics of one float value: counts, exact range, and statistics of its channels.

Everything here is an integer sum, a minimum or a maximum, so the order of samples, the batch
size and the way the data is split into shards leave no trace.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from qglow.core.types import Array, Shape
from qglow.numerics.histogram import (
    BIN_COUNT,
    NAN_BIN,
    NEGATIVE_INFINITY_BIN,
    NEGATIVE_ZERO_BIN,
    POSITIVE_INFINITY_BIN,
    POSITIVE_ZERO_BIN,
    histogram,
)

T = TypeVar("T")

FRACTION_BITS = 40
"""Channel means are counted in units of 2^-40."""

_FRACTION = 2.0**FRACTION_BITS
_LARGEST_MEAN = 2.0**45
"""Means beyond this are counted as this: 2^18 samples fit, and no network gets there."""


def channel_axis(shape: Shape) -> int | None:
    """The axis whose slices are channels: 1 as in ONNX images, none for vectors and scalars."""
    return 1 if len(shape) > 1 else None


def channel_size(shape: Shape, axis: int) -> int:
    """Elements of one channel in one sample of a batch of this shape."""
    return math.prod((*shape[1:axis], *shape[axis + 1 :]))


@dataclass
class ChannelProfile:
    """Range and sum of means of every slice along `axis`.

    `low` and `high` are float32[C]. A sample's mean of a channel is cut into whole units and a
    fraction of 2^40ths, both integers, before it is added to `whole` and `fraction` (int64[C]).
    """

    axis: int
    low: Array
    high: Array
    whole: Array
    fraction: Array

    @staticmethod
    def empty(axis: int, channels: int) -> ChannelProfile:
        """Statistics of a value before anything is observed."""
        low = np.full(channels, np.inf, np.float32)
        return ChannelProfile(axis, low, -low, np.zeros(channels, np.int64), np.zeros(channels, np.int64))

    def widen(self, low: Array, high: Array) -> None:
        """Count in ranges: float32[C] each."""
        self.low = np.minimum(self.low, np.asarray(low, np.float32) + np.float32(0.0))
        self.high = np.maximum(self.high, np.asarray(high, np.float32) + np.float32(0.0))

    def add_sums(self, sums: Array, size: int) -> None:
        """Count in samples: float64 sums [N, C] over the `size` elements of a channel of one sample.

        A mean that is not finite counts as 0; the value's counts tell of NaN and infinities.
        """
        means = np.asarray(sums, np.float64) / float(max(size, 1))
        means = np.where(np.isfinite(means), means, 0.0)
        means = np.clip(means, -_LARGEST_MEAN, _LARGEST_MEAN)
        whole = np.floor(means)
        self.whole = self.whole + whole.astype(np.int64).sum(axis=0)
        self.fraction = self.fraction + np.rint((means - whole) * _FRACTION).astype(np.int64).sum(axis=0)

    def merge(self, other: ChannelProfile) -> None:
        """Count in another part of the data. Raises ValueError if channels differ."""
        if self.axis != other.axis or self.low.shape != other.low.shape:
            raise ValueError("the channels differ")
        self.low = np.minimum(self.low, other.low)
        self.high = np.maximum(self.high, other.high)
        self.whole = self.whole + other.whole
        self.fraction = self.fraction + other.fraction

    def totals(self) -> list[int]:
        """Sum over samples of each channel's mean, in units of 2^-40, exactly."""
        pairs = zip(self.whole.tolist(), self.fraction.tolist(), strict=True)
        return [(whole << FRACTION_BITS) + fraction for whole, fraction in pairs]

    @staticmethod
    def from_totals(axis: int, low: Array, high: Array, totals: list[int]) -> ChannelProfile:
        """The inverse of `totals`. Raises OverflowError for totals that no data can give."""
        whole = np.array([total >> FRACTION_BITS for total in totals], np.int64)
        mask = (1 << FRACTION_BITS) - 1
        fraction = np.array([total & mask for total in totals], np.int64)
        return ChannelProfile(axis, low, high, whole, fraction)

    def means(self, samples: int) -> Array:
        """float64[C]: mean over `samples` samples."""
        wide = self.whole.astype(np.float64) + self.fraction.astype(np.float64) / _FRACTION
        return np.asarray(wide / max(samples, 1))


@dataclass
class ValueProfile:
    """Statistics of one float value over all samples.

    `counts` is int64[65536] by the top 16 bits of the pattern. `low` and `high` are the exact
    extremes, infinities included and NaN not; inf and -inf before anything is observed.
    """

    counts: Array = field(default_factory=lambda: np.zeros(BIN_COUNT, np.int64))
    low: float = math.inf
    high: float = -math.inf
    channels: ChannelProfile | None = None
    _derived: tuple[Array, tuple[float, float], dict[object, Any]] | None = field(
        default=None, init=False, repr=False, compare=False
    )
    """Counts and extremes, and the results of `derived` that were computed from them, by key."""

    @staticmethod
    def of_shape(shape: Shape) -> ValueProfile:
        """An empty profile of a value of this shape, with channels where it has some."""
        axis = channel_axis(shape)
        return ValueProfile(channels=None if axis is None else ChannelProfile.empty(axis, shape[axis]))

    def __getstate__(self) -> tuple[Array, Array, float, float, ChannelProfile | None]:
        """Bins that hold something, their counts, extremes and channels: few numbers to send."""
        bins = np.flatnonzero(self.counts).astype(np.uint16)
        return bins, self.counts[bins], self.low, self.high, self.channels

    def __setstate__(self, state: tuple[Array, Array, float, float, ChannelProfile | None]) -> None:
        bins, counts, low, high, channels = state
        self.__init__(np.zeros(BIN_COUNT, np.int64), low, high, channels)  # type: ignore[misc]
        self.counts[bins] = counts

    def observe(self, array: Array) -> None:
        """Count in a batch: float32, samples along axis 0."""
        array = np.ascontiguousarray(array, np.float32)
        if not array.size:
            return
        self.counts = self.counts + histogram(array)
        low, high = _extremes(array)
        self._widen(float(low), float(high))
        if self.channels is None:
            return
        axis = self.channels.axis
        others = tuple(a for a in range(array.ndim) if a != axis)
        self.channels.widen(*_extremes(array, others))
        self.channels.add_sums(_channel_sums(array, axis), channel_size(array.shape, axis))

    def observe_sums(self, channel_sums: Array, size: int) -> None:
        """Count in the float64 sums [N, C] that a compiled program gives after every run.

        `size` is the number of elements of a channel of one sample (`channel_size`).
        """
        if self.channels is not None:
            self.channels.add_sums(channel_sums, size)

    def observe_state(self, counts: Array, value_range: Array, channel_range: Array | None = None) -> None:
        """Count in what a compiled program has collected over all its runs.

        `counts` int64[65536], `value_range` float32[2] and `channel_range` float32[2, C] (minimum, then
        maximum; inf and -inf where nothing was seen).
        """
        self.counts = self.counts + counts
        self._widen(float(value_range[0]), float(value_range[1]))
        if self.channels is not None and channel_range is not None:
            self.channels.widen(channel_range[0], channel_range[1])

    def merge(self, other: ValueProfile) -> None:
        """Count in another part of the data. Raises ValueError if channels differ."""
        if (self.channels is None) != (other.channels is None):
            raise ValueError("the channels differ")
        self.counts = self.counts + other.counts
        self._widen(other.low, other.high)
        if self.channels is not None and other.channels is not None:
            self.channels.merge(other.channels)

    def _widen(self, low: float, high: float) -> None:
        # Adding 0 makes 0 of -0, whose order beside 0 would depend on which came first.
        self.low = min(self.low, low + 0.0)
        self.high = max(self.high, high + 0.0)

    def derived(self, key: object, compute: Callable[[], T]) -> T:
        """Return what `compute` finds from counts and extremes, computed once until more is counted in.

        key: names the result, with everything else that it depends on.
        """
        known, extremes = self._derived, (self.low, self.high)
        if known is None or known[0] is not self.counts or known[1] != extremes:
            self._derived = known = self.counts, extremes, {}
        results = known[2]
        if key not in results:
            results[key] = compute()
        found: T = results[key]
        return found

    @property
    def total(self) -> int:
        """Elements seen."""
        return self.derived("total", lambda: int(self.counts.sum()))

    @property
    def nan_count(self) -> int:
        """Elements that were NaN."""
        return int(self.counts[NAN_BIN])

    @property
    def infinity_count(self) -> int:
        """Elements that were infinite, of either sign."""
        return int(self.counts[POSITIVE_INFINITY_BIN] + self.counts[NEGATIVE_INFINITY_BIN])

    @property
    def zero_count(self) -> int:
        """Elements that were zero (or below 2^-133, which shares the bin)."""
        return int(self.counts[POSITIVE_ZERO_BIN] + self.counts[NEGATIVE_ZERO_BIN])


def _extremes(array: Array, axes: tuple[int, ...] | None = None) -> tuple[Array, Array]:
    """Minimum and maximum over `axes`, NaN ignored and -0 as 0; (inf, -inf) where all are NaN."""
    low = np.fmin.reduce(array, axis=axes, initial=np.inf) + np.float32(0.0)
    high = np.fmax.reduce(array, axis=axes, initial=-np.inf) + np.float32(0.0)
    return np.asarray(low, np.float32), np.asarray(high, np.float32)


def _channel_sums(array: Array, axis: int) -> Array:
    """float64[N, C]. Sample by sample: numpy's order of additions depends on the whole shape."""
    rows = np.moveaxis(array, axis, 1).reshape(array.shape[0], array.shape[axis], -1)
    with np.errstate(invalid="ignore"):
        return np.stack([np.sum(np.ascontiguousarray(row), axis=1, dtype=np.float64) for row in rows])

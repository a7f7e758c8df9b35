"""Choice of the channel factors of a scope with the least error predicted from the profile's channel ranges.

All channels of an activation share one int8 step, and so do all weights of an output channel.
Multiplying a channel of the activation gives it more levels and the weights that read it fewer, so the
factors are those of SmoothQuant, w^(1-a) / x^a for the largest weight w and the largest element x of a
channel, with the a from a grid that gives the least predicted error of the results. With a = 1 they
equalize ranges, as before a depthwise convolution, whose weights have a step for each channel anyway.
After M. Nagel et al., "Data-free quantization through weight equalization and bias correction" (ICCV
2019), and G. Xiao et al., "SmoothQuant" (ICML 2023).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from qglow.core.types import Array
from qglow.graph.graph import Graph, Node, Value
from qglow.numerics.schema import Schema, choose_parameters
from qglow.numerics.weights import CACHED, WEIGHT_MAX
from qglow.profiling.distribution import Distribution
from qglow.profiling.histogram import ValueProfile
from qglow.quantization.bias import channel_means
from qglow.quantization.scopes import ChannelLayout, NoScope, Scope
from qglow.quantization.squared_error import least_squared_error_of

ALPHAS = tuple(index / 10 for index in range(11))
LARGEST_FACTOR = 2.0**14
"""Largest factor of a channel, up or down; a channel that would need more hardly matters."""
WORTHWHILE = 0.25
"""Predicted error after scaling over that before, below which scaling pays if weights lose levels by it.

Where all channels are of similar size anyway, smaller predicted gains are not reached in fact: scaled values
have ranges of channels, but no histogram. Depthwise weights lose no levels.
"""

SchemaOf = Callable[[Value], Schema]


@dataclass(frozen=True)
class Factors:
    """Factors, float64[channels], their exponent, and the predicted noise over signal before and after.

    free: whether no weights lose levels by them.
    """

    channels: Array
    alpha: float
    before: float
    after: float
    free: bool

    @property
    def worthwhile(self) -> bool:
        """Whether the predicted gain is enough; where the factors are `free`, any gain is."""
        return self.after < (1.0 if self.free else WORTHWHILE) * self.before

    @property
    def decibels(self) -> float:
        """Reduction of the predicted squared error in dB; 0 if either error is 0."""
        return 10.0 * math.log10(self.before / self.after) if min(self.before, self.after) > 0.0 else 0.0


@dataclass(frozen=True)
class _Seen:
    """Statistics of a value by channel of the scope, each float64[channels].

    noise: least mean squared error of the value in int8 as it is, not scaled.
    """

    low: Array
    high: Array
    variance: Array
    power: Array
    noise: float
    schema: Schema

    @property
    def magnitude(self) -> Array:
        return np.maximum(np.abs(self.low), np.abs(self.high))

    def noise_by_channel(self, factors: Array | None) -> Array:
        """Return the mean squared error of each channel, in units of the channel before it is scaled.

        factors: None for the value as it is, with the best range for its histogram; else the range is that of
        all scaled channels.
        """
        if factors is None:
            return np.minimum(self.noise, self.power)
        low, high = float(np.min(self.low * factors)), float(np.max(self.high * factors))
        step = choose_parameters(min(low, 0.0), max(high, 0.0), self.schema).scale
        return np.minimum(step**2 / 12.0 / factors**2, self.power)


@dataclass(frozen=True)
class _Reader:
    """Statistics of the weights of a consumer, and the value that it reads.

    largest: float64[G, O/G, channels], the largest weight of each result for each channel. squares:
    float64[channels], sums of squared weights over all results. taps: float64[G, channels], number of
    weights of a result for each channel.
    """

    largest: Array
    squares: Array
    taps: Array
    value: Value

    @cached_property
    def peaks(self) -> Array:
        """float64[channels]: the largest weight of each channel."""
        return np.asarray(np.max(self.largest, axis=(0, 1)))

    @property
    def depthwise(self) -> bool:
        """Whether each result reads one channel."""
        return bool(np.all(np.count_nonzero(self.taps, axis=1) == 1))


@dataclass(frozen=True)
class FactorSearch:
    """Finds factors for scopes of a graph, from statistics by value name over `samples` samples."""

    graph: Graph
    statistics: Mapping[str, ValueProfile]
    samples: int
    schema_of: SchemaOf

    def best(self, scope: Scope, alphas: tuple[float, ...] = ALPHAS) -> Factors:
        """Return the factors of the best of these exponents, even if they gain nothing.

        Raises NoScope for a value without finite channel ranges.
        """
        readers = [_reader(scope, node) for node in scope.consumers]
        noisy = {r.value for r in readers} | (_summed(scope) if scope.summed else set())
        # In the order of the scope: sums of noise depend on the order, and a set has one by address.
        seen = {value: self._seen(scope, value) for value in scope.values if value in noisy}
        fixed, most = self._limits(scope, seen)
        before = _error(readers, seen, scope.summed, None)
        free = all(reader.depthwise for reader in readers)
        given = [_of_alpha(readers, seen, alpha, fixed, most) for alpha in alphas]
        least = [_error(readers, seen, scope.summed, factors, weights=False) for factors in given]
        tried: dict[int, Factors] = {}
        for index in sorted(range(len(alphas)), key=least.__getitem__):
            if tried and least[index] > min(factors.after for factors in tried.values()):
                break  # the error of rounded weights only adds to this one
            after = _error(readers, seen, scope.summed, given[index])
            tried[index] = Factors(given[index], alphas[index], before, after, free)
        return min((tried[index] for index in sorted(tried)), key=lambda factors: factors.after)

    def _seen(self, scope: Scope, value: Value) -> _Seen:
        profile, layout = self.statistics.get(value.name), scope.values[value]
        if profile is None or profile.channels is None or profile.channels.axis != layout.axis:
            raise NoScope(f"no channel ranges of %{value.name}")
        low, high = _by_channel(profile.channels.low, profile.channels.high, layout, scope.size)
        if not (np.all(np.isfinite(low)) and np.all(np.isfinite(high))):
            raise NoScope(f"no finite channel ranges of %{value.name}")
        means = channel_means(profile.channels, profile.total, self.samples, self.graph, value)
        counts = np.maximum(np.bincount(layout.channels, minlength=scope.size), 1)
        mean = np.bincount(layout.channels, means, scope.size) / counts
        schema = self.schema_of(value)
        # Upper bound on the variance of a variable between two bounds (Bhatia and Davis).
        spread = np.maximum((high - mean) * (mean - low), 0.0)
        if not profile.total:
            step = choose_parameters(min(float(low.min()), 0.0), max(float(high.max()), 0.0), schema).scale
            return _Seen(low, high, spread, spread + mean**2, step**2 / 12.0, schema)
        distribution = Distribution.of(profile)
        power = profile.derived("power", distribution.power)
        noise = least_squared_error_of(profile, schema).error / distribution.total
        share = (power - float(np.mean(mean**2))) / max(float(np.mean(spread)), 1e-300)
        variance = spread * min(max(share, 0.01), 1.0)
        return _Seen(low, high, variance, variance + mean**2, noise, schema)

    def _limits(self, scope: Scope, seen: Mapping[Value, _Seen]) -> tuple[Array, Array]:
        """Return which channels a bound clips, and so are not scaled, and by how much the others may grow."""
        fixed, most = np.zeros(scope.size, bool), np.full(scope.size, np.inf)
        for value, bound in scope.clamps:
            high = np.maximum((seen.get(value) or self._seen(scope, value)).high, 0.0)
            fixed |= high >= bound
            room = np.divide(bound, high, out=np.full(scope.size, np.inf), where=high > 0.0)
            most = np.minimum(most, room)
        for value in scope.values.keys() - seen.keys():
            most = np.minimum(most, self._room(scope, value))
        return fixed, most

    def _room(self, scope: Scope, value: Value) -> Array:
        """Return by how much channels may grow in a value inside the scope: up to the value's own range.

        int8 rounds this value too, and a channel that is small where consumers read it may be large here, if
        a function in between has slopes far from 1.
        """
        profile, layout = self.statistics.get(value.name), scope.values[value]
        if profile is None or profile.channels is None or profile.channels.axis != layout.axis:
            return np.full(scope.size, np.inf)
        low, high = _by_channel(profile.channels.low, profile.channels.high, layout, scope.size)
        reach = np.maximum(np.abs(low), np.abs(high))
        unlimited = np.full(scope.size, np.inf)
        return np.asarray(np.divide(float(reach.max()), reach, out=unlimited, where=reach > 0.0))


def _by_channel(low: Array, high: Array, layout: ChannelLayout, size: int) -> tuple[Array, Array]:
    """Return extremes by channel of the scope, from extremes by index along the value's axis."""
    lows, highs = np.full(size, np.inf), np.full(size, -np.inf)
    np.minimum.at(lows, layout.channels, low.astype(np.float64))
    np.maximum.at(highs, layout.channels, high.astype(np.float64))
    unseen = lows > highs
    return np.where(unseen, 0.0, lows), np.where(unseen, 0.0, highs)


def _summed(scope: Scope) -> set[Value]:
    """Operands and results of the sums in a scope: int8 rounds each of them."""
    sums = {u for v in scope.values for u in v.users() if u.operator.additive}
    return {v for node in sums for v in (*node.inputs, node.output) if v is not None}


def _reader(scope: Scope, node: Node) -> _Reader:
    value, weights = node.inputs[0], node.inputs[1]
    assert value is not None and weights is not None and weights.data is not None
    filters = node.operator.filters
    assert filters is not None, "scopes have consumers with weights only"
    rows, groups = filters.rows(weights.data), filters.groups
    places = scope.values[value].channels.reshape(groups, rows.shape[2])
    if rows.shape[2] == 1:
        return _depthwise_reader(rows[:, :, 0], places[:, 0], scope.size, value)
    # float64, because they are divided by float64.
    largest = np.zeros((groups, rows.shape[1], scope.size))
    squares, taps = np.zeros(scope.size), np.zeros((groups, scope.size))
    for group, columns in enumerate(places):
        order = np.argsort(columns, kind="stable")
        channels, starts = np.unique(columns[order], return_index=True)
        in_order = bool(np.all(order[:-1] < order[1:]))
        sorted_rows = rows[group] if in_order else rows[group][:, order]
        peaks = _largest_taps(sorted_rows)
        alone = channels.size == columns.size
        # A slice where all channels are there in order: numpy would copy a selection one by one.
        own = slice(None) if channels.size == scope.size else channels
        largest[group][:, own] = peaks if alone else np.maximum.reduceat(peaks, starts, axis=1)
        powers = np.sum(np.square(sorted_rows, dtype=np.float64), axis=(0, 2))
        squares[channels] += np.add.reduceat(powers, starts)
        taps[group, channels] = rows.shape[3] * np.diff(np.append(starts, columns.size))
    return _Reader(largest, squares, taps, value)


def _depthwise_reader(rows: Array, places: Array, size: int, value: Value) -> _Reader:
    """`_reader` of a convolution whose groups read one channel each.

    rows: [G, O/G, taps]. places: [G], the channel of the scope that a group reads.
    """
    groups, every = rows.shape[0], np.arange(rows.shape[0])
    largest, taps = np.zeros((groups, rows.shape[1], size)), np.zeros((groups, size))
    largest[every, :, places] = _largest_taps(rows)
    taps[every, places] = rows.shape[2]
    squares = np.zeros(size)
    np.add.at(squares, places, np.sum(np.square(rows, dtype=np.float64).reshape(groups, -1), axis=1))
    return _Reader(largest, squares, taps, value)


def _largest_taps(rows: Array) -> Array:
    """The largest magnitude along the last axis, which is too short for numpy to be fast along it."""
    peaks = np.abs(rows[:, :, 0])
    for tap in range(1, rows.shape[2]):
        np.maximum(peaks, np.abs(rows[:, :, tap]), out=peaks)
    return np.asarray(peaks)


def _error(
    readers: list[_Reader],
    seen: Mapping[Value, _Seen],
    summed: bool,
    factors: Array | None,
    weights: bool = True,
) -> float:
    """Return the predicted noise of the readers' results over their signal, as the mean over the readers.

    weights: whether the noise of rounded weights is counted, which takes by far the longest.
    """
    shares = []
    for reader in readers:
        own = seen[reader.value]
        values = seen.values() if summed else [own]
        activations = sum(float(value.noise_by_channel(factors) @ reader.squares) for value in values)
        noise = activations + _weight_noise(reader, own, factors) if weights else activations
        signal = float(own.variance @ reader.squares)
        shares.append(noise / signal if signal > 0.0 else 0.0)
    return float(np.mean(shares))


def _weight_noise(reader: _Reader, own: _Seen, factors: Array | None) -> float:
    """Predicted noise of rounded weights."""
    scaled = 1.0 if factors is None else factors
    steps = _peaks(reader.largest, scaled) / WEIGHT_MAX
    return float(np.sum(steps**2, axis=1) @ (reader.taps @ (own.variance * scaled**2))) / 12.0


def _peaks(largest: Array, divisors: Array | float) -> Array:
    """float64[G, O/G]: the largest of the quotients along the last axis."""
    groups, results, channels = largest.shape
    peaks = np.empty((groups, results))
    rows = max(1, CACHED // max(channels, 1))
    quotients = np.empty((min(rows, results), channels))
    for group in range(groups):
        # Some rows at a time: their quotients stay in the cache.
        for start in range(0, results, rows):
            part = largest[group, start : start + rows]
            divided = np.divide(part, divisors, out=quotients[: len(part)])
            np.max(divided, axis=1, out=peaks[group, start : start + rows])
    return peaks


def _of_alpha(
    readers: list[_Reader], seen: Mapping[Value, _Seen], alpha: float, fixed: Array, most: Array
) -> Array:
    """Return the factors for an exponent, within the limits; the largest channel keeps its size."""
    x = np.max([one.magnitude for one in seen.values()], axis=0)
    w = np.max([reader.peaks / max(float(reader.peaks.max()), 1e-300) for reader in readers], axis=0)
    used = (x > 0.0) & (w > 0.0)
    factors = np.ones_like(x)
    factors[used] = w[used] ** (1.0 - alpha) / x[used] ** alpha
    if np.any(used):
        factors[used] *= float(x[used].max()) / float(np.max(x[used] * factors[used]))
    factors = np.minimum(np.clip(factors, 1.0 / LARGEST_FACTOR, LARGEST_FACTOR), most)
    return np.where(fixed, 1.0, factors)

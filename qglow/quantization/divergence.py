"""The clipping threshold with the least Kullback-Leibler divergence.

The method of S. Migacz, "8-bit inference with TensorRT" (GTC 2017), on linear bins derived
from the profile: the distribution clipped at a threshold is compared with itself after
its bins have been merged into as many groups as there are int8 levels.
"""

from __future__ import annotations

import functools

import numpy as np

from qglow.core.types import Array
from qglow.numerics.schema import Schema
from qglow.profiling.distribution import Distribution

BINS = 4096
CANDIDATES = 128
_SMOOTHING = 1e-4


def least_divergence(distribution: Distribution, schema: Schema) -> tuple[float, float]:
    """The range, cut at one threshold on the magnitude, whose divergence is least."""
    low, high = distribution.range
    largest = max(-low, high)
    if largest <= 0.0 or distribution.total == 0.0:
        return low, high
    counts = _magnitudes(distribution, largest)
    levels = _levels(low, high, schema)
    stops = np.unique(np.linspace(levels, BINS, CANDIDATES).astype(int))
    divergences = [_divergence(counts, int(stop), levels) for stop in stops]
    threshold = float(stops[int(np.argmin(divergences))]) / BINS * largest
    return max(low, -threshold), min(high, threshold)


def _levels(low: float, high: float, schema: Schema) -> int:
    """int8 levels for magnitudes: all where one side is empty and the schema uses that, else half."""
    one_sided = low >= 0.0 or high <= 0.0
    whole = schema is Schema.asymmetric or (schema is Schema.symmetric_with_uint8 and low >= 0.0)
    return 256 if one_sided and whole else 128


def _magnitudes(distribution: Distribution, largest: float) -> Array:
    """float64[BINS]: elements by |x|, without exact zeros, which every range represents."""
    both = distribution.without_zeros().linear_histogram(2 * BINS, -largest, largest)
    return np.asarray(both[BINS:] + both[:BINS][::-1])


def _divergence(counts: Array, stop: int, levels: int) -> float:
    """KL(reference || quantized) of the first `stop` bins; the reference's last holds all beyond."""
    kept = counts[:stop]
    reference = kept.copy()
    reference[-1] += counts[stop:].sum()
    group = _groups(stop, levels)
    filled = kept > 0.0
    sums = np.bincount(group, weights=kept, minlength=levels)
    sizes = np.bincount(group, weights=filled, minlength=levels)
    quantized = np.where(filled, (sums / np.maximum(sizes, 1.0))[group], 0.0)
    p, q = _smoothed(reference), _smoothed(quantized)
    return float(np.sum(p * np.log(p / q)))


@functools.lru_cache(maxsize=4 * CANDIDATES)
def _groups(stop: int, levels: int) -> Array:
    """int64[stop]: the level that each bin is merged into."""
    return np.minimum(np.arange(stop) * levels // stop, levels - 1)


def _smoothed(counts: Array) -> Array:
    """Probabilities, none of them 0."""
    probabilities = counts / max(float(counts.sum()), 1e-300)
    mixed = probabilities + _SMOOTHING / counts.size
    return np.asarray(mixed / mixed.sum())

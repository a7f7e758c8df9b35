"""The clipping threshold with the least Kullback-Leibler divergence.

The method of S. Migacz, "8-bit inference with TensorRT" (GTC 2017), on linear bins derived
from the profile: the distribution clipped at a threshold is compared with itself after
its bins have been merged into as many groups as there are int8 levels.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

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
    counts, levels = _magnitudes(distribution, largest), _levels(low, high, schema)
    filled = (counts > 0.0).astype(np.float64)
    before = np.concatenate([[0.0], np.cumsum(filled)])
    candidates = _candidates(levels)
    divergences = [_divergence(counts, filled, before, candidate) for candidate in candidates]
    threshold = float(candidates[int(np.argmin(divergences))].stop) / BINS * largest
    return max(low, -threshold), min(high, threshold)


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A threshold: the first `stop` bins are kept. group: int64[stop], the level that each is merged into.

    bounds: int64[levels + 1], where the bins of every level begin and end.
    """

    stop: int
    group: Array
    bounds: Array


@functools.cache
def _candidates(levels: int) -> tuple[_Candidate, ...]:
    """Return the thresholds to try for this number of levels, ascending."""
    found = []
    for stop in np.unique(np.linspace(levels, BINS, CANDIDATES).astype(int)):
        group = np.minimum(np.arange(stop) * levels // stop, levels - 1)
        found.append(_Candidate(int(stop), group, np.searchsorted(group, np.arange(levels + 1))))
    return tuple(found)


def _levels(low: float, high: float, schema: Schema) -> int:
    """Return the number of int8 levels for magnitudes: 256 if one-sided and the schema can, else 128."""
    one_sided = low >= 0.0 or high <= 0.0
    whole = schema is Schema.asymmetric or (schema is Schema.symmetric_with_uint8 and low >= 0.0)
    return 256 if one_sided and whole else 128


def _magnitudes(distribution: Distribution, largest: float) -> Array:
    """float64[BINS]: elements by |x|, without exact zeros, which every range represents."""
    both = distribution.without_zeros().linear_histogram(2 * BINS, -largest, largest)
    return np.asarray(both[BINS:] + both[:BINS][::-1])


def _divergence(counts: Array, filled: Array, before: Array, candidate: _Candidate) -> float:
    """Return KL(reference || quantized) of the kept bins; the last one of the reference holds all beyond.

    filled: 1 where there are counts. before: float64[BINS + 1], how many filled bins lie before each.
    """
    stop, group = candidate.stop, candidate.group
    kept = counts[:stop]
    p = kept.copy()
    p[-1] += np.add.reduce(counts[stop:])
    means = np.bincount(group, weights=kept, minlength=candidate.bounds.size - 1)
    ends = before[candidate.bounds]
    members = ends[1:] - ends[:-1]
    np.divide(means, np.maximum(members, 1.0, out=members), out=means)
    q = means.take(group)
    q *= filled[:stop]
    _smooth(p)
    _smooth(q)
    np.divide(p, q, out=q)
    np.log(q, out=q)
    q *= p
    return float(np.add.reduce(q))


def _smooth(counts: Array) -> None:
    """Make probabilities of counts, in place, none of them 0."""
    counts /= max(float(np.add.reduce(counts)), 1e-300)
    counts += _SMOOTHING / counts.size
    counts /= np.add.reduce(counts)

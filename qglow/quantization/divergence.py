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
_NODES = 12
"""Points at which sums are computed to interpolate between them: errors stay below 1e-10 [measured]."""
_TOLERANCE = 1e-9
"""Far more than what an estimate of a divergence differs from it."""
_LEAST_KEPT = 1e-6
"""Share of the elements up to which sums of those that are kept are too inexact for an estimate, 0 aside."""


def least_divergence(distribution: Distribution, schema: Schema) -> tuple[float, float]:
    """The range, cut at one threshold on the magnitude, whose divergence is least.

    All thresholds are estimated together; only those that may be the best one are then computed in full.
    """
    low, high = distribution.range
    largest = max(-low, high)
    if largest <= 0.0 or distribution.total == 0.0:
        return low, high
    counts, levels = _magnitudes(distribution, largest), _levels(low, high, schema)
    if not counts.any():  # all elements are too small to be told from zero
        return low, high
    filled = (counts > 0.0).astype(np.float64)
    before = np.concatenate([[0.0], np.cumsum(filled)])
    candidates = _candidates(levels)
    estimates = _estimates(counts, before, levels)
    least = np.min(estimates, initial=np.inf, where=np.isfinite(estimates))
    hopeful = [
        one for one, estimate in zip(candidates, estimates, strict=True) if not estimate > least + _TOLERANCE
    ]
    divergences = [_divergence(counts, filled, before, candidate) for candidate in hopeful]
    threshold = float(hopeful[int(np.argmin(divergences))].stop) / BINS * largest
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


@functools.cache
def _interpolation(levels: int) -> tuple[Array, Array]:
    """Smoothing terms to compute sums for, float64[_NODES], and the weights of these sums by candidate.

    The terms are Chebyshev nodes on a logarithmic scale between those of the first and last candidate.
    """
    wanted = np.log(_SMOOTHING / np.array([candidate.stop for candidate in _candidates(levels)], np.float64))
    middle, half = (wanted[0] + wanted[-1]) / 2.0, (wanted[0] - wanted[-1]) / 2.0
    angles = (np.arange(_NODES) + 0.5) * np.pi / _NODES
    nodes = middle + half * np.cos(angles)
    signs = np.where(np.arange(_NODES) % 2, -1.0, 1.0) * np.sin(angles)
    distances = wanted[:, None] - nodes
    weights = signs / np.where(distances == 0.0, 1e-300, distances)
    return np.exp(nodes), weights / weights.sum(axis=1, keepdims=True)


def _estimates(counts: Array, before: Array, levels: int) -> Array:
    """Return `_divergence` of all candidates but for rounding; -inf for one that needs to be computed.

    The logarithm of a level is the same for all of its bins, so that cumulative sums over bins do. The
    logarithms of the reference depend on the candidate only by the smoothing term, and are interpolated.
    """
    candidates, total = _candidates(levels), float(np.add.reduce(counts))
    bounds = np.stack([candidate.bounds for candidate in candidates])
    stops = bounds[:, -1]
    smoothing = _SMOOTHING / stops
    sums = np.concatenate([[0.0], np.cumsum(counts / total)])
    kept, last = sums[stops], counts[stops - 1] > 0.0
    beyond = sums[-1] - kept
    shares = np.diff(sums[bounds], axis=1)
    members = np.diff(before[bounds], axis=1)
    levelled = shares / np.maximum(members, 1.0) / np.maximum(kept, 1e-300)[:, None]
    np.log(levelled + smoothing[:, None], out=levelled)
    shares += smoothing[:, None] * members
    shares[:, -1] += np.where(last, beyond, 0.0)
    empty = smoothing * (stops - before[stops]) + np.where(last, 0.0, beyond)
    crossed = np.einsum("ij,ij->i", shares, levelled) + empty * np.log(smoothing)
    own = _own_information(counts / total, before, stops, levels, smoothing, beyond)
    found = (own - crossed) / (1.0 + _SMOOTHING)
    found[kept == 0.0] += np.log(_SMOOTHING / (1.0 + _SMOOTHING))  # all levels are empty
    return np.asarray(np.where((kept > _LEAST_KEPT) | (kept == 0.0), found, -np.inf))


def _own_information(
    shares: Array, before: Array, stops: Array, levels: int, smoothing: Array, beyond: Array
) -> Array:
    """Return the sum over kept bins of p log(p), p the share plus the smoothing term, by candidate."""
    nodes, weights = _interpolation(levels)
    filled = shares[shares > 0.0] + nodes[:, None]
    terms = np.zeros((len(nodes), filled.shape[1] + 1))
    np.cumsum(np.log(filled) * filled, axis=1, out=terms[:, 1:])
    inner = before[stops - 1].astype(int)
    ends = shares[stops - 1] + beyond + smoothing
    empty = (stops - 1 - inner) * smoothing * np.log(smoothing)
    whole = np.einsum("ij,ji->i", weights, terms[:, inner])
    return np.asarray(whole + ends * np.log(ends) + empty)


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

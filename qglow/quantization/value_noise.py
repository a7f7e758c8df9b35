"""Noise that int8 adds to each value, predicted from its histogram alone.

Every element of the histogram is rounded and clipped as int8 would do it. That tells how much a value
loses, and why, without a run of the model.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from qglow.core.types import Array
from qglow.profiling.distribution import Distribution
from qglow.profiling.histogram import ValueProfile
from qglow.quantization.marks import without_marks
from qglow.quantization.tensors import TensorRange

BULK = 0.999
"""Share of elements, nearest to zero, beyond which an element is an extreme."""


@dataclass(frozen=True, slots=True)
class ValueNoise:
    """Noise of one value, relative to its power, and what explains it.

    rounding, clipping: mean squared error over mean square of the elements, without marks. clipped: share
    of the elements outside of the range by more than half a step, 0 to 1. extreme: the largest magnitude
    over the 99.9 % quantile of magnitudes. levels: number of integers that cover the middle 99 % of the
    elements. power: sum of squares of the elements. sentinel: the mark (see `marks`), or None.
    """

    value: str
    rounding: float
    clipping: float
    clipped: float
    extreme: float
    levels: int
    power: float
    sentinel: float | None = None

    @property
    def noise(self) -> float:
        """Noise of rounding and clipping together."""
        return self.rounding + self.clipping


def value_noise(
    tensors: tuple[TensorRange, ...], statistics: Mapping[str, ValueProfile]
) -> tuple[ValueNoise, ...]:
    """Return the noise of every value that has a histogram; a value that is always zero is left out.

    Where channels were rescaled after profiling (`counts` are empty), only rounding is predicted, as if all
    channels had the same factor.
    """
    found = []
    for tensor in tensors:
        profile = statistics.get(tensor.value)
        if profile is not None and profile.total:
            noise = _noise(tensor, profile) if tensor.counts else _rescaled_noise(tensor, profile)
            if noise is not None:
                found.append(noise)
    return tuple(found)


def _noise(tensor: TensorRange, profile: ValueProfile) -> ValueNoise | None:
    distribution = Distribution.of(profile)
    x, weights = distribution.points()
    if not x.size:
        return None
    kept, sentinel = without_marks(x, weights)
    x, weights = x[kept], weights[kept]
    power = float(np.sum(weights * x**2))
    if power <= 0.0:
        return None
    inside = np.clip(x, tensor.low, tensor.high)
    rounded = np.rint(inside / tensor.scale) * tensor.scale
    rounding = float(np.sum(weights * (rounded - inside) ** 2)) / power
    clipping = float(np.sum(weights * (x - inside) ** 2)) / power
    return ValueNoise(
        tensor.value,
        rounding,
        clipping,
        tensor.clipped,
        _extreme(x, weights),
        _levels(distribution, tensor),
        power,
        sentinel,
    )


def _rescaled_noise(tensor: TensorRange, profile: ValueProfile) -> ValueNoise | None:
    """Predict rounding alone, from the power before channels were rescaled and the growth of the range."""
    distribution = Distribution.of(profile)
    low, high = distribution.range
    before, now = max(-low, high), max(-tensor.seen_low, tensor.seen_high)
    power = distribution.power() * (now / before) ** 2 if before > 0.0 else 0.0
    if power <= 0.0:
        return None
    levels = min(int((tensor.seen_high - tensor.seen_low) / tensor.scale) + 1, 256)
    total = distribution.total
    return ValueNoise(tensor.value, tensor.scale**2 / 12 / power, 0.0, 0.0, 1.0, levels, power * total)


def _extreme(x: Array, weights: Array) -> float:
    order = np.argsort(np.abs(x), kind="stable")
    total = np.cumsum(weights[order])
    bulk = np.abs(x)[order][min(int(np.searchsorted(total, BULK * total[-1])), len(x) - 1)]
    largest = float(np.abs(x).max())
    return largest / float(bulk) if bulk > 0.0 else math.inf


def _levels(distribution: Distribution, tensor: TensorRange) -> int:
    low, high = (min(max(distribution.quantile(q), tensor.low), tensor.high) for q in (0.005, 0.995))
    return int(round(high / tensor.scale)) - int(round(low / tensor.scale)) + 1

"""Choice of the real range that int8 covers for a value, from the value's histogram.

A range that cuts off rare extremes leaves finer steps for the rest. The methods differ in
where they cut; the schema then turns the range into a scale and a zero point.
"""

from __future__ import annotations

import math

from qglow.numerics.schema import Schema
from qglow.profiling.distribution import Distribution
from qglow.profiling.histogram import ValueProfile
from qglow.quantization.divergence import least_divergence
from qglow.quantization.squared_error import Function, least_squared_error
from qglow.recipe.choices import Calibration

Range = tuple[float, float]


def choose_range(
    profile: ValueProfile,
    calibration: Calibration,
    schema: Schema,
    lo: float = -math.inf,
    hi: float = math.inf,
    *,
    function: Function | None = None,
    given: bool = False,
) -> Range:
    """Return the range [low, high], with low <= 0 <= high, that int8 shall cover.

    minmax: everything seen. percentile:P: all but (100 - P) / 2 per cent at either end. kl: least
    Kullback-Leibler divergence. mse: least expected squared error. auto: least expected squared error
    of the result of `function`, the only reader of the value; but kl if the value is `given`, an input of
    the model, because rare extremes of the data, such as one silent recording, would cost all other
    samples their levels. lo, hi: bounds of a fused Relu or Clip, which the range does not exceed. NaN and
    infinities are ignored. Without a histogram (channels were rescaled) every method gives the range seen.
    """
    low, high = profile.low, profile.high
    if profile.total:
        low, high = _unbounded(Distribution.of(profile), calibration, schema, function, given)
    low, high = max(low, lo), min(high, hi)
    return min(low, 0.0), max(high, 0.0)


def _unbounded(
    distribution: Distribution,
    calibration: Calibration,
    schema: Schema,
    function: Function | None,
    given: bool,
) -> Range:
    method = calibration.method
    if method == "minmax":
        return distribution.range
    if method == "percentile":
        return _percentile(distribution, calibration.percent)
    if method == "kl" or (method == "auto" and given):
        return least_divergence(distribution, schema)
    return least_squared_error(distribution, schema, function if method == "auto" else None)


def _percentile(distribution: Distribution, percent: float | None) -> Range:
    if percent is None:
        raise ValueError("percentile calibration without a percent")
    tail = (1.0 - percent / 100.0) / 2.0
    return distribution.quantile(tail), distribution.quantile(1.0 - tail)

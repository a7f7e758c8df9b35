"""Which real range of a value int8 shall cover, from its histogram.

A range that cuts off rare extremes leaves finer steps for the rest. The methods differ in
where they cut; the schema then turns the range into a scale and a zero point.
"""

from __future__ import annotations

import math

from qglow.numerics.schema import Schema
from qglow.profiling.distribution import Distribution
from qglow.profiling.histogram import ValueProfile
from qglow.quantization.divergence import least_divergence
from qglow.quantization.squared_error import least_squared_error
from qglow.recipe.choices import Calibration

Range = tuple[float, float]


def choose_range(
    profile: ValueProfile,
    calibration: Calibration,
    schema: Schema,
    lo: float = -math.inf,
    hi: float = math.inf,
) -> Range:
    """The range [low, high], holding 0, that int8 shall cover.

    minmax: everything seen. percentile:P: all but (100 - P) / 2 per cent at either end. kl: least
    Kullback-Leibler divergence. mse: least expected squared error. `lo` and `hi` are the bounds of a
    fused Relu or Clip, outside of which nothing is ever needed. NaN and infinities are ignored. Where
    there is no histogram (channels were rescaled) it is the range seen.
    """
    if profile.total:
        low, high = _RULES[calibration.method](Distribution.of(profile), calibration, schema)
    else:
        low, high = profile.low, profile.high
    low, high = max(low, lo), min(high, hi)
    return min(low, 0.0), max(high, 0.0)


def _minmax(distribution: Distribution, calibration: Calibration, schema: Schema) -> Range:
    return distribution.range


def _percentile(distribution: Distribution, calibration: Calibration, schema: Schema) -> Range:
    if calibration.percent is None:
        raise ValueError("percentile calibration without a percent")
    tail = (1.0 - calibration.percent / 100.0) / 2.0
    return distribution.quantile(tail), distribution.quantile(1.0 - tail)


def _kl(distribution: Distribution, calibration: Calibration, schema: Schema) -> Range:
    return least_divergence(distribution, schema)


def _mse(distribution: Distribution, calibration: Calibration, schema: Schema) -> Range:
    return least_squared_error(distribution, schema)


_RULES = {"minmax": _minmax, "percentile": _percentile, "kl": _kl, "mse": _mse}

"""Choice of the real range that int8 covers for a value, from the value's histogram.

A range that cuts off rare extremes leaves finer steps for the rest. The methods differ in
where they cut; the schema then turns the range into a scale and a zero point.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from qglow.numerics.schema import Schema
from qglow.profiling.distribution import Distribution
from qglow.profiling.histogram import ValueProfile
from qglow.quantization.divergence import least_divergence
from qglow.quantization.squared_error import Function, least_squared_error, least_squared_error_of
from qglow.recipe.choices import Calibration

Range = tuple[float, float]

SAFE = "mse"
"""Calibration in place of `kl` where that would cut off more than rare extremes."""
MOST_CUT = 0.01
"""Share of the elements, zeros aside, that rare extremes are at most."""
MOST_POWER_CUT = 0.25
"""Share of the power that may be cut off if more elements than that lie outside."""


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

    minmax: everything seen, with minmax:F F times as far. percentile:P: all but (100 - P) / 2 per cent at
    either end. kl: least Kullback-Leibler divergence, but mse where that would cut off more than rare
    extremes. mse: least expected squared error. auto: least expected squared error of the result of
    `function`, the only reader of the value; but kl if the value is `given`, an input of the model, because
    rare extremes of the data, such as one silent recording, would cost all other samples their levels. lo,
    hi: bounds of a fused Relu or Clip, which the range does not exceed. NaN and infinities are ignored.
    Without a histogram (channels were rescaled) every method gives the range seen.
    """
    return chosen_range(profile, calibration, schema, lo, hi, function=function, given=given).bounds


@dataclass(frozen=True, slots=True)
class ChosenRange:
    """The range of a value. instead: why `SAFE` took the place of `kl`, or ""."""

    bounds: Range
    instead: str = ""


def chosen_range(
    profile: ValueProfile,
    calibration: Calibration,
    schema: Schema,
    lo: float = -math.inf,
    hi: float = math.inf,
    *,
    function: Function | None = None,
    given: bool = False,
) -> ChosenRange:
    """Choose like `choose_range`, and tell where another calibration took the place of the one asked for."""
    low, high, instead = profile.low, profile.high, ""
    if profile.total:
        followed = function if calibration.method == "auto" else None

        def search() -> tuple[float, float, str]:
            return _searched(profile, calibration, schema, followed, given)

        key = "range", calibration, schema, calibration.uses_divergence(given)
        low, high, instead = profile.derived(key, search) if followed is None else search()
    low, high = max(low, lo), min(high, hi)
    return ChosenRange((min(low, 0.0), max(high, 0.0)), instead)


def _searched(
    profile: ValueProfile,
    calibration: Calibration,
    schema: Schema,
    function: Function | None,
    given: bool,
) -> tuple[float, float, str]:
    """Return the range without the bounds of a function, and why `SAFE` took the place of `kl`, or ""."""
    low, high = _unbounded(profile, calibration, schema, function, given)
    by_divergence = calibration.uses_divergence(given)
    instead = _signal_outside(Distribution.of(profile), low, high) if by_divergence else ""
    if instead:
        low, high = least_squared_error_of(profile, schema).bounds
    return low, high, instead


def _unbounded(
    profile: ValueProfile,
    calibration: Calibration,
    schema: Schema,
    function: Function | None,
    given: bool,
) -> Range:
    method, distribution = calibration.method, Distribution.of(profile)
    if method == "minmax":
        low, high = distribution.range
        return low * calibration.factor, high * calibration.factor
    if method == "percentile":
        return _percentile(distribution, calibration.percent)
    if calibration.uses_divergence(given):
        return least_divergence(distribution, schema)
    if function is None:
        return least_squared_error_of(profile, schema).bounds
    return least_squared_error(distribution, schema, function).bounds


def _signal_outside(distribution: Distribution, low: float, high: float) -> str:
    """Return in words what lies outside if that is more than rare extremes, else "".

    The divergence does not notice: of a few isolated values (a comb) all but one may lie outside, and of
    boxes beside many probabilities all boxes.
    """
    share, power = distribution.share_outside(low, high), distribution.power_outside(low, high)
    if share <= MOST_CUT or power <= MOST_POWER_CUT:
        return ""
    return (
        f"{SAFE} in place of kl, which would cut off {100.0 * share:.3g} % of the elements and "
        f"{100.0 * power:.3g} % of the power"
    )


def _percentile(distribution: Distribution, percent: float | None) -> Range:
    if percent is None:
        raise ValueError("percentile calibration without a percent")
    tail = (1.0 - percent / 100.0) / 2.0
    return distribution.quantile(tail), distribution.quantile(1.0 - tail)

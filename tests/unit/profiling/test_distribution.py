"""Quantiles and linear bins derived from the logarithmic histogram."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qglow.profiling.distribution import Distribution
from qglow.profiling.histogram import ValueProfile


def distribution(values: object) -> Distribution:
    profile = ValueProfile()
    profile.observe(np.asarray(values, np.float32))
    return Distribution.of(profile)


@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=50))
def test_range_and_extreme_quantiles_are_exact(values: list[float]) -> None:
    found = distribution(values)
    low, high = float(np.min(values)), float(np.max(values))
    assert found.range == pytest.approx((low, high), abs=2**-133)
    assert found.quantile(1.0) == pytest.approx(high, abs=2**-133)


@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=50), st.floats(0.0, 1.0))
def test_quantiles_stay_in_range_and_grow(values: list[float], fraction: float) -> None:
    found = distribution(values)
    low, high = found.range
    assert low <= found.quantile(fraction) <= high
    assert found.quantile(fraction / 2) <= found.quantile(fraction)


@pytest.mark.parametrize("fraction", [0.001, 0.05, 0.5, 0.9, 0.9999])
def test_quantiles_are_right_to_a_bin(fraction: float) -> None:
    values = np.random.default_rng(0).normal(size=200_000)
    wanted = np.quantile(values, fraction)
    assert distribution(values).quantile(fraction) == pytest.approx(wanted, rel=0.01, abs=0.01)


@given(st.lists(st.floats(-100, 100, width=32), min_size=1, max_size=60), st.integers(1, 64))
def test_linear_histogram_of_the_whole_range_keeps_every_element(values: list[float], bins: int) -> None:
    found = distribution(values)
    low, high = found.range
    if low < high:
        assert found.linear_histogram(bins, low, high).sum() == pytest.approx(len(values))


def test_linear_histogram_agrees_with_counting() -> None:
    values = np.random.default_rng(1).normal(size=100_000).astype(np.float32)
    counted, _ = np.histogram(values, 40, (-2.0, 2.0))
    derived = distribution(values).linear_histogram(40, -2.0, 2.0)
    assert np.abs(derived - counted).max() < 0.05 * counted.max()


def test_linear_histogram_refuses_an_empty_range() -> None:
    with pytest.raises(ValueError, match="range"):
        distribution([1.0]).linear_histogram(4, 1.0, 1.0)


def test_infinities_and_nan_are_left_out() -> None:
    found = distribution([1.0, 2.0, np.inf, -np.inf, np.nan])
    assert found.total == 2
    assert found.quantile(1.0) == pytest.approx(2.0, rel=0.01)


def test_points_carry_all_the_weight() -> None:
    values, weights = distribution([-3.0, 0.0, 1.0, 1.0]).points(4)
    assert weights.sum() == 4
    assert np.all(np.diff(values) >= 0)


def test_zeros_can_be_left_out() -> None:
    assert distribution([0.0, -0.0, 0.0, 1e-30, -5.0]).without_zeros().total == 2


def test_nothing_observed_is_an_empty_distribution() -> None:
    found = Distribution.of(ValueProfile())
    assert (found.range, found.quantile(0.5), found.power(), found.total) == ((0.0, 0.0), 0.0, 0.0, 0.0)

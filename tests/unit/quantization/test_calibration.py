"""Ranges chosen from histograms."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qglow.numerics.quantize import dequantize_by, quantize_by
from qglow.numerics.schema import Schema, choose_parameters
from qglow.profiling.distribution import Distribution
from qglow.profiling.histogram import ValueProfile
from qglow.quantization.calibration import choose_range
from qglow.quantization.squared_error import expected_squared_error
from qglow.recipe.choices import Calibration

METHODS = ["minmax", "kl", "mse", "percentile:99.9"]
values = st.lists(st.floats(-1e4, 1e4, width=32), min_size=1, max_size=40)


def profiled(array: object) -> ValueProfile:
    profile = ValueProfile()
    profile.observe(np.asarray(array, np.float32))
    return profile


def chosen(array: object, method: str, schema: Schema = Schema.asymmetric) -> tuple[float, float]:
    return choose_range(profiled(array), Calibration.parse(method), schema)


def squared_error(array: np.ndarray, bounds: tuple[float, float], schema: Schema) -> float:
    quantization = choose_parameters(*bounds, schema)
    restored = dequantize_by(quantize_by(array, quantization), quantization)
    return float(np.sum((array.astype(np.float64) - restored) ** 2))


@settings(max_examples=40, deadline=None)
@given(values, st.sampled_from(METHODS), st.sampled_from(list(Schema)))
def test_every_method_stays_within_what_was_seen_and_holds_zero(
    array: list[float], method: str, schema: Schema
) -> None:
    low, high = chosen(array, method, schema)
    assert min(*array, 0.0) - 1e-30 <= low <= 0.0 <= high <= max(*array, 0.0) + 1e-30
    choose_parameters(low, high, schema)


@pytest.mark.parametrize("method", METHODS)
def test_scaling_the_data_scales_the_range(method: str) -> None:
    array = np.random.default_rng(0).normal(size=4000).astype(np.float32)
    small, large = chosen(array, method), chosen(array * 8, method)
    assert large == pytest.approx((small[0] * 8, small[1] * 8), rel=1e-6)


@pytest.mark.parametrize("method", ["kl", "percentile:99.9"])
def test_a_lone_outlier_is_cut_off(method: str) -> None:
    bulk = np.random.default_rng(0).normal(size=20_000).astype(np.float32)
    assert chosen(np.append(bulk, np.float32(1000)), method)[1] < 200
    assert chosen(np.append(bulk, np.float32(1000)), "minmax")[1] == 1000


@pytest.mark.parametrize("method", METHODS)
def test_a_uniform_distribution_is_hardly_cut(method: str) -> None:
    low, high = chosen(np.linspace(-1, 1, 50_001), method)
    assert low < -0.9 and high > 0.9


@pytest.mark.parametrize("method", METHODS)
def test_nothing_but_zeros_is_an_empty_range(method: str) -> None:
    assert chosen(np.zeros(10), method) == (0.0, 0.0)


@pytest.mark.parametrize("method", METHODS)
def test_fused_bounds_cut_the_range(method: str) -> None:
    profile = profiled(np.linspace(-8, 8, 1001))
    calibration = Calibration.parse(method)
    assert choose_range(profile, calibration, Schema.asymmetric, 0.0, 6.0)[0] == 0.0
    assert choose_range(profile, calibration, Schema.asymmetric, 0.0, 6.0)[1] <= 6.0


@pytest.mark.parametrize("method", METHODS)
def test_nan_and_infinities_are_ignored(method: str) -> None:
    array = np.random.default_rng(0).normal(size=2000).astype(np.float32)
    spoilt = np.append(array, [np.nan, np.inf, -np.inf]).astype(np.float32)
    assert chosen(spoilt, method) == pytest.approx(chosen(array, method), rel=0.05)


def test_percentile_leaves_half_of_the_rest_at_either_end() -> None:
    low, high = chosen(np.linspace(-100, 100, 200_001), "percentile:90")
    assert (low, high) == pytest.approx((-90, 90), rel=0.01)


def test_without_a_histogram_the_seen_range_is_taken() -> None:
    profile = ValueProfile(low=-1.0, high=3.0)
    for method in METHODS:
        assert choose_range(profile, Calibration.parse(method), Schema.asymmetric) == (-1.0, 3.0)


@pytest.mark.parametrize("schema", list(Schema))
@pytest.mark.parametrize("kind", ["normal", "relu", "laplace", "negative"])
def test_expected_error_is_the_real_one(schema: Schema, kind: str) -> None:
    random = np.random.default_rng(0)
    array = {
        "normal": random.normal(size=100_000),
        "relu": np.maximum(random.normal(size=100_000), 0),
        "laplace": random.laplace(size=100_000),
        "negative": -np.abs(random.normal(size=100_000)),
    }[kind].astype(np.float32)
    distribution = Distribution.of(profiled(array))
    low, high = float(min(array.min(), 0)), float(max(array.max(), 0))
    for shrink_low, shrink_high in itertools.product([1.0, 0.6, 0.3], [1.0, 0.5, 0.2]):
        bounds = low * shrink_low, high * shrink_high
        expected = expected_squared_error(distribution, np.array(bounds[0]), np.array(bounds[1]), schema)
        assert float(expected) == pytest.approx(squared_error(array, bounds, schema), rel=0.08)


@pytest.mark.parametrize("schema", list(Schema))
def test_mse_beats_the_other_methods_at_its_own_measure(schema: Schema) -> None:
    array = np.random.default_rng(3).standard_t(3, size=50_000).astype(np.float32)
    errors = {m: squared_error(array, chosen(array, m, schema), schema) for m in METHODS}
    assert errors["mse"] <= 1.05 * min(errors.values())


def test_percentile_needs_its_percent() -> None:
    with pytest.raises(ValueError, match="percent"):
        choose_range(profiled([1.0]), Calibration("percentile"), Schema.asymmetric)
    assert math.isclose(chosen([1.0, 2.0], "percentile:100")[1], 2.0)

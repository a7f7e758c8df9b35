"""Ranges chosen from histograms."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qglow.graph.operator import Operator
from qglow.graph.ops.functions import Log, Sigmoid, Swish
from qglow.numerics.quantize import dequantize_by, quantize_by
from qglow.numerics.schema import Schema, choose_parameters
from qglow.profiling.distribution import Distribution
from qglow.profiling.histogram import ValueProfile
from qglow.quantization.calibration import choose_range, chosen_range
from qglow.quantization.squared_error import Function, expected_squared_error, least_squared_error_of
from qglow.recipe.choices import Calibration
from tests.fuzzing import examples

METHODS = ["auto", "minmax", "kl", "mse", "percentile:99.9"]
values = st.lists(st.floats(-1e4, 1e4, width=32), min_size=1, max_size=40)


def profiled(array: object) -> ValueProfile:
    profile = ValueProfile()
    profile.observe(np.asarray(array, np.float32))
    return profile


def chosen(array: object, method: str, schema: Schema = Schema.asymmetric) -> tuple[float, float]:
    return choose_range(profiled(array), Calibration.parse(method), schema)


def test_minmax_with_a_factor_reaches_farther_than_what_was_seen() -> None:
    calibration = Calibration.parse("minmax:1.5")
    assert str(calibration) == "minmax:1.5" and Calibration.parse(str(calibration)) == calibration
    assert choose_range(profiled([-2.0, 4.0]), calibration, Schema.asymmetric) == (-3.0, 6.0)
    assert choose_range(profiled([0.5, 4.0]), calibration, Schema.asymmetric) == (0.0, 6.0)
    assert choose_range(profiled([-2.0, 4.0]), calibration, Schema.asymmetric, lo=0.0, hi=5.0) == (0.0, 5.0)


def squared_error(array: np.ndarray, bounds: tuple[float, float], schema: Schema) -> float:
    quantization = choose_parameters(*bounds, schema)
    restored = dequantize_by(quantize_by(array, quantization), quantization)
    return float(np.sum((array.astype(np.float64) - restored) ** 2))


@settings(max_examples=examples(40))
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


def isolated_values() -> np.ndarray:
    """A few values with small offsets: a comb, of which `kl` alone keeps the tooth nearest to zero."""
    places = np.array([5.6055, 13.0, 30.0, 45.0, 62.0, 90.0])
    offsets = np.random.default_rng(1).uniform(0.0, 0.015, (400, 6))
    return (places + offsets).reshape(-1).astype(np.float32)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("method", METHODS)
def test_no_method_cuts_off_the_teeth_of_a_comb(method: str, sign: int) -> None:
    low, high = chosen(sign * isolated_values(), method)
    assert max(-low, high) > 80.0


def test_what_took_the_place_of_kl_is_told() -> None:
    calibration = Calibration("kl")
    comb = chosen_range(profiled(isolated_values()), calibration, Schema.asymmetric)
    assert comb.instead.startswith("mse in place of kl, which would cut off 83.3 % of the elements")
    bulk = np.random.default_rng(0).normal(size=20_000).astype(np.float32)
    rare = chosen_range(profiled(np.append(bulk, np.float32(1000))), calibration, Schema.asymmetric)
    assert rare.instead == "" and rare.bounds[1] < 200


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
@pytest.mark.parametrize("function", [None, np.tanh], ids=["itself", "tanh"])
def test_a_grid_of_ranges_has_the_errors_of_each(schema: Schema, function: Function | None) -> None:
    array = np.random.default_rng(4).laplace(size=20_000).astype(np.float32)
    distribution = Distribution.of(profiled(array))
    lows, highs = -np.linspace(6.0, 0.0, 5), np.linspace(7.0, 0.0, 4)
    grid = expected_squared_error(distribution, lows[:, None], highs[None, :], schema, function)
    assert grid.shape == (5, 4)
    for (row, low), (column, high) in itertools.product(enumerate(lows), enumerate(highs)):
        alone = expected_squared_error(distribution, np.array([low]), np.array([high]), schema, function)
        assert grid[row, column] == alone[0]


@pytest.mark.parametrize("schema", list(Schema))
def test_the_least_error_of_a_profile_is_that_of_its_range(schema: Schema) -> None:
    profile = profiled(np.random.default_rng(5).normal(size=20_000).astype(np.float32))
    found = least_squared_error_of(profile, schema)
    ends = np.array([found.low]), np.array([found.high])
    assert found.error == expected_squared_error(Distribution.of(profile), *ends, schema)[0]
    assert found is least_squared_error_of(profile, schema)
    profile.observe(np.full((1, 64), 100.0, np.float32))
    assert least_squared_error_of(profile, schema).high > found.high


@pytest.mark.parametrize("schema", list(Schema))
def test_mse_beats_the_other_methods_at_its_own_measure(schema: Schema) -> None:
    array = np.random.default_rng(3).standard_t(3, size=50_000).astype(np.float32)
    errors = {m: squared_error(array, chosen(array, m, schema), schema) for m in METHODS}
    assert errors["mse"] <= 1.05 * min(errors.values())


def seen_through(operator: Operator, array: np.ndarray) -> dict[str, float]:
    """Squared error of the operator's result by method, measured."""
    errors = {}
    for method in ("auto", "mse", "minmax"):
        calibration = Calibration.parse(method)
        bounds = choose_range(profiled(array), calibration, Schema.asymmetric, function=operator.reference64)
        quantization = choose_parameters(*bounds, Schema.asymmetric)
        restored = dequantize_by(quantize_by(array, quantization), quantization)
        wanted, got = (operator.reference64(x.astype(np.float64)) for x in (array, restored))
        errors[method] = float(np.sum((wanted - got) ** 2))
    return errors


@pytest.mark.parametrize("operator", [Swish(), Sigmoid()])
def test_auto_spends_no_levels_on_what_the_reader_makes_constant(operator: Operator) -> None:
    array = np.random.default_rng(0).uniform(-40, 8, size=50_000).astype(np.float32)
    low, high = choose_range(
        profiled(array), Calibration("auto"), Schema.asymmetric, function=operator.reference64
    )
    assert -12 < low < -3 and high > 4
    assert chosen(array, "mse")[0] < -39
    errors = seen_through(operator, array)
    assert errors["auto"] < errors["mse"] / 3


@pytest.mark.parametrize("operator", [Swish(), Sigmoid()])
@pytest.mark.parametrize("spread", [0.5, 3.0, 20.0])
def test_auto_is_best_in_what_the_reader_makes_of_it(operator: Operator, spread: float) -> None:
    array = np.random.default_rng(1).laplace(0, spread, size=50_000).astype(np.float32)
    errors = seen_through(operator, array)
    assert errors["auto"] <= 1.05 * min(errors.values())


def test_auto_without_a_reader_is_mse() -> None:
    array = np.random.default_rng(2).laplace(size=20_000).astype(np.float32)
    assert chosen(array, "auto") == chosen(array, "mse")


def test_auto_leaves_a_function_out_of_account_that_is_not_defined_everywhere() -> None:
    array = np.random.default_rng(2).normal(size=20_000).astype(np.float32)
    bounds = choose_range(profiled(array), Calibration("auto"), Schema.asymmetric, function=Log().reference64)
    assert bounds == chosen(array, "mse")


def test_auto_cuts_extremes_of_given_data_but_not_of_computed_values() -> None:
    random = np.random.default_rng(0)
    array = np.append(random.normal(0, 10, size=100_000), np.full(30, -250.0)).astype(np.float32)
    automatic = Calibration("auto")
    given = choose_range(profiled(array), automatic, Schema.asymmetric, given=True)
    assert given == chosen(array, "kl")
    assert given[0] > -100
    assert choose_range(profiled(array), automatic, Schema.asymmetric)[0] < -200


def test_percentile_needs_its_percent() -> None:
    with pytest.raises(ValueError, match="percent"):
        choose_range(profiled([1.0]), Calibration("percentile"), Schema.asymmetric)
    assert math.isclose(chosen([1.0, 2.0], "percentile:100")[1], 2.0)

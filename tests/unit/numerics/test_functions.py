"""Functions of one variable and powers against float64, ends included."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from qglow.core.types import Array
from qglow.numerics import functions, polynomials
from tests.unit.numerics.oracle import ort
from tests.unit.numerics.test_polynomials import dense, every_magnitude, units_in_the_last_place

Meaning = Callable[..., Array]
ACCURATE: dict[str, tuple[Meaning, Meaning, float]] = {
    "log": (polynomials.log, functions.log_reference, 1.0),
    "erf": (polynomials.erf, functions.erf_reference, 2.0),
    "softplus": (polynomials.softplus, functions.softplus_reference, 3.0),
    "expm1": (polynomials.expm1, np.expm1, 4.0),
}
SETTINGS: dict[str, tuple[Meaning, Meaning, tuple[float | str, ...]]] = {
    "elu": (functions.elu, functions.elu_reference, (1.5,)),
    "leaky-relu": (functions.leaky_relu, functions.leaky_relu_reference, (0.1,)),
    "hard-sigmoid": (functions.hard_sigmoid, functions.hard_sigmoid_reference, (0.2, 0.5)),
    "hard-swish": (functions.hard_swish, functions.hard_swish_reference, ()),
    "gelu": (functions.gelu, functions.gelu_reference, ("none",)),
    "gelu-tanh": (functions.gelu, functions.gelu_reference, ("tanh",)),
    "swish": (functions.swish, functions.swish_reference, (1.5,)),
    "reciprocal": (functions.reciprocal, functions.reciprocal_reference, ()),
    "square": (functions.power_of, functions.power_reference, (2.0,)),
    "cube": (functions.power_of, functions.power_reference, (3.0,)),
    "negative": (functions.negative, np.negative, ()),
    "absolute": (functions.absolute, np.abs, ()),
}


@pytest.mark.parametrize("name", ACCURATE)
def test_results_are_within_the_documented_units_in_the_last_place(name: str) -> None:
    function, reference, limit = ACCURATE[name]
    for x in (every_magnitude()[::3], dense(-104, 89)[::2], dense(-2, 2)[::2]):
        values = np.abs(x) if name == "log" else x
        with np.errstate(all="ignore"):
            exact = reference(values.astype(np.float64))
        finite = np.isfinite(exact)
        assert np.max(units_in_the_last_place(function(values)[finite], exact[finite])) <= limit


def test_log1p_is_accurate_within_the_unit() -> None:
    x = np.concatenate([dense(0, 1), np.geomspace(1e-40, 1, 9999, dtype=np.float32)])
    assert np.max(units_in_the_last_place(polynomials.log1p_of_unit(x), np.log1p(x.astype(np.float64)))) <= 2


@pytest.mark.parametrize("name", SETTINGS)
def test_float_follows_the_reference(name: str) -> None:
    function, reference, settings = SETTINGS[name]
    x = dense(-12, 12)[::10]
    exact = reference(x.astype(np.float64), *settings)
    np.testing.assert_allclose(function(x, *settings), exact, rtol=1e-5, atol=2e-7)


@pytest.mark.parametrize("exponent", functions.ROOTS)
def test_powers_by_roots_err_by_the_documented_units(exponent: float) -> None:
    x = np.abs(every_magnitude()[::3])
    exact = np.power(x.astype(np.float64), exponent)
    finite = np.isfinite(exact)
    away = units_in_the_last_place(functions.power_of(x, exponent)[finite], exact[finite])
    assert np.max(away) <= 2.5


@pytest.mark.parametrize("exponent", functions.ROOTS)
def test_powers_by_roots_at_the_ends(exponent: float) -> None:
    x = np.array([np.inf, np.nan, -1.0, 0.0, 1.0, 1e-45], np.float32)
    values = [np.inf, np.nan, np.nan, 0.0, 1.0, np.power(np.float64(x[-1]), exponent)]
    np.testing.assert_allclose(functions.power_of(x, exponent), np.array(values, np.float32), rtol=1e-6)


def test_powers_err_by_the_documented_units() -> None:
    rng = np.random.default_rng(2)
    x = np.exp(rng.uniform(-5, 5, 200_000)).astype(np.float32)
    y = rng.uniform(-15, 15, x.size).astype(np.float32)
    exact = np.power(x.astype(np.float64), y.astype(np.float64))
    away = units_in_the_last_place(polynomials.power(x, y), exact)
    assert np.all(away <= 2 + 2 * np.abs(y * np.log(x.astype(np.float64))))


def test_powers_at_the_ends_are_those_of_onnxruntime() -> None:
    bases = np.array([-2, -2, -2, -8, 0, 0, 0, 1, 2, np.inf, 4, -3, 1e-40], np.float32)
    exponents = np.array([3, 2, 0.5, -1, 0, 2, -1, 1e9, np.inf, 2, 0.5, 16777217.0, 0.5], np.float32)
    np.testing.assert_allclose(polynomials.power(bases, exponents), ort("Pow", [bases, exponents]), rtol=1e-5)


@pytest.mark.parametrize(
    ("function", "values"),
    [
        (polynomials.log, [np.inf, np.nan, np.nan, -np.inf, -np.inf, 0.0]),
        (polynomials.erf, [1.0, -1.0, np.nan, 0.0, -0.0, 0.84270084]),
        (polynomials.softplus, [np.inf, 0.0, np.nan, np.log(2), np.log(2), 1.3132617]),
        (polynomials.expm1, [np.inf, -1.0, np.nan, 0.0, 0.0, 1.7182817]),
        (functions.sqrt, [np.inf, np.nan, np.nan, 0.0, -0.0, 1.0]),
        (functions.negative, [-np.inf, np.inf, np.nan, -0.0, 0.0, -1.0]),
    ],
)
def test_values_at_the_ends(function: Meaning, values: list[float]) -> None:
    x = np.array([np.inf, -np.inf, np.nan, 0.0, -0.0, 1.0], np.float32)
    np.testing.assert_array_equal(function(x), np.array(values, np.float32))


def test_erf_is_odd_and_gelu_of_both_signs_differs_by_x() -> None:
    x = dense(0, 9)[::7]
    np.testing.assert_array_equal(polynomials.erf(-x), -polynomials.erf(x))
    difference = functions.gelu(x, "none") - functions.gelu(-x, "none")
    np.testing.assert_allclose(difference, x, rtol=1e-6)

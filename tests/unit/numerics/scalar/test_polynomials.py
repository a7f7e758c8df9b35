from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

from qglow.core.types import Array
from qglow.numerics.fused import fused_multiply_add
from qglow.numerics.scalar import polynomials
from qglow.numerics.scalar.activations import Sigmoid, Tanh
from qglow.numerics.scalar.arrays import evaluate
from qglow.numerics.scalar.elementary import Exp, erf64

FUNCTIONS: dict[str, tuple[Callable[[Array], Array], Callable[[Array], Array], float]] = {
    "exp": (partial(evaluate, polynomials.exp), Exp().reference, 1.0),
    "sigmoid": (partial(evaluate, polynomials.sigmoid), Sigmoid().reference, 3.0),
    "tanh": (partial(evaluate, polynomials.tanh), Tanh().reference, 2.0),
    "erf": (partial(evaluate, polynomials.erf), erf64, 2.0),
}


def every_magnitude() -> Array:
    """Floats of both signs whose patterns are evenly spaced, subnormals to infinity, in order."""
    positive = np.arange(0, 0x7F800001, 6007, dtype=np.uint32).view(np.float32)
    return np.concatenate([-positive[::-1], positive])


def dense(low: float, high: float) -> Array:
    return np.linspace(low, high, 400_000, dtype=np.float32)


def units_in_the_last_place(y: Array, exact: Array) -> Array:
    with np.errstate(over="ignore", invalid="ignore"):
        unit = np.spacing(np.abs(exact).astype(np.float32)).astype(np.float64)
        away = np.abs(y.astype(np.float64) - exact) / unit
    return away[np.isfinite(y) & np.isfinite(unit)]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_results_are_within_the_documented_units_in_the_last_place(name: str) -> None:
    function, reference, limit = FUNCTIONS[name]
    for x in (every_magnitude(), dense(-104, 89), dense(-2, 2)):
        with np.errstate(over="ignore"):
            exact = reference(x.astype(np.float64))
        assert np.max(units_in_the_last_place(function(x), exact)) <= limit


def neighbours(start: float) -> Array:
    """The 2^18 floats from `start` on, in ascending order."""
    patterns = np.float32(start).view(np.uint32) + np.arange(2**18, dtype=np.uint32)
    return np.sort(patterns.view(np.float32))


@pytest.mark.parametrize("name, dip", [("exp", 0), ("tanh", 0), ("sigmoid", 1)])
def test_functions_are_monotone_to_the_documented_unit(name: str, dip: int) -> None:
    function = FUNCTIONS[name][0]
    starts = (-4.2, -0.35, 0.3465, 0.62, 1.0)
    for x in (every_magnitude(), dense(-104, 89), *map(neighbours, starts)):
        y = function(x)
        before = np.where(y[:-1] > y[1:], y[:-1], y[1:])
        fallen = before.view(np.int32).astype(np.int64) - y[1:].view(np.int32)
        assert np.max(np.abs(fallen)) <= dip


@pytest.mark.parametrize(
    "name, values",
    [
        ("exp", [np.inf, 0.0, np.nan, 1.0, 1.0, np.inf, 0.0, np.inf, 0.0]),
        ("sigmoid", [1.0, 0.0, np.nan, 0.5, 0.5, 1.0, 0.0, 1.0, 0.0]),
        ("tanh", [1.0, -1.0, np.nan, 0.0, -0.0, 1.0, -1.0, 1.0, -1.0]),
    ],
)
def test_values_at_the_ends(name: str, values: list[float]) -> None:
    x = np.array([np.inf, -np.inf, np.nan, 0.0, -0.0, 3e38, -3e38, 104.5, -104.5], np.float32)
    y = FUNCTIONS[name][0](x)
    np.testing.assert_array_equal(y, np.array(values, np.float32))
    np.testing.assert_array_equal(np.signbit(y)[3:5], np.signbit(values)[3:5])


def test_underflow_of_exp_is_gradual() -> None:
    x = np.array([-87.4, -95.0, -103.0, -103.9], np.float32)
    y = evaluate(polynomials.exp, x)
    assert np.all(y > 0.0) and np.all(y < 2.0**-126)
    np.testing.assert_array_equal(y, np.exp(x.astype(np.float64)).astype(np.float32))


def test_exp_without_its_ends_has_the_same_bits() -> None:
    x = np.concatenate([dense(-87, 88), neighbours(-16.6), neighbours(-0.01)])
    assert np.array_equal(evaluate(polynomials.moderate_exp, x), evaluate(polynomials.exp, x))


def test_the_product_that_exp_subtracts_is_exact() -> None:
    wholes = np.arange(-256, 257, dtype=np.float32)
    products = wholes * np.float32(polynomials.LN2_HIGH)
    np.testing.assert_array_equal(products, wholes.astype(np.float64) * polynomials.LN2_HIGH)


def test_exp_of_what_is_not_positive_has_the_same_bits() -> None:
    patterns = np.arange(0, 0x7F800001, 601, dtype=np.uint32)
    x = np.concatenate([-patterns.view(np.float32), dense(-104, 0), dense(-104.1, -86.9), neighbours(-87.3)])
    short, full = evaluate(polynomials.exp_of_negative, x), evaluate(polynomials.exp, x)
    assert np.array_equal(short.view(np.uint32), full.view(np.uint32))
    assert np.isnan(evaluate(polynomials.exp_of_negative, np.array([np.nan], np.float32)))


def test_tanh_is_odd_and_sigmoid_sums_to_one() -> None:
    x = dense(0, 12)
    np.testing.assert_array_equal(evaluate(polynomials.tanh, -x), -evaluate(polynomials.tanh, x))
    sums = evaluate(polynomials.sigmoid, x).astype(np.float64) + evaluate(polynomials.sigmoid, -x)
    assert np.max(np.abs(sums - 1.0)) <= 2.0**-23


def test_scalars_and_strided_views_work() -> None:
    x = dense(-5, 5)
    for function, _, _ in FUNCTIONS.values():
        np.testing.assert_array_equal(function(x[::7]), function(x)[::7])
        assert function(np.float32(0.25)) == function(np.array([0.25], np.float32))[0]


def test_a_multiplication_and_an_addition_are_rounded_separately() -> None:
    x = dense(-0.3, 0.3)
    coefficients = polynomials.EXP_COEFFICIENTS
    contracted = np.full_like(x, coefficients[0])
    for c in coefficients[1:]:
        contracted = fused_multiply_add(contracted, x, np.full_like(x, c))
    assert np.any(contracted != evaluate(lambda value: polynomials.horner(value, coefficients), x))

"""Functions of one variable and powers against float64, ends included."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

from qglow.core.types import Array
from qglow.numerics.scalar import polynomials
from qglow.numerics.scalar.activations import (
    Elu,
    Gelu,
    HardSigmoid,
    HardSwish,
    LeakyRelu,
    Mish,
    Softplus,
    Swish,
)
from qglow.numerics.scalar.angles import ArcTangent, Cosine, Sine
from qglow.numerics.scalar.arrays import evaluate
from qglow.numerics.scalar.elementary import (
    ROOTS,
    Absolute,
    Ceiling,
    Erf,
    Floored,
    Log,
    NearestWhole,
    Negative,
    PowerOf,
    Reciprocal,
    Signum,
    Sqrt,
)
from qglow.numerics.scalar.function import ScalarFunction
from tests.unit.numerics.oracle import ort
from tests.unit.numerics.scalar.test_polynomials import dense, every_magnitude, units_in_the_last_place

Meaning = Callable[..., Array]


def numpy(function: ScalarFunction) -> Meaning:
    return partial(evaluate, function.real)


log, erf, softplus, expm1, log1p_of_unit, power, normal_distribution = (
    partial(evaluate, meaning)
    for meaning in (
        *(polynomials.log, polynomials.erf, polynomials.softplus),
        *(polynomials.expm1, polynomials.log1p_of_unit, polynomials.power),
        polynomials.normal_distribution,
    )
)
ACCURATE: dict[str, tuple[Meaning, Meaning, float]] = {
    "log": (log, Log().reference, 1.0),
    "erf": (erf, Erf().reference, 2.0),
    "softplus": (softplus, Softplus().reference, 3.0),
    "expm1": (expm1, np.expm1, 4.0),
}
SETTINGS: dict[str, ScalarFunction] = {
    "elu": Elu(1.5),
    "leaky-relu": LeakyRelu(0.1),
    "hard-sigmoid": HardSigmoid(0.2, 0.5),
    "hard-swish": HardSwish(),
    "gelu-tanh": Gelu("tanh"),
    "swish": Swish(1.5),
    "mish": Mish(),
    "reciprocal": Reciprocal(),
    "square": PowerOf(2.0),
    "cube": PowerOf(3.0),
    "negative": Negative(),
    "absolute": Absolute(),
    "rounded": NearestWhole(),
    "floored": Floored(),
    "ceiling": Ceiling(),
    "signum": Signum(),
    "sine": Sine(),
    "cosine": Cosine(),
    "arc-tangent": ArcTangent(),
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
    assert np.max(units_in_the_last_place(log1p_of_unit(x), np.log1p(x.astype(np.float64)))) <= 2


@pytest.mark.parametrize("function", [NearestWhole(), Floored(), Ceiling(), Signum()], ids=lambda f: f.opcode)
def test_whole_numbers_are_exact(function: ScalarFunction) -> None:
    halves = np.arange(-9, 9.5, 0.5, dtype=np.float32)
    large = np.float32(2) ** np.arange(20, 40, dtype=np.float32)
    near = np.nextafter(halves, np.float32(np.inf))
    odd = np.array([-0.0, 0.0, np.inf, -np.inf, np.nan, 8388607.5, -8388607.5, 1e-40], np.float32)
    x = np.concatenate([halves, near, large, -large, large - np.float32(0.5), odd, every_magnitude()])
    found, wanted = numpy(function)(x), function.reference(x)
    np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(np.signbit(found), np.signbit(wanted))


@pytest.mark.parametrize("name", SETTINGS)
def test_float_follows_the_reference(name: str) -> None:
    function = SETTINGS[name]
    x = dense(-12, 12)[::10]
    exact = function.reference(x.astype(np.float64))
    np.testing.assert_allclose(numpy(function)(x), exact, rtol=1e-5, atol=2e-7)


@pytest.mark.parametrize("exponent", ROOTS)
def test_powers_by_roots_err_by_the_documented_units(exponent: float) -> None:
    x = np.abs(every_magnitude()[::3])
    exact = np.power(x.astype(np.float64), exponent)
    finite = np.isfinite(exact)
    away = units_in_the_last_place(numpy(PowerOf(exponent))(x)[finite], exact[finite])
    assert np.max(away) <= 2.5


@pytest.mark.parametrize("exponent", ROOTS)
def test_powers_by_roots_at_the_ends(exponent: float) -> None:
    x = np.array([np.inf, -np.inf, np.nan, -1.0, 0.0, -0.0, 1.0, 1e-45], np.float32)
    values = [np.inf, np.inf, np.nan, np.nan, 0.0, 0.0, 1.0, np.power(np.float64(x[-1]), exponent)]
    found = numpy(PowerOf(exponent))(x)
    np.testing.assert_allclose(found, np.array(values, np.float32), rtol=1e-6)
    assert not np.signbit(found[5])


def test_powers_err_by_the_documented_units() -> None:
    rng = np.random.default_rng(2)
    x = np.exp(rng.uniform(-5, 5, 200_000)).astype(np.float32)
    y = rng.uniform(-15, 15, x.size).astype(np.float32)
    exact = np.power(x.astype(np.float64), y.astype(np.float64))
    away = units_in_the_last_place(power(x, y), exact)
    assert np.all(away <= 2 + 2 * np.abs(y * np.log(x.astype(np.float64))))


def test_powers_at_the_ends_are_those_of_onnxruntime() -> None:
    bases = np.array([-2, -2, -2, -8, 0, 0, 0, 1, 2, np.inf, 4, -3, 1e-40], np.float32)
    exponents = np.array([3, 2, 0.5, -1, 0, 2, -1, 1e9, np.inf, 2, 0.5, 16777217.0, 0.5], np.float32)
    np.testing.assert_allclose(power(bases, exponents), ort("Pow", [bases, exponents]), rtol=1e-5)


def test_powers_of_all_pairs_of_ends_are_those_of_c() -> None:
    sizes = [0.0, 0.5, 1.0, 2.0, 3.0, 4.5, np.inf]
    ends = np.array([*sizes, *(-size for size in sizes), np.nan], np.float32)
    bases, exponents = (part.ravel() for part in np.meshgrid(ends, ends))
    with np.errstate(all="ignore"):
        exact = np.power(bases.astype(np.float64), exponents)
    known = ~np.isnan(exact)
    for_one = [numpy(PowerOf(float(exponent)))(ends) for exponent in ends]
    for found in (power(bases, exponents), np.concatenate(for_one)):
        np.testing.assert_allclose(found, exact.astype(np.float32), rtol=1e-5)
        np.testing.assert_array_equal(np.signbit(found[known]), np.signbit(exact[known]))


@pytest.mark.parametrize(
    ("function", "values"),
    [
        (log, [np.inf, np.nan, np.nan, -np.inf, -np.inf, 0.0]),
        (erf, [1.0, -1.0, np.nan, 0.0, -0.0, 0.84270084]),
        (softplus, [np.inf, 0.0, np.nan, np.log(2), np.log(2), 1.3132617]),
        (expm1, [np.inf, -1.0, np.nan, 0.0, 0.0, 1.7182817]),
        (numpy(Sqrt()), [np.inf, np.nan, np.nan, 0.0, -0.0, 1.0]),
        (numpy(Negative()), [-np.inf, np.inf, np.nan, -0.0, 0.0, -1.0]),
    ],
)
def test_values_at_the_ends(function: Meaning, values: list[float]) -> None:
    x = np.array([np.inf, -np.inf, np.nan, 0.0, -0.0, 1.0], np.float32)
    np.testing.assert_array_equal(function(x), np.array(values, np.float32))


def test_erf_is_odd_and_gelu_of_both_signs_differs_by_x() -> None:
    x = dense(0, 9)[::7]
    np.testing.assert_array_equal(erf(-x), -erf(x))
    difference = numpy(Gelu())(x) - numpy(Gelu())(-x)
    np.testing.assert_allclose(difference, x, rtol=1e-6)


def test_the_normal_distribution_is_near_and_reaches_its_ends() -> None:
    for x in (dense(-12, 12), every_magnitude()):
        exact = (Erf().reference(x.astype(np.float64) / np.sqrt(2.0)) + 1.0) / 2.0
        found = normal_distribution(x)
        assert np.max(np.abs(found - exact)) < 2.4e-7
        assert np.all(found[x < -polynomials.NORMAL_LARGE] == 0.0)
        assert np.all(found[x > polynomials.NORMAL_LARGE] == 1.0)
        np.testing.assert_array_less(
            np.abs(numpy(Gelu())(x) - Gelu().reference(x.astype(np.float64))), 2.5e-7 * np.abs(x) + 1e-37
        )


def test_mish_errs_by_few_units_where_the_exponential_is_a_normal_number() -> None:
    x = dense(-87, 89)
    away = units_in_the_last_place(numpy(Mish())(x), Mish().reference(x.astype(np.float64)))
    assert np.max(away) <= 4
    ends = np.array([np.inf, np.nan, 0.0, -0.0, -200.0, 3e38], np.float32)
    expected = np.array([np.inf, np.nan, 0.0, -0.0, -0.0, 3e38], np.float32)
    np.testing.assert_array_equal(numpy(Mish())(ends), expected)


@pytest.mark.parametrize("function", [Sine(), Cosine()], ids=lambda f: f.opcode)
def test_angles_of_many_turns_keep_their_digits(function: ScalarFunction) -> None:
    x = dense(-10_000, 10_000)
    assert np.max(np.abs(numpy(function)(x) - function.reference(x.astype(np.float64)))) < 1e-7
    ends = np.array([np.inf, -np.inf, np.nan, 4194304.0], np.float32)
    assert np.isnan(numpy(function)(ends)).all()


def test_arc_tangents_at_the_ends() -> None:
    x = np.array([np.inf, -np.inf, -0.0, 1e-40, np.nan], np.float32)
    np.testing.assert_allclose(numpy(ArcTangent())(x), np.arctan(x), rtol=1e-6)

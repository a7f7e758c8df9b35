from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from qglow.core.types import Array
from qglow.numerics.conv import conv_float
from qglow.numerics.fused import conv_chain, fused_multiply_add, gemm_chain
from qglow.numerics.linear import gemm_float
from tests.unit.numerics.oracle import relative_error

FACTORS = st.floats(-(2.0**40), 2.0**40, width=32)


def rounded_once(value: Fraction) -> float:
    """Nearest float32, ties to even, of a value below 2^128."""
    if not value:
        return 0.0
    unit = Fraction(2) ** -149
    while abs(value) / unit >= 2**24:
        unit *= 2
    return float(round(value / unit) * unit)


def exactly(a: float, b: float, c: float) -> float:
    return rounded_once(Fraction(a) * Fraction(b) + Fraction(c))


@given(FACTORS, FACTORS, FACTORS)
def test_the_result_is_rounded_once(a: float, b: float, c: float) -> None:
    assert float(fused_multiply_add(np.float32(a), np.float32(b), np.float32(c))) == exactly(a, b, c)


def test_sums_next_to_a_tie_that_double_rounding_gets_wrong(rng: np.random.Generator) -> None:
    c = rng.uniform(1, 2, 200).astype(np.float32)
    a = np.full_like(c, 1 + 2.0**-23)
    b = np.full_like(c, (1 - 2.0**-23) * 2.0**-24)
    b[::2] *= -1
    # The product is 2^-70 short of half a unit of c, which float64 cannot hold beside c.
    expected = [exactly(*map(float, triple)) for triple in zip(a, b, c, strict=True)]
    np.testing.assert_array_equal(fused_multiply_add(a, b, c), np.array(expected, np.float32))
    rounded_twice = (a.astype(np.float64) * b + c).astype(np.float32)
    assert np.count_nonzero(rounded_twice != np.array(expected, np.float32)) > 50


def test_infinities_and_nan_pass() -> None:
    inf, nan, one = np.float32(np.inf), np.float32(np.nan), np.float32(1)
    assert fused_multiply_add(inf, one, one) == inf
    assert fused_multiply_add(one, one, -inf) == -inf
    assert np.isnan(fused_multiply_add(inf, one, -inf)) and np.isnan(fused_multiply_add(nan, one, one))
    assert fused_multiply_add(np.float32(3e38), np.float32(2), np.float32(-3e38)) == np.float32(3e38)


def slow_chain(pairs: list[tuple[float, float]], start: float) -> float:
    for a, b in pairs:
        start = exactly(a, b, start)
    return start


def test_gemm_chain_starts_from_the_bias_and_ascends(rng: np.random.Generator) -> None:
    x, w = rng.normal(size=(2, 9)).astype(np.float32), rng.normal(size=(9, 3)).astype(np.float32)
    bias = rng.normal(size=3).astype(np.float32)
    result = gemm_chain(x, w, bias)
    for m, n in np.ndindex(2, 3):
        pairs = [(float(x[m, k]), float(w[k, n])) for k in range(9)]
        assert float(result[m, n]) == slow_chain(pairs, float(bias[n]))
    assert relative_error(result, gemm_float(x, w, bias)) < 1e-6


def image(rng: np.random.Generator, *shape: int) -> Array:
    return rng.normal(size=shape).astype(np.float32)


def test_conv_chain_ascends_over_kernel_rows_columns_and_channels(rng: np.random.Generator) -> None:
    x, w, bias = image(rng, 1, 4, 5, 6), image(rng, 6, 2, 2, 3), image(rng, 6)
    result = conv_chain(x, w, bias, strides=(2, 1), group=2)
    for o, oh, ow in np.ndindex(6, 2, 4):
        pairs = [
            (float(x[0, o // 3 * 2 + c, oh * 2 + kh, ow + kw]), float(w[o, c, kh, kw]))
            for kh, kw, c in itertools.product(range(2), range(3), range(2))
        ]
        assert float(result[0, o, oh, ow]) == slow_chain(pairs, float(bias[o]))


def test_conv_chain_agrees_with_the_fast_sum(rng: np.random.Generator) -> None:
    x, bias = image(rng, 2, 6, 7, 8), image(rng, 6)
    for group, dilations in ((1, (2, 1)), (3, (1, 2)), (6, (1, 1))):
        w = image(rng, 6, 6 // group, 3, 3)
        options = {"strides": (2, 1), "pads": (1, 2, 0, 1), "dilations": dilations, "group": group}
        expected = conv_float(x, w, bias, **options)
        assert relative_error(conv_chain(x, w, bias, **options), expected) < 1e-6

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qglow.core.types import ElementType, Quantization
from qglow.numerics.quantize import dequantize_by
from qglow.numerics.requantize import (
    EXACT_SUMMANDS,
    accumulator_extremes,
    accumulator_margin,
    multiplier,
    needs_float_clamp,
    quantized_bounds,
    ratio,
    requantize,
    rescale,
    worst_accumulator,
)

ACCUMULATORS = st.integers(-(2**31), 2**31 - 1)
ZERO_POINTS = st.integers(-128, 127)
MULTIPLIERS = st.floats(width=32, min_value=2.0**-40, max_value=2.0**20)


def float32_of(value: Fraction) -> Fraction:
    """Nearest float32, ties to even, of a value in the normal range."""
    if not value:
        return value
    exponent = math.floor(math.log2(abs(value)))
    while abs(value) < Fraction(2) ** exponent:
        exponent -= 1
    while abs(value) >= Fraction(2) ** (exponent + 1):
        exponent += 1
    unit = Fraction(2) ** (exponent - 23)
    return round(value / unit) * unit


def with_zero(zero_point: int) -> Quantization:
    return Quantization.per_tensor(1.0, zero_point)


@given(ACCUMULATORS, MULTIPLIERS, ZERO_POINTS, ZERO_POINTS, ZERO_POINTS)
def test_requantize_is_two_float32_roundings_and_one_to_an_integer(
    acc: int, m: float, zero: int, a: int, b: int
) -> None:
    lo, hi = min(a, b), max(a, b)
    product = float32_of(float32_of(Fraction(acc)) * Fraction(m))
    expected = max(lo, min(hi, round(product) + zero))
    for dtype in (np.int32, np.int64):
        assert requantize(np.array([acc], dtype), np.float32(m), with_zero(zero), lo, hi) == expected


def test_ties_saturation_and_extreme_sums() -> None:
    acc = np.array([1, 3, -1, -3, 5, 2**31 - 1, -(2**31)], np.int32)
    np.testing.assert_array_equal(requantize(acc, 0.5, with_zero(0)), [0, 2, 0, -2, 2, 127, -128])
    np.testing.assert_array_equal(
        requantize(acc, 3e38, with_zero(-7)), [127, 127, -128, -128, 127, 127, -128]
    )
    wide = Quantization.per_tensor(1.0, 0, ElementType.INT16)
    result = requantize(acc, 0.5, wide)
    np.testing.assert_array_equal(result, [0, 2, 0, -2, 2, 32767, -32768])
    assert result.dtype == np.int16


def test_multiplier_is_evaluated_from_left_to_right_in_float32() -> None:
    s_x, s_y, s_w = np.float32(0.1), np.float32(0.3), np.array([0.7, 0.011, 1e-5], np.float32)
    np.testing.assert_array_equal(multiplier(0.1, s_w, 0.3), (s_x * s_w) / s_y)
    assert multiplier(0.1, s_w, 0.3).dtype == np.float32
    assert multiplier(0.1, 0.7, 0.3).shape == ()


def test_a_multiplier_that_overflows_is_refused() -> None:
    with pytest.raises(ValueError, match="overflow"):
        multiplier(1e30, np.array([1.0, 1e30]), 1e-3)
    with pytest.raises(ValueError, match="overflow"):
        ratio(1e30, 1e-30)


def test_rescale_to_the_same_parameters_changes_nothing() -> None:
    q = np.arange(-128, 128, dtype=np.int8)
    quant = Quantization.per_tensor(0.037, 11)
    np.testing.assert_array_equal(rescale(q, quant, quant), q)


@given(st.integers(-128, 127), ZERO_POINTS, ZERO_POINTS, st.floats(0.01, 100), st.floats(0.01, 100))
def test_rescale_is_nearest_up_to_float32(q: int, zx: int, zy: int, sx: float, sy: float) -> None:
    source, target = Quantization.per_tensor(sx, zx), Quantization.per_tensor(sy, zy)
    exact = float(dequantize_by(np.int8(q), source)) / target.scale + zy
    result = int(rescale(np.array([q], np.int8), source, target)[0])
    assert abs(result - max(-128.0, min(127.0, exact))) <= 0.5 + 1e-4


@pytest.mark.parametrize("weight", [-128, 127])
def test_extremes_of_more_weights_than_float32_counts_are_exact(weight: int) -> None:
    count = EXACT_SUMMANDS + 7
    low, high = accumulator_extremes(np.full((1, count), weight, np.int8), None, 3)
    assert sorted((count * weight * 124, count * weight * -131)) == [int(low[0]), int(high[0])]


def test_bounds_of_relu_and_clip_are_quantized() -> None:
    quant = Quantization.per_tensor(0.05, -20)
    assert quantized_bounds(0.0, math.inf, quant) == (-20, 127)
    assert quantized_bounds(0.0, 6.0, quant) == (-20, 100)
    assert quantized_bounds(-math.inf, math.inf, quant) == (-128, 127)


@given(st.data())
def test_extremes_are_reached_by_some_input_and_exceeded_by_none(data: st.DataObject) -> None:
    seed, zero_x = data.draw(st.integers(0, 2**32 - 1)), data.draw(ZERO_POINTS)
    random = np.random.default_rng(seed)
    w = random.integers(-128, 128, (3, 4)).astype(np.int8)
    bias = random.integers(-(2**20), 2**20, 3).astype(np.int32)
    zero_w = random.integers(-128, 128, 3)
    low, high = accumulator_extremes(w, bias, zero_x, zero_w)
    wide = w.astype(int) - zero_w[:, None]
    corners = np.stack(np.meshgrid(*[[-128, 127]] * 4), -1).reshape(-1, 4) - zero_x
    sums = corners @ wide.T + bias
    np.testing.assert_array_equal(low, sums.min(0))
    np.testing.assert_array_equal(high, sums.max(0))
    by_column = accumulator_extremes(w.T, bias, zero_x, zero_w, axis=1)
    np.testing.assert_array_equal(by_column, (low, high))
    worst = worst_accumulator(w, bias, zero_x, zero_w)
    np.testing.assert_array_equal(worst, np.abs(sums).max(0))


def test_margin_and_proof_of_the_product() -> None:
    w = np.full((1, 1000), 127, np.int8)
    worst = worst_accumulator(w, None, -128)
    assert worst.tolist() == [127 * 255 * 1000]
    assert accumulator_margin(worst) == (2**31 - 1) / (127 * 255 * 1000)
    assert accumulator_margin(np.zeros(2, np.int64)) == math.inf
    assert not needs_float_clamp(np.array([2**29]), np.float32(1.0))
    assert needs_float_clamp(np.array([1, 2**29]), np.float32(2.0))

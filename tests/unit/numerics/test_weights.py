from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qglow.core.types import Array
from qglow.numerics.quantize import quantize
from qglow.numerics.requantize import accumulator_margin, worst_accumulator
from qglow.numerics.weights import (
    CACHED,
    bias_scales,
    dequantize_weights,
    quantize_bias,
    quantize_weights,
    weight_scales,
)

SMALL_OR_LARGE = st.floats(-45, 15)


def weights(rng: np.random.Generator) -> Array:
    return rng.normal(0, 0.1, (6, 4, 3, 3)).astype(np.float32)


def test_the_largest_weight_of_a_channel_becomes_127(rng: np.random.Generator) -> None:
    w = weights(rng)
    scales = weight_scales(w, None, 0.02, axis=0)
    largest = np.abs(w).reshape(6, -1).max(1)
    np.testing.assert_array_equal(scales, (largest / np.float32(127)).astype(np.float32))
    q = quantize_weights(w, scales, 0)
    np.testing.assert_array_equal(np.abs(q.astype(int)).reshape(6, -1).max(1), np.full(6, 127))
    assert np.max(np.abs(dequantize_weights(q, scales, 0) - w) / scales[:, None, None, None]) <= 0.5 + 1e-4


def test_columns_of_a_matrix_have_scales_of_their_own(rng: np.random.Generator) -> None:
    w = rng.normal(size=(5, 3)).astype(np.float32)
    scales = weight_scales(w, None, 1.0, axis=1)
    np.testing.assert_array_equal(scales, weight_scales(w.T, None, 1.0, axis=0))
    np.testing.assert_array_equal(quantize_weights(w, scales, 1), quantize_weights(w.T, scales, 0).T)


def test_a_large_bias_widens_the_scale_so_that_int32_holds_it() -> None:
    w = np.array([[1e-6], [1e-6], [0.5]], np.float32)
    bias = np.array([100.0, 0.0, -1.0], np.float32)
    scales = weight_scales(w, bias, 0.01, axis=0)
    s_x = float(np.float32(0.01))
    assert scales[0] == np.float32(100.0 / (s_x * 2**30))
    assert scales[1] == np.float32(float(np.float32(1e-6)) / 127)
    assert quantize_bias(bias, 0.01, scales).tolist()[0] == pytest.approx(2**30, rel=1e-6)


@given(SMALL_OR_LARGE, SMALL_OR_LARGE, st.floats(-20, 15))
def test_every_magnitude_of_weights_bias_and_input_stays_in_int32(w: float, b: float, x: float) -> None:
    scale_x = max(np.float32(10.0**x), np.float32(2.0**-126))
    values = np.array([[10.0**w] * 9, [0.0] * 9], np.float32)
    bias = np.array([10.0**b, -(10.0**b)], np.float32)
    with np.errstate(over="raise", under="raise", invalid="raise"):
        scales = weight_scales(values, bias, scale_x, axis=0)
        product = bias_scales(scale_x, scales)
    assert np.all(product >= 2.0**-126) and np.all(scales >= 2.0**-100)
    q = quantize_weights(values, scales, 0)
    assert accumulator_margin(worst_accumulator(q, quantize_bias(bias, scale_x, scales), 127)) >= 1.9


def test_nothing_but_zeros_has_scale_1() -> None:
    assert weight_scales(np.zeros((2, 3), np.float32), np.zeros(2), 0.1, 0).tolist() == [1.0, 1.0]
    assert weight_scales(np.zeros((2, 3), np.float32), None, 0.1, 0, per_tensor=True).tolist() == [1.0, 1.0]


def test_per_tensor_gives_every_channel_the_largest_scale(rng: np.random.Generator) -> None:
    w = weights(rng)
    w[2] = 0.0
    per_channel = weight_scales(w, None, 0.1, 0)
    assert per_channel[2] == 1.0
    expected = np.full(6, np.delete(per_channel, 2).max())
    np.testing.assert_array_equal(weight_scales(w, None, 0.1, 0, per_tensor=True), expected)


def test_bias_is_rounded_half_to_even_from_float64() -> None:
    scales = np.array([0.5, 0.5, 0.5, 0.1], np.float32)
    bias = np.array([0.25, 0.75, -0.25, 1e7], np.float32)
    result = quantize_bias(bias, 1.0, scales)
    assert result.dtype == np.int32
    assert result.tolist() == [0, 2, 0, round(1e7 / float(np.float32(0.1)))]


def test_a_bias_that_does_not_fit_and_weights_that_are_not_finite_are_refused() -> None:
    with pytest.raises(ValueError, match="int32"):
        quantize_bias(np.array([1e9]), 0.1, np.array([1.0]))
    with pytest.raises(ValueError, match="finite"):
        weight_scales(np.array([[np.nan]]), None, 1.0, 0)
    with pytest.raises(ValueError, match="finite"):
        weight_scales(np.array([[1.0]]), np.array([np.inf]), 1.0, 0)
    with pytest.raises(ValueError, match="too large"):
        weight_scales(np.array([[1.0]]), np.array([1e14]), 1e-34, 0)
    with pytest.raises(ValueError, match="too large"):
        weight_scales(np.array([[1e14]]), None, 1e30, 0)


@pytest.mark.parametrize(
    ("shape", "axis"), [((300, 40, 3, 3), 0), ((300, 400), 1), ((3, 2 * CACHED), 0), ((0, 4), 1)]
)
def test_weights_rounded_in_pieces_are_those_rounded_at_once(
    shape: tuple[int, ...], axis: int, rng: np.random.Generator
) -> None:
    w = rng.normal(0, 0.1, shape).astype(np.float32)
    scales = rng.uniform(1e-4, 2e-3, shape[axis]).astype(np.float32)
    whole = quantize(w, scales, 0, lo=-127, hi=127, axis=axis)
    np.testing.assert_array_equal(quantize_weights(w, scales, axis), whole)

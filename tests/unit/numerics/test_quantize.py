from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qglow.core.types import Quantization
from qglow.numerics.quantize import (
    count_nan,
    dequantize,
    dequantize_by,
    quantize,
    quantize_by,
    saturate,
    through_float,
)
from tests.unit.numerics.oracle import ort, reference

FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)
SCALES = st.floats(width=32, min_value=2.0**-126, max_value=2.0**100)
ZERO_POINTS = st.integers(-128, 127)


def quantize_exactly(x: float, scale: float, zero: int, lo: int = -128, hi: int = 127) -> int:
    """Saturate after rounding, as ONNX words it, from an exactly rounded float32 quotient."""
    quotient = Fraction(x) / Fraction(scale)
    with np.errstate(over="ignore"):
        # A quotient of two float32 cannot lie so near a float32 tie that float64 hides it.
        rounded = float(np.float32(float(quotient))) if abs(quotient) < 2**128 else math.copysign(1e30, x)
    steps = round(rounded) if math.isfinite(rounded) else int(math.copysign(10**30, rounded))
    return max(lo, min(hi, steps + zero))


@given(FLOATS, SCALES, ZERO_POINTS)
def test_quantize_is_onnx_saturate_after_round_half_even(x: float, scale: float, zero: int) -> None:
    assert quantize(np.float32(x), scale, zero) == quantize_exactly(x, scale, zero)


@given(st.integers(-300, 300), ZERO_POINTS)
def test_ties_go_to_the_even_step_before_the_zero_point(twice: int, zero: int) -> None:
    result = int(quantize(np.float32(twice / 2), 1.0, zero))
    assert result == max(-128, min(127, round(Fraction(twice, 2)) + zero))


@given(st.lists(FLOATS, min_size=1, max_size=20), SCALES, ZERO_POINTS, ZERO_POINTS, ZERO_POINTS)
def test_bounds_narrow_like_a_clamp_afterwards(
    xs: list[float], scale: float, zero: int, a: int, b: int
) -> None:
    x, lo, hi = np.array(xs, np.float32), min(a, b), max(a, b)
    whole = quantize(x, scale, zero)
    np.testing.assert_array_equal(quantize(x, scale, zero, lo, hi), np.clip(whole, lo, hi))


def test_infinities_saturate_and_nan_is_the_zero_point() -> None:
    x = np.array([np.inf, -np.inf, np.nan, 3.4e38, -3.4e38, 1e-45, -0.0], np.float32)
    np.testing.assert_array_equal(quantize(x, 1e-30, 5), [127, -128, 5, 127, -128, 5, 5])
    assert count_nan(x) == 1


def test_uint8_tie_test_of_dynamic_quantize_linear() -> None:
    x = np.array([-127, 128, 0.5], np.float32)
    np.testing.assert_array_equal(quantize(x, 1.0, 127, 0, 255, np.uint8), [0, 255, 127])


def test_division_is_not_multiplication_by_the_reciprocal() -> None:
    differing = 0
    for scale in np.linspace(0.1, 0.2, 20, dtype=np.float32):
        x = (np.arange(-127, 127, dtype=np.float32) + np.float32(0.5)) * scale
        expected = [quantize_exactly(float(v), float(scale), 0) for v in x]
        np.testing.assert_array_equal(quantize(x, scale, 0), expected)
        differing += np.count_nonzero(np.rint(x * (np.float32(1) / scale)) != expected)
    assert differing


@pytest.mark.parametrize("oracle", [ort, reference])
def test_quantize_linear_is_equal_in_every_bit(oracle: object, rng: np.random.Generator) -> None:
    scale, zero = np.float32(0.0371), np.int8(-13)
    x = rng.normal(0, 3, (4, 1000)).astype(np.float32)
    x[0, :500] = (np.arange(-250, 250) + 0.5) * scale
    expected = oracle("QuantizeLinear", [x, scale, zero], np.int8)  # type: ignore[operator]
    np.testing.assert_array_equal(quantize(x, scale, zero), expected)


def test_dequantize_linear_is_equal_in_every_bit_along_an_axis(rng: np.random.Generator) -> None:
    q = rng.integers(-128, 128, (3, 5, 7)).astype(np.int8)
    scales = rng.uniform(1e-3, 2, 5).astype(np.float32)
    zeros = rng.integers(-128, 128, 5).astype(np.int8)
    expected = ort("DequantizeLinear", [q, scales, zeros], axis=1)
    result = dequantize(q, scales, zeros, axis=1)
    assert result.dtype == np.float32
    np.testing.assert_array_equal(result, expected)
    by = Quantization.per_channel(scales, 1, zeros)
    np.testing.assert_array_equal(dequantize_by(q, by), expected)


def test_every_integer_survives_a_round_trip_per_channel(rng: np.random.Generator) -> None:
    q = np.tile(np.arange(-128, 128, dtype=np.int8), (6, 1))
    zeros = rng.integers(-128, 128, 6)
    by = Quantization.per_channel(rng.uniform(1e-6, 50, 6).astype(np.float32), 0, zeros)
    np.testing.assert_array_equal(quantize_by(dequantize_by(q, by), by), q)


def test_parameters_of_several_slices_need_an_axis() -> None:
    with pytest.raises(ValueError, match="axis"):
        quantize(np.zeros(3, np.float32), np.ones(3), 0)


def test_empty_and_zero_dimensional_tensors_keep_their_shape() -> None:
    assert quantize(np.zeros((0, 3), np.float32), 1.0, 0).shape == (0, 3)
    assert quantize(np.float32(2.0), 1.0, 0).shape == ()
    assert saturate(np.float32(np.nan), 7) == 7


def test_an_operator_without_a_rule_goes_through_float() -> None:
    quant = Quantization.per_tensor(0.5, 0)
    q = np.array([-4, 1, 6], np.int8)
    result = through_float(np.abs, [q], [quant], Quantization.per_tensor(0.25, -128))
    np.testing.assert_array_equal(result, [-120, -126, -116])

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from qglow.core.types import Array, Quantization
from qglow.numerics import elementwise
from qglow.numerics.quantize import dequantize_by, quantize_by
from qglow.numerics.requantize import rescale
from tests.unit.numerics.oracle import ort

LEFT, RIGHT = np.meshgrid(*[np.arange(-128, 128, dtype=np.int8)] * 2)
A, B, Y = (
    Quantization.per_tensor(0.037, 11),
    Quantization.per_tensor(0.0213, -50),
    Quantization.per_tensor(0.05, 3),
)
INT8: dict[str, Callable[..., Array]] = {
    "Add": elementwise.add_int8,
    "Sub": elementwise.sub_int8,
    "Mul": elementwise.mul_int8,
}
FLOAT: dict[str, Callable[..., Array]] = {
    "Add": elementwise.add,
    "Sub": elementwise.sub,
    "Mul": elementwise.mul,
    "Div": elementwise.div,
}


@pytest.mark.parametrize("op", INT8)
def test_int8_is_the_nearest_step_for_every_pair_unless_near_a_tie(op: str) -> None:
    result = INT8[op](LEFT, A, RIGHT, B, Y).astype(int)
    a = (LEFT.astype(np.float64) - A.zero_point) * A.scale
    b = (RIGHT.astype(np.float64) - B.zero_point) * B.scale
    real = {"Add": a + b, "Sub": a - b, "Mul": a * b}[op] / Y.scale + Y.zero_point
    away = np.abs(result - np.clip(real, -128, 127))
    assert np.max(away) <= 0.5 + 1e-4


def test_int8_sum_is_two_multiplications_and_one_addition_of_float32() -> None:
    ra, rb = np.float32(A.scale) / np.float32(Y.scale), np.float32(B.scale) / np.float32(Y.scale)
    a, b = (LEFT.astype(int) - 11).astype(np.float32), (RIGHT.astype(int) + 50).astype(np.float32)
    for sign, function in ((1, elementwise.add_int8), (-1, elementwise.sub_int8)):
        value = a * ra + np.float32(sign) * (b * rb)
        expected = np.clip(np.rint(value) + 3, -128, 127)
        np.testing.assert_array_equal(function(LEFT, A, RIGHT, B, Y), expected)


def test_int8_product_is_exact_before_its_one_factor() -> None:
    product = ((LEFT.astype(int) - 11) * (RIGHT.astype(int) + 50)).astype(np.float32)
    factor = (np.float32(A.scale) * np.float32(B.scale)) / np.float32(Y.scale)
    expected = np.clip(np.rint(product * factor) + 3, -128, 127)
    np.testing.assert_array_equal(elementwise.mul_int8(LEFT, A, RIGHT, B, Y), expected)


def test_ties_of_a_sum_go_to_even_in_steps_of_the_result() -> None:
    half, one = Quantization.per_tensor(0.5, 0), Quantization.per_tensor(1.0, 1)
    a, b = np.array([1, 3, 5, -1], np.int8), np.zeros(4, np.int8)
    assert elementwise.add_int8(a, half, b, half, one).tolist() == [1, 3, 3, 1]


@pytest.mark.parametrize("op", INT8)
def test_int8_broadcasts_and_bounds_narrow_the_clamp(op: str, rng: np.random.Generator) -> None:
    a = rng.integers(-128, 128, (2, 3, 4, 5)).astype(np.int8)
    b = rng.integers(-128, 128, (3, 1, 1)).astype(np.int8)
    whole = INT8[op](a, A, b, B, Y)
    assert whole.shape == a.shape and whole.dtype == np.int8
    np.testing.assert_array_equal(whole, INT8[op](a, A, np.broadcast_to(b, a.shape), B, Y))
    np.testing.assert_array_equal(INT8[op](a, A, b, B, Y, 3, 90), np.clip(whole, 3, 90))


@pytest.mark.parametrize("op", FLOAT)
def test_float_equals_onnxruntime_in_every_bit(op: str, rng: np.random.Generator) -> None:
    a, b = rng.normal(size=(3, 40)).astype(np.float32), rng.normal(size=40).astype(np.float32)
    np.testing.assert_array_equal(FLOAT[op](a, b), ort(op, [a, b]))
    clipped = FLOAT[op](a, b, lo=0.0, hi=0.5)
    np.testing.assert_array_equal(clipped, np.clip(ort(op, [a, b]), 0.0, 0.5))


def test_clip_passes_nan_and_holds_infinities() -> None:
    x = np.array([np.nan, np.inf, -np.inf, -3.0, 7.0, 2.5], np.float32)
    result = elementwise.clip(x, 0.0, 6.0)
    np.testing.assert_array_equal(result, np.array([np.nan, 6.0, 0.0, 0.0, 6.0, 2.5], np.float32))
    assert result.dtype == np.float32
    np.testing.assert_array_equal(elementwise.clip(x), x)
    np.testing.assert_array_equal(elementwise.relu(x)[1:], [np.inf, 0.0, 0.0, 7.0, 2.5])


def test_max_and_min_compare_in_the_parameters_of_the_result() -> None:
    larger, smaller = elementwise.max_int8(LEFT, A, RIGHT, B, Y), elementwise.min_int8(LEFT, A, RIGHT, B, Y)
    a, b = rescale(LEFT, A, Y), rescale(RIGHT, B, Y)
    np.testing.assert_array_equal(np.sort([a, b], axis=0), [smaller, larger])


def test_relu_and_clip_are_a_rescale_with_bounds() -> None:
    q = np.arange(-128, 128, dtype=np.int8)
    relu = elementwise.relu_int8(q, A, Y)
    np.testing.assert_array_equal(relu, np.maximum(rescale(q, A, Y), 3))
    relu6 = elementwise.clip_int8(q, A, Y, 0.0, 3.0)
    np.testing.assert_array_equal(relu6, np.clip(rescale(q, A, Y), 3, 63))
    real = np.clip(dequantize_by(q, A), 0.0, 3.0)
    assert np.max(np.abs(dequantize_by(relu6, Y) - real)) <= Y.scale * (0.5 + 1e-4)
    np.testing.assert_array_equal(elementwise.clip_int8(q, A, A, -math.inf, math.inf), q)


def test_int8_quotient_and_power_go_through_float() -> None:
    a, b = dequantize_by(LEFT, A), dequantize_by(RIGHT, B)
    quotient = elementwise.div_int8(LEFT, A, RIGHT, B, Y, -100, 90)
    np.testing.assert_array_equal(quotient, np.clip(quantize_by(elementwise.div(a, b), Y), -100, 90))
    assert quotient[B.zero_point == RIGHT].min() == -100
    power = elementwise.power_int8(LEFT, A, RIGHT, B, Y)
    np.testing.assert_array_equal(power, quantize_by(elementwise.power(a, b), Y))
    slope = np.linspace(-1, 1, 256, dtype=np.float32)
    leaky = elementwise.prelu_int8(LEFT, A, slope, Y)
    np.testing.assert_array_equal(leaky, quantize_by(elementwise.prelu(a, slope), Y))


def test_choices_pass_nan_and_int8_ones_rescale() -> None:
    a = np.array([1.0, np.nan, 2.0, -3.0], np.float32)
    b = np.array([2.0, 1.0, np.nan, -4.0], np.float32)
    np.testing.assert_array_equal(elementwise.maximum(a, b), np.maximum(a, b))
    np.testing.assert_array_equal(elementwise.minimum(a, b), np.minimum(a, b))
    condition = LEFT > RIGHT
    chosen = elementwise.where_int8(condition, LEFT, A, RIGHT, B, Y)
    np.testing.assert_array_equal(chosen[condition], rescale(LEFT, A, Y)[condition])
    np.testing.assert_array_equal(chosen[~condition], rescale(RIGHT, B, Y)[~condition])

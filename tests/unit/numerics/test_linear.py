from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qglow.core.types import Quantization
from qglow.numerics.linear import (
    gemm_accumulate,
    gemm_float,
    gemm_int8,
    matmul_int8,
    product_in_order,
    worst_product,
)
from tests.unit.numerics.oracle import ort, relative_error


@given(
    st.integers(0, 4), st.integers(1, 9), st.integers(1, 5), st.integers(-128, 127), st.integers(0, 2**32 - 1)
)
def test_sums_are_exact(m: int, k: int, n: int, zero_x: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    x = random.integers(-128, 128, (m, k)).astype(np.int8)
    w = random.integers(-128, 128, (k, n)).astype(np.int8)
    zero_w, bias = random.integers(-128, 128, n), random.integers(-999, 999, n)
    expected = (x.astype(int) - zero_x) @ (w.astype(int) - zero_w) + bias
    np.testing.assert_array_equal(gemm_accumulate(x, zero_x, w, zero_w, bias), expected)


def test_float_agrees_with_onnxruntime(rng: np.random.Generator) -> None:
    x, w = rng.normal(size=(3, 50)).astype(np.float32), rng.normal(size=(50, 7)).astype(np.float32)
    bias = rng.normal(size=7).astype(np.float32)
    assert relative_error(gemm_float(x, w, bias), ort("Gemm", [x, w, bias])) < 1e-6
    assert relative_error(gemm_float(x, w), ort("MatMul", [x, w])) < 1e-6


@pytest.mark.parametrize("m, k, n", [(1, 1, 1), (3, 17, 5), (64, 512, 10)])
def test_int8_equals_onnxruntime_in_every_bit(m: int, k: int, n: int, rng: np.random.Generator) -> None:
    x = rng.integers(-128, 128, (m, k)).astype(np.int8)
    # Within these bounds 16-bit intermediate sums do not saturate on processors without VNNI.
    w = rng.integers(-64, 65, (k, n)).astype(np.int8)
    scales = rng.uniform(0.01, 0.1, n).astype(np.float32)
    scale_x, scale_y = np.float32(0.017), np.float32(0.9)
    inputs = [
        (x.astype(int) + 128).astype(np.uint8),
        scale_x,
        np.uint8(120),
        w,
        scales,
        np.zeros(n, np.int8),
        scale_y,
        np.uint8(131),
    ]
    expected = ort("QLinearMatMul", inputs, np.uint8).astype(int) - 128
    x_quant, y_quant = Quantization.per_tensor(scale_x, -8), Quantization.per_tensor(scale_y, 3)
    result = gemm_int8(x, x_quant, w, Quantization.per_channel(scales, 1), None, y_quant)
    np.testing.assert_array_equal(result, expected)


def test_bounds_and_float_results(rng: np.random.Generator) -> None:
    x = rng.integers(-128, 128, (4, 30)).astype(np.int8)
    w = rng.integers(-127, 128, (30, 6)).astype(np.int8)
    bias = rng.integers(-9999, 9999, 6).astype(np.int32)
    scales = rng.uniform(0.01, 0.1, 6).astype(np.float32)
    x_quant, w_quant = Quantization.per_tensor(0.05, 7), Quantization.per_channel(scales, 1)
    acc = gemm_accumulate(x, 7, w, 0, bias)
    real = gemm_int8(x, x_quant, w, w_quant, bias, None, lo=-50.0, hi=60.0)
    product = acc.astype(np.float32) * (np.float32(0.05) * scales)
    np.testing.assert_array_equal(real, np.clip(product, -50.0, 60.0))
    y_quant = Quantization.per_tensor(1.0, 10)
    whole = gemm_int8(x, x_quant, w, w_quant, bias, y_quant)
    narrow = gemm_int8(x, x_quant, w, w_quant, bias, y_quant, lo=10)
    np.testing.assert_array_equal(narrow, np.maximum(whole, 10))


@pytest.mark.parametrize(
    "a, b", [((2, 3, 5), (2, 5, 4)), ((3, 1, 2, 7), (2, 7, 3)), ((7,), (7, 3)), ((7,), (7,))]
)
def test_products_of_activations_equal_onnxruntime(
    a: tuple[int, ...], b: tuple[int, ...], rng: np.random.Generator
) -> None:
    left, right = (rng.integers(-128, 128, shape).astype(np.int8) for shape in (a, b))
    a_quant, b_quant = Quantization.per_tensor(0.017, -8), Quantization.per_tensor(0.04, 100)
    y_quant = Quantization.per_tensor(0.09, 3)
    found = matmul_int8(left, a_quant, right, b_quant, y_quant)
    assert found.shape == np.matmul(left.astype(int), right.astype(int)).shape
    inputs: list[object] = []
    for array, quant in ((left, a_quant), (right, b_quant)):
        inputs += [(array.astype(int) + 128).astype(np.uint8), np.float32(quant.scale)]
        inputs.append(np.uint8(quant.zero_point + 128))
    inputs += [np.float32(y_quant.scale), np.uint8(y_quant.zero_point + 128)]
    expected = np.asarray(ort("QLinearMatMul", inputs, np.uint8)).astype(int) - 128
    np.testing.assert_array_equal(found, expected)
    acc = (left.astype(int) + 8) @ (right.astype(int) - 100)
    real = matmul_int8(left, a_quant, right, b_quant, None)
    np.testing.assert_array_equal(real, acc.astype(np.float32) * (np.float32(0.017) * np.float32(0.04)))


@given(st.integers(1, 9), st.integers(-128, 127), st.integers(-128, 127))
def test_worst_product_is_reached_and_not_passed(depth: int, zero_a: int, zero_b: int) -> None:
    ends = np.array([-128, 127])
    largest = np.abs((ends[:, None] - zero_a) * (ends[None, :] - zero_b)).max()
    assert worst_product(depth, zero_a, zero_b) == depth * largest


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((5, 7), (7, 3)),
        ((7,), (7, 3)),
        ((5, 7), (7,)),
        ((7,), (7,)),
        ((2, 1, 5, 7), (4, 7, 3)),
        ((0, 7), (7, 3)),
    ],
)
def test_products_in_order_are_those_of_numpy(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    random = np.random.default_rng(0)
    a, b = (random.normal(size=shape).astype(np.float32) for shape in (left, right))
    found, expected = product_in_order(a, b), np.matmul(a.astype(np.float64), b.astype(np.float64))
    assert found.shape == expected.shape and found.dtype == np.float32
    assert np.allclose(found, expected, rtol=1e-6, atol=1e-6)

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from qglow.core.types import Array, Quantization
from qglow.numerics.pool import (
    average_multiplier,
    average_pool_float,
    average_pool_int8,
    max_pool,
    pool_output_shape,
    window_counts,
)
from tests.unit.numerics.oracle import ort, relative_error

# Kernel, strides, pads, ceil mode.
WINDOWS: list[tuple[Any, Any, Any, bool]] = [
    ((2, 2), (2, 2), (0, 0, 0, 0), False),
    ((3, 3), (2, 2), (1, 1, 1, 1), False),
    ((3, 3), (2, 2), (0, 0, 0, 0), True),
    ((3, 2), (1, 3), (1, 0, 2, 1), False),
    ((3, 3), (3, 3), (1, 1, 1, 1), True),
    ((5, 5), (1, 1), (2, 2, 2, 2), False),
    ((9, 11), (1, 1), (0, 0, 0, 0), False),
    ((1, 1), (2, 2), (0, 0, 0, 0), True),
]
SHAPE = (2, 3, 9, 11)


def attributes(window: tuple[Any, Any, Any, bool]) -> dict[str, Any]:
    kernel, strides, pads, ceil_mode = window
    return {"kernel_shape": kernel, "strides": strides, "pads": pads, "ceil_mode": int(ceil_mode)}


def members(window: tuple[Any, Any, Any, bool], oh: int, ow: int) -> list[tuple[int, int]]:
    """Pixels of the image that a window covers."""
    kernel, strides, pads, _ = window
    rows = [oh * strides[0] - pads[0] + i for i in range(kernel[0])]
    columns = [ow * strides[1] - pads[1] + j for j in range(kernel[1])]
    inside = itertools.product([h for h in rows if 0 <= h < 9], [w for w in columns if 0 <= w < 11])
    return list(inside)


@pytest.mark.parametrize("window", WINDOWS, ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.int8])
def test_max_pool_equals_onnxruntime(window: Any, dtype: Any, rng: np.random.Generator) -> None:
    x = rng.integers(-128, 128, SHAPE).astype(dtype)
    expected = ort("MaxPool", [x], dtype, **attributes(window))
    result = max_pool(x, *window[:3], ceil_mode=window[3])
    assert result.dtype == dtype
    np.testing.assert_array_equal(result, expected)


def test_dilated_max_pool_equals_onnxruntime(rng: np.random.Generator) -> None:
    x = rng.normal(size=SHAPE).astype(np.float32)
    expected = ort("MaxPool", [x], kernel_shape=(3, 2), dilations=(2, 3), pads=(1, 1, 1, 1), strides=(1, 2))
    result = max_pool(x, (3, 2), (1, 2), (1, 1, 1, 1), (2, 3))
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("dtype, lowest", [(np.float32, -np.inf), (np.int8, -128)])
def test_padding_never_wins(dtype: Any, lowest: float) -> None:
    x = np.full((1, 1, 2, 2), -100, dtype)
    np.testing.assert_array_equal(max_pool(x, (3, 3), pads=(1, 1, 1, 1)), x)
    x[...] = lowest
    np.testing.assert_array_equal(max_pool(x, (3, 3), pads=(1, 1, 1, 1)), x)


def test_nan_wins_every_maximum() -> None:
    x = np.zeros((1, 1, 3, 3), np.float32)
    x[0, 0, 1, 1] = np.nan
    assert np.all(np.isnan(max_pool(x, (2, 2))))


@pytest.mark.parametrize("window", WINDOWS, ids=str)
@pytest.mark.parametrize("include", [False, True])
def test_float_average_agrees_with_onnxruntime(window: Any, include: bool, rng: np.random.Generator) -> None:
    x = rng.normal(size=SHAPE).astype(np.float32)
    expected = ort("AveragePool", [x], count_include_pad=int(include), **attributes(window))
    result = average_pool_float(x, *window, count_include_pad=include)
    assert result.dtype == np.float32
    assert relative_error(result, expected) < 1e-6


@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_int8_average_is_the_exact_sum_times_one_factor(window: Any, rng: np.random.Generator) -> None:
    x = rng.integers(-128, 128, SHAPE).astype(np.int8)
    x_quant, y_quant = Quantization.per_tensor(0.11, 5), Quantization.per_tensor(0.03, -9)
    result = average_pool_int8(x, x_quant, y_quant, *window)
    assert result.shape == pool_output_shape(SHAPE, *window[:3], ceil_mode=window[3])
    for n, c, oh, ow in itertools.product(*map(range, result.shape)):
        covered = members(window, oh, ow)
        total = sum(int(x[n, c, h, w]) - 5 for h, w in covered)
        factor = np.float32(0.11) / (np.float32(0.03) * np.float32(len(covered)))
        expected = np.clip(np.rint(np.float32(total) * factor) - 9, -128, 127)
        assert result[n, c, oh, ow] == expected


@pytest.mark.parametrize("window", WINDOWS, ids=str)
@pytest.mark.parametrize("include", [False, True])
def test_int8_average_is_within_half_a_step_of_the_mean(
    window: Any, include: bool, rng: np.random.Generator
) -> None:
    x = rng.integers(-128, 128, SHAPE).astype(np.int8)
    quant = Quantization.per_tensor(0.5, 5)
    result = average_pool_int8(x, quant, quant, *window, count_include_pad=include)
    mean = average_pool_float(x.astype(np.float32) - 5, *window, count_include_pad=include)
    assert np.max(np.abs(result.astype(int) - 5 - mean)) <= 0.5 + 1e-4


def exact_mean(rows: Array, zero: int) -> list[int]:
    return [round(Fraction(sum(int(v) - zero for v in row), row.size)) + zero for row in rows]


def test_ties_of_an_average_with_shared_parameters_are_exact(rng: np.random.Generator) -> None:
    quant = Quantization.per_tensor(0.0417, -6)
    x = rng.integers(-128, 128, (1, 500, 1, 4)).astype(np.int8)
    result = average_pool_int8(x, quant, quant, (1, 4))
    assert result.reshape(-1).tolist() == exact_mean(x.reshape(-1, 4), -6)
    assert average_multiplier(quant, quant, np.array([1, 4])).tolist() == [1.0, 0.25]


def test_global_average_equals_onnxruntime_in_every_bit(rng: np.random.Generator) -> None:
    x = rng.integers(0, 256, (2, 64, 7, 7)).astype(np.uint8)
    scale_x, scale_y = np.float32(0.0231), np.float32(0.0113)
    node = [x, scale_x, np.uint8(100), scale_y, np.uint8(90)]
    expected = ort("QLinearGlobalAveragePool", node, np.uint8, domain="com.microsoft").astype(int) - 128
    signed = (x.astype(int) - 128).astype(np.int8)
    x_quant, y_quant = Quantization.per_tensor(scale_x, -28), Quantization.per_tensor(scale_y, -38)
    result = average_pool_int8(signed, x_quant, y_quant, (7, 7))
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("window", WINDOWS[:6], ids=str)
def test_int8_average_equals_onnxruntime_but_for_ties(window: Any, rng: np.random.Generator) -> None:
    # onnxruntime sums dequantized values, so that it may fall to the other side of a near tie.
    x = rng.integers(0, 256, SHAPE).astype(np.uint8)
    scale_x, scale_y = np.float32(0.0231), np.float32(0.0113)
    node = [x, scale_x, np.uint8(100), scale_y, np.uint8(90)]
    options = attributes(window) | {"domain": "com.microsoft"}
    expected = ort("QLinearAveragePool", node, np.uint8, **options).astype(int) - 128
    signed = (x.astype(int) - 128).astype(np.int8)
    x_quant, y_quant = Quantization.per_tensor(scale_x, -28), Quantization.per_tensor(scale_y, -38)
    result = average_pool_int8(signed, x_quant, y_quant, *window)
    mean = average_pool_float((x.astype(np.float32) - 100) * scale_x, *window) / scale_y
    near_tie = np.abs(mean - np.floor(mean) - 0.5) < 1e-4
    assert np.all((result == expected) | (near_tie & (np.abs(result - expected) <= 1)))


def test_counts_of_clipped_windows() -> None:
    np.testing.assert_array_equal(window_counts((1, 1, 3, 3), (3, 3), (1, 1), (1, 1, 1, 1))[0], [4, 6, 4])
    whole = window_counts((1, 1, 3, 3), (3, 3), (1, 1), (1, 1, 1, 1), count_include_pad=True)
    assert np.all(whole == 9)
    over = window_counts((1, 1, 5, 5), (2, 2), (2, 2), (0, 0, 0, 0), ceil_mode=True, count_include_pad=True)
    np.testing.assert_array_equal(over[-1], [2, 2, 1])


def test_a_fused_bound_narrows_the_clamp(rng: np.random.Generator) -> None:
    x = rng.integers(-128, 128, SHAPE).astype(np.int8)
    quant = Quantization.per_tensor(0.5, 5)
    whole = average_pool_int8(x, quant, quant, (2, 2))
    np.testing.assert_array_equal(
        average_pool_int8(x, quant, quant, (2, 2), lo=5, hi=30), np.clip(whole, 5, 30)
    )

from __future__ import annotations

import numpy as np
import pytest

from qglow.numerics.softmax import softmax_float
from tests.unit.numerics.oracle import ort


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_agrees_with_onnxruntime_along_any_axis(axis: int, rng: np.random.Generator) -> None:
    x = rng.normal(0, 5, (4, 37, 11)).astype(np.float32)
    result = softmax_float(x, axis)
    assert result.dtype == np.float32
    np.testing.assert_allclose(result, ort("Softmax", [x], axis=axis), rtol=2e-6, atol=1e-9)
    np.testing.assert_allclose(result.sum(axis=axis), 1.0, rtol=1e-6)


def test_large_values_do_not_overflow_and_minus_infinity_is_zero() -> None:
    x = np.array([[1e30, 1e30, -np.inf], [500.0, 0.0, -500.0]], np.float32)
    np.testing.assert_array_equal(softmax_float(x), np.array([[0.5, 0.5, 0], [1, 0, 0]], np.float32))


def test_rows_without_a_finite_score_are_zeros_on_request() -> None:
    x = np.array([[-np.inf, -np.inf], [1.0, -np.inf], [np.nan, 1.0], [np.inf, 0.0]], np.float32)
    np.testing.assert_array_equal(softmax_float(x)[:2], np.array([[np.nan] * 2, [1, 0]], np.float32))
    expected = np.array([[0, 0], [1, 0], [0, 0], [0, 0]], np.float32)
    np.testing.assert_array_equal(softmax_float(x, masked_to_zero=True), expected)


def test_one_element_is_certain_and_nothing_stays_nothing() -> None:
    assert softmax_float(np.array([[-7.0]], np.float32)).tolist() == [[1.0]]
    assert softmax_float(np.zeros((0, 3), np.float32)).shape == (0, 3)
    assert softmax_float(np.zeros((3, 0), np.float32)).shape == (3, 0)


def test_a_row_does_not_depend_on_the_others(rng: np.random.Generator) -> None:
    x = rng.normal(0, 5, (8, 100)).astype(np.float32)
    np.testing.assert_array_equal(softmax_float(x)[3], softmax_float(x[3:4])[0])

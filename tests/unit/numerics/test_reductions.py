from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qglow.numerics.reduce import running_sum
from qglow.numerics.reductions import interleaved_sum


def slow_sum(values: list[float]) -> np.float32:
    lanes = [np.float32(0.0)] * 16
    for i, value in enumerate(values):
        lanes[i % 16] = lanes[i % 16] + np.float32(value)
    while len(lanes) > 1:
        half = len(lanes) // 2
        lanes = [lanes[j] + lanes[j + half] for j in range(half)]
    return lanes[0]


@given(st.lists(st.floats(-(2.0**60), 2.0**60, width=32), max_size=70))
def test_order_of_additions_is_that_of_the_contract(values: list[float]) -> None:
    assert interleaved_sum(np.array(values, np.float32)).tobytes() == slow_sum(values).tobytes()


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_any_axis(axis: int, rng: np.random.Generator) -> None:
    x = rng.normal(size=(17, 33, 5)).astype(np.float32)
    result = interleaved_sum(x, axis)
    rows = np.moveaxis(x, axis, -1)
    assert result.shape == rows.shape[:-1] and result.dtype == np.float32
    for index in np.ndindex(*result.shape):
        assert result[index] == slow_sum(rows[index].tolist())


def test_zeros_beyond_the_end_change_no_bit(rng: np.random.Generator) -> None:
    x = rng.normal(size=(50, 37)).astype(np.float32)
    x[0, :] = -0.0
    padded = np.pad(x, ((0, 0), (0, 11)))
    assert interleaved_sum(x).tobytes() == interleaved_sum(padded).tobytes()


def test_nothing_sums_to_zero_and_infinities_pass() -> None:
    assert interleaved_sum(np.zeros((2, 0), np.float32)).tolist() == [0.0, 0.0]
    assert interleaved_sum(np.array([1, np.inf, 3], np.float32)) == math.inf
    assert np.isnan(interleaved_sum(np.array([-np.inf, np.inf], np.float32)))


def test_running_sums_start_with_the_first_element_and_exclusive_ones_with_zero() -> None:
    x = np.array([-0.0, 1, np.inf, 2, -np.inf], np.float32)
    for reverse, expected in (
        (False, [-0.0, 1, np.inf, np.inf, np.nan]),
        (True, [np.nan, np.nan, np.nan, -np.inf, -np.inf]),
    ):
        found = running_sum(x, 0, False, reverse)
        np.testing.assert_array_equal(found, np.array(expected, np.float32))
        assert np.signbit(running_sum(x[:1], 0, False, reverse)[0])
        assert not np.signbit(running_sum(x[:1], 0, True, reverse)[0])
    np.testing.assert_array_equal(running_sum(x, 0, True), np.array([0, 0, 1, np.inf, np.inf], np.float32))


def test_running_sums_of_integers_wrap_around_and_nothing_has_none() -> None:
    assert running_sum(np.array([[100, 100]], np.int8), 1).tolist() == [[100, -56]]
    assert running_sum(np.zeros((2, 0), np.float32), 1, exclusive=True).shape == (2, 0)

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qglow.numerics.ranking import first_indices, first_values, rank_keys

NUMBERS = st.sampled_from([0.0, -0.0, 1.0, -1.0, 1e-45, np.inf, -np.inf, 3e38])
TIED = st.lists(NUMBERS, min_size=1, max_size=40)


@given(TIED, st.booleans(), st.booleans())
def test_order_is_that_of_a_stable_sort(values: list[float], largest: bool, last: bool) -> None:
    x = np.array(values, np.float32)
    sign, back = (-1 if largest else 1), (-1 if last else 1)
    expected = sorted(range(len(x)), key=lambda i: (sign * x[i], back * i))
    assert first_indices(x, 0, len(x), largest, last).tolist() == expected


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int8, np.int64])
def test_first_place_is_that_of_numpy(dtype: type, rng: np.random.Generator) -> None:
    x = rng.integers(-5, 5, (4, 9, 3)).astype(dtype)
    for axis in (0, 1, -1):
        assert np.array_equal(first_indices(x, axis, 1), np.argmax(x, axis, keepdims=True))
        assert np.array_equal(first_indices(x, axis, 1, largest=False), np.argmin(x, axis, keepdims=True))


def test_nan_ranks_first_whatever_its_sign() -> None:
    nan = np.array([np.nan, -np.nan], np.float32)
    x = np.array([np.inf, nan[0], -np.inf, nan[1]], np.float32)
    assert first_indices(x, 0, 4).tolist() == [1, 3, 0, 2]
    assert first_indices(x, 0, 4, largest=False).tolist() == [1, 3, 2, 0]
    assert first_indices(x, 0, 1, last=True).tolist() == [3]


def test_ends_of_integers_do_not_overflow() -> None:
    x = np.array([np.iinfo(np.int64).min, 0, np.iinfo(np.int64).max])
    assert first_indices(x, 0, 3).tolist() == [2, 1, 0]
    assert first_indices(x, 0, 3, largest=False).tolist() == [0, 1, 2]


@pytest.mark.parametrize("dtype", [np.int64, np.uint64])
def test_neighbours_at_the_ends_of_64_bits_are_told_apart(dtype: type) -> None:
    least, most = np.iinfo(dtype).min, np.iinfo(dtype).max
    x = np.array([least, most - 1, least + 1, most], dtype)
    assert first_indices(x, 0, 4).tolist() == [3, 1, 2, 0]
    assert first_indices(x, 0, 4, largest=False).tolist() == [0, 2, 1, 3]


def test_values_are_the_elements_themselves() -> None:
    x = np.array([[-0.0, 0.0, 2.0], [5.0, 7.0, 7.0]], np.float32)
    found = first_values(x, 1, 2)
    assert found.dtype == np.float32 and found.tolist() == [[2.0, 0.0], [7.0, 7.0]]
    assert np.signbit(found[0, 1]), "of equal elements the first"
    assert rank_keys(x)[0, 0] == rank_keys(x)[0, 1]

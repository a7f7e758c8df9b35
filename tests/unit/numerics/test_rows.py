"""Scales of rows: the definition, zeros, subnormal numbers, and rows without a finite scale."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from qglow.core.types import Array
from qglow.numerics.rows import row_scales


def bits(x: Array) -> list[int]:
    return [int(v) for v in np.asarray(x, np.float32).view(np.uint32).reshape(-1)]


def test_the_largest_magnitude_becomes_127() -> None:
    x = np.array([[1.0, -254.0, 3.0], [0.0, 0.5, -0.25]], np.float32)
    assert row_scales(x).tolist() == [[2.0], [float(np.float32(0.5) / np.float32(127))]]


def test_zeros_and_tiny_rows_have_the_least_scale() -> None:
    x = np.array([[0.0, -0.0], [1e-40, -1e-38]], np.float32)
    assert row_scales(x).tolist() == [[2.0**-100], [2.0**-100]]


def test_rows_with_infinities_or_nan_have_one_nan() -> None:
    x = np.array([[np.inf, 1], [-np.inf, np.nan], [np.nan, 0], [1, 2]], np.float32)
    x.view(np.uint32)[2, 0] = 0xFFC12345
    assert bits(row_scales(x))[:3] == [0x7FC00000] * 3
    assert np.isfinite(row_scales(x)[3, 0])


def test_rows_of_nothing_are_as_zeros() -> None:
    assert row_scales(np.zeros((2, 0), np.float32)).tolist() == [[2.0**-100], [2.0**-100]]


@given(arrays(np.float32, (3, 9), elements=st.floats(width=32, allow_nan=False, allow_infinity=False)))
def test_a_row_does_not_depend_on_its_neighbours_and_fits_127(x: Array) -> None:
    whole = row_scales(x)
    for index, row in enumerate(x):
        assert bits(whole[index]) == bits(row_scales(row[None]))
        assert np.all(np.abs(row / whole[index]) <= np.float32(127.00002))

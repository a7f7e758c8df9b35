"""Resampling: coordinates, weights and what lies outside."""

from __future__ import annotations

import numpy as np
import pytest

from qglow.numerics.resize import (
    COORDINATES,
    Sampling,
    cubic_taps,
    interpolate,
    linear_taps,
    nearest_indices,
    positions,
)


@pytest.mark.parametrize("coordinates", COORDINATES)
def test_weights_add_up_to_one_and_indices_are_in_range(coordinates: str) -> None:
    for extent, size, scale in ((5, 12, 2.4), (12, 5, 0.4166), (1, 3, 3.0), (3, 1, 0.3)):
        axis = Sampling(extent, size, scale, coordinates, 0.1, 0.8)
        for antialias in (False, True):
            for taps in (
                linear_taps(axis, True, antialias, 0.0),
                cubic_taps(axis, -0.75, False, antialias, 0.0),
            ):
                inside = np.ones(size) if taps.offsets is None else taps.weights.any(axis=1)
                np.testing.assert_allclose(taps.weights.sum(axis=1), inside, atol=1e-6)
                assert taps.indices.min() >= 0 and taps.indices.max() < extent


def test_doubling_an_axis_takes_every_element_twice() -> None:
    axis = Sampling(4, 8, 2.0, "asymmetric")
    assert nearest_indices(axis, "floor").tolist() == [0, 0, 1, 1, 2, 2, 3, 3]


def test_corners_stay_where_they_are() -> None:
    axis = Sampling(4, 7, 1.75, "align_corners")
    assert positions(axis)[[0, -1]].tolist() == [0.0, 3.0]
    x = np.arange(4, dtype=np.float32)
    expected = np.arange(7) / 2
    np.testing.assert_allclose(interpolate(x, linear_taps(axis, False, False, 0.0), 0), expected, atol=1e-6)


def test_a_crop_beyond_the_axis_gives_the_extrapolation_value() -> None:
    axis = Sampling(3, 3, 1.0, "tf_crop_and_resize", -1.0, 2.0)
    taps = linear_taps(axis, False, False, 7.0)
    assert interpolate(np.array([1, 2, 3], np.float32), taps, 0).tolist() == [7.0, 2.0, 7.0]

from __future__ import annotations

import math
import struct

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from qglow.numerics.histogram import (
    BIN_COUNT,
    NAN_BIN,
    NEGATIVE_INFINITY_BIN,
    NEGATIVE_ZERO_BIN,
    POSITIVE_INFINITY_BIN,
    POSITIVE_ZERO_BIN,
    bin_index,
    bin_value_range,
    finite_range,
    histogram,
    is_infinity_bin,
    is_nan_bin,
    is_zero_bin,
)


@given(st.floats(width=32, allow_nan=False))
def test_a_value_lies_in_the_range_of_its_bin(value: float) -> None:
    index = int(bin_index(np.float32(value)))
    assert index == struct.unpack("<I", struct.pack("<f", value))[0] >> 16
    low, high = bin_value_range(index)
    assert low <= value <= high
    normal = not is_zero_bin(index) and not is_infinity_bin(index) and abs(value) >= 2.0**-126
    assert not normal or high - low <= 2.0**-7 * abs(value)


def test_bins_tile_the_positive_and_the_negative_axis() -> None:
    ends = [bin_value_range(i) for i in range(POSITIVE_INFINITY_BIN)]
    assert ends[0][0] == 0.0 and ends[-1][1] == float(np.finfo(np.float32).max)
    for (_, high), (low, _) in zip(ends[:-1], ends[1:], strict=True):
        assert low == float(np.nextafter(np.float32(high), np.float32(np.inf)))
    for index in (1, 0x3F80, 0x7F7F):
        low, high = bin_value_range(index)
        assert bin_value_range(index | 0x8000) == (-high, -low)


def test_every_nan_is_in_one_bin_and_infinities_have_their_own() -> None:
    patterns = np.array([0x7F800001, 0xFF800001, 0x7FC00000, 0xFFC00000, 0xFFFFFFFF], np.uint32)
    assert set(bin_index(patterns.view(np.float32)).tolist()) == {NAN_BIN}
    values = np.array([np.inf, -np.inf, 0.0, -0.0], np.float32)
    expected = [POSITIVE_INFINITY_BIN, NEGATIVE_INFINITY_BIN, POSITIVE_ZERO_BIN, NEGATIVE_ZERO_BIN]
    assert bin_index(values).tolist() == expected
    assert bin_value_range(NEGATIVE_INFINITY_BIN) == (-math.inf, -math.inf)
    assert all(math.isnan(end) for end in bin_value_range(NAN_BIN))


def test_classes_of_bins_are_disjoint() -> None:
    classes = [[is_nan_bin(i), is_infinity_bin(i), is_zero_bin(i)] for i in range(BIN_COUNT)]
    assert np.sum(classes, axis=0).tolist() == [2 * 127, 2, 2]
    assert np.max(np.sum(classes, axis=1)) == 1


def test_histograms_of_parts_add_up(rng: np.random.Generator) -> None:
    x = rng.normal(size=(7, 300)).astype(np.float32)
    x[0, :3] = np.nan, np.inf, 0.0
    whole = histogram(x)
    assert whole.dtype == np.int64 and whole.shape == (BIN_COUNT,) and whole.sum() == x.size
    np.testing.assert_array_equal(whole, sum(histogram(row) for row in x))
    np.testing.assert_array_equal(whole, histogram(x.T))


def test_range_ignores_nan_and_infinities() -> None:
    x = np.array([np.nan, -np.inf, 3.5, -2.0, np.inf], np.float32)
    assert finite_range(x) == (-2.0, 3.5)
    assert finite_range(np.array([np.nan], np.float32)) == (math.inf, -math.inf)

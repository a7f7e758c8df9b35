"""Counts as text."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qglow.profiling.run_length import decode_counts, encode_counts


def counts(entries: dict[int, int]) -> np.ndarray:
    result = np.zeros(65536, np.int64)
    for index, value in entries.items():
        result[index] = value
    return result


def test_runs_and_repeats_are_short() -> None:
    entries = {0x3F80: 5, 0x3F81: 7, 0x3F82: 1, 0x3F83: 1, 0x3F84: 1, 0x4000: 2}
    assert encode_counts(counts(entries)) == "3f80:5,7,1*3 4000:2"


@given(st.dictionaries(st.integers(0, 65535), st.integers(1, 2**40), max_size=40))
def test_text_restores_the_counts(entries: dict[int, int]) -> None:
    array = counts(entries)
    np.testing.assert_array_equal(decode_counts(encode_counts(array), 65536), array)


@pytest.mark.parametrize(
    "text",
    [
        "zzzz:1", "3f80", "3f80:", "3f80:0", "3f80:-1", "3f80:1,,2", "3f80:1*0", "3f80:1  3f90:1", " 3f80:1",
        "3f80:1 3f80:1", "4000:1 3f80:1", "ffff:1,2", "ffff:1*2", "3f80:99999999999999999999",
        "0001:4611686018427387904 0003:4611686018427387904", "3f80:1*99999", "3f80:1 3f81:1",
    ],
)  # fmt: skip
def test_malformed_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        decode_counts(text, 65536)

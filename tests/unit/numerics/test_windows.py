from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qglow.numerics.windows import output_extent


@given(
    st.integers(1, 20),
    st.integers(1, 5),
    st.integers(1, 4),
    st.integers(0, 4),
    st.integers(0, 4),
    st.integers(1, 3),
    st.booleans(),
)
def test_windows_are_those_that_start_in_reach_and_fit(
    size: int, kernel: int, stride: int, before: int, after: int, dilation: int, ceil_mode: bool
) -> None:
    reach = dilation * (kernel - 1) + 1
    if size + before + after < reach:
        with pytest.raises(ValueError, match="does not fit"):
            output_extent(size, kernel, stride, before, after, dilation, ceil_mode)
        return
    starts = range(0, size + before + after, stride)
    whole = [s for s in starts if s + reach <= size + before + after]
    expected = len(whole)
    if ceil_mode:
        # One window may hang over the end if the whole ones leave something uncovered.
        uncovered = whole[-1] + reach < size + before + after
        expected += uncovered and whole[-1] + stride < size + before
    assert output_extent(size, kernel, stride, before, after, dilation, ceil_mode) == expected

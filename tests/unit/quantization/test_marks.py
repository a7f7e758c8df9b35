"""Marks such as the -10000 of a mask are told from the other elements of a value."""

from __future__ import annotations

import math

import numpy as np
import pytest

from qglow.core.types import Array
from qglow.profiling.histogram import ValueProfile
from qglow.quantization.marks import mark_in_profile

NORMAL = np.random.default_rng(1).normal(size=2_000).astype(np.float32)


def mark_in(*parts: Array | float, lone: bool = False) -> float | None:
    profile = ValueProfile()
    profile.observe(np.concatenate([np.atleast_1d(np.float32(part)) for part in parts])[None])
    return mark_in_profile(profile, lone)


@pytest.mark.parametrize("mark", [-1e4, -1e9, 1e9, float(np.finfo(np.float32).min), -9999.0])
def test_many_equal_elements_far_from_all_others_are_marks(mark: float) -> None:
    assert mark_in(NORMAL, np.full(100, mark)) == pytest.approx(mark, rel=1e-6)


def test_scores_are_seen_in_the_marks_that_they_are_added_to() -> None:
    assert mark_in(NORMAL, NORMAL - np.float32(1e4)) == pytest.approx(-1e4, rel=1e-3)


def test_masks_that_are_added_up_are_two_marks() -> None:
    assert mark_in(NORMAL, np.full(100, -1e4), np.full(50, -2e4)) == -2e4


@pytest.mark.parametrize("infinity", [math.inf, -math.inf])
def test_infinities_are_marks(infinity: float) -> None:
    assert mark_in(NORMAL, np.full(100, infinity)) == infinity
    assert mark_in(NORMAL, infinity) is None
    assert mark_in(NORMAL, infinity, lone=True) == infinity


@pytest.mark.parametrize(
    "others",
    [
        np.full(100, -40.0),  # not far
        np.linspace(0.0, 1e4, 500),  # no gap
        np.geomspace(100.0, 1e4, 200),  # not alike
        np.zeros(0),
    ],
)
def test_other_values_have_none(others: Array) -> None:
    assert mark_in(NORMAL, others) is None
    assert mark_in(NORMAL, others, lone=True) is None


def test_a_mask_alone_has_none() -> None:
    """Its two numbers are int8 numbers."""
    assert mark_in(np.zeros(100), np.full(100, -1e4)) is None


def test_a_lone_element_is_an_extreme_of_the_signal_unless_it_leaves_no_levels() -> None:
    assert mark_in(NORMAL, 4e3) is None
    assert mark_in(NORMAL, 4e3, lone=True) == 4e3
    assert mark_in(NORMAL, 120.0, lone=True) is None

"""Sizes as sums of dimensions."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from qglow.counts.count import Count, fitted_count, parse_count

SIZES = [{"a": 16, "b": 24}, {"a": 15, "b": 24}, {"a": 16, "b": 22}, {"a": 8, "b": 11}]


@given(st.integers(0, 5), st.integers(0, 5), st.integers(-20, 20))
def test_a_sum_is_found_again(a: int, b: int, offset: int) -> None:
    count = Count(tuple((name, factor) for name, factor in (("a", a), ("b", b)) if factor), offset)
    assert fitted_count(SIZES, [count.at(sizes) for sizes in SIZES]) == count


def test_products_are_no_sums() -> None:
    assert fitted_count(SIZES, [sizes["a"] * sizes["b"] for sizes in SIZES]) is None


def test_a_dimension_of_one_size_is_a_number() -> None:
    sizes = [{"a": 1, "b": b} for b in (24, 23, 12)]
    assert fitted_count(sizes, [entry["a"] + entry["b"] for entry in sizes]) == Count((("b", 1),), 1)


def test_text_is_parsed() -> None:
    known = {"past": 1, "new": 2}
    assert parse_count("past + 2 * new + 3", known) == Count((("past", 1), ("new", 2)), 3)
    assert parse_count("7", known) == Count((), 7)
    assert parse_count("past+past", known) == Count((("past", 2),))
    for wrong in ("", "past -", "other", "past * new", "past + "):
        assert parse_count(wrong, known) is None


def test_counts_are_printed_as_sums() -> None:
    assert str(Count((("past", 1), ("new", 2)), 3)) == "past + 2 * new + 3"
    assert str(Count()) == "0"

"""Sizes as sums of dimensions."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from qglow.counts.count import Count, Quotient, fitted_count, parse_count, sum_of

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
    assert str(Count((("past", 1),), -2)) == "past - 2"
    assert str(Count((("past", 1),)).windows(-10, 5)) == "(past // 5) - 1"
    assert str(Count((("past", 3), ("new", 1))).windows(1, 2)) == "((3 * past + new + 1) // 2) + 1"


STEPS = st.lists(st.tuples(st.integers(-9, 5), st.integers(1, 6)), min_size=1, max_size=5)


@given(STEPS, st.integers(1, 8), st.integers(0, 4), st.integers(0, 500), st.integers(0, 500))
def test_windows_of_windows(steps: list[tuple[int, int]], factor: int, other: int, a: int, b: int) -> None:
    count = Count(tuple((name, n) for name, n in (("a", factor), ("b", other)) if n), 2)
    wanted = count.at({"a": a, "b": b})
    for added, stride in steps:
        count, wanted = count.windows(added, stride), (wanted + added) // stride + 1
        assert count.at({"a": a, "b": b}) == wanted
    assert count.dimensions <= {"a", "b"}


def test_windows_of_windows_are_one_part_of_a_sum() -> None:
    count = Count((("a", 1),))
    for kernel, stride in ((10, 5), (3, 2), (3, 2), (2, 2)):
        count = count.windows(-kernel, stride)
    assert count == Count(((Quotient(Count((("a", 1),), 20), 40), 1),), -1)
    assert Count((("a", 32),)).windows(-1, 2) == Count((("a", 16),))
    assert Count((("a", 1),), 4).windows(-3, 1) == Count((("a", 1),), 2)


def test_a_part_of_a_sum_is_found_again() -> None:
    part = Count((("a", 1),)).windows(-3, 2)
    found = [2 * part.at(sizes) + 1 for sizes in SIZES]
    assert fitted_count(SIZES, found) is None
    assert fitted_count(SIZES, found, part.quotients) == Count(((part.quotients[0], 2),), -1)


def test_several_parts_that_fit_are_told_apart_by_none() -> None:
    first, second = (Count((("a", 1),), offset).windows(-1, 64).quotients[0] for offset in (60, 61))
    sizes = [{"a": a} for a in (640, 639, 320, 480)]
    found = [first.at(entry) for entry in sizes]
    assert found == [second.at(entry) for entry in sizes]
    assert fitted_count(sizes, found, [first]) == Count(((first, 1),))
    assert fitted_count(sizes, found, [first, second]) is None


def test_a_multiple_tells_its_dimension() -> None:
    count = Count((("a", 32),), 5)
    assert count.shown == ("a",) and count.told(count.at({"a": 7})) == 7 and count.told(230) == 7
    assert Count((("a", -1),)).shown == Count((("a", 1),)).windows(-3, 2).shown == ()


def test_places_of_several_are_summed() -> None:
    part = Count((("a", 1),)).windows(-3, 2)
    counts = [part, Count((("a", 2), ("b", 1)), 3), Count((("b", -1),), -1)]
    for a, b in ((5, 3), (16, 8)):
        assert sum_of(counts).at({"a": a, "b": b}) == sum(count.at({"a": a, "b": b}) for count in counts)
    assert sum_of(counts).dimensions == {"a"}

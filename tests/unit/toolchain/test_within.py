"""Programs for several sizes that stay within a sum of two of them."""

from __future__ import annotations

from qglow.counts import Count
from qglow.toolchain.bounded import every_bound, within
from qglow.toolchain.bounded_inputs import BoundedInputs

NEW, PAST = (Count(((name, 1),)) for name in ("new", "past"))


def sizes(new: tuple[int, ...], past: tuple[int, ...], total: int) -> list[tuple[int, int]]:
    """(new, past) of the programs within a total."""
    known = BoundedInputs({"tokens": (NEW,), "cache": (PAST,)}, {"new": new, "past": past})
    found = within(every_bound(known), "past", "new", total)
    return [(taken.sizes["new"], taken.sizes["past"]) for taken in found]


def test_programs_give_room_to_what_is_added() -> None:
    assert sizes((1, 16), (32, 64), 64) == [(1, 32), (1, 63), (16, 32), (16, 48)]


def test_programs_that_fit_stay_as_they_are() -> None:
    assert sizes((1, 16), (32, 64), 80) == [(1, 32), (1, 64), (16, 32), (16, 64)]


def test_programs_without_room_are_left_out() -> None:
    assert sizes((1, 16, 60), (32, 64), 64) == [(1, 32), (1, 63), (16, 32), (16, 48)]


def test_no_program_is_left_where_none_has_room() -> None:
    assert sizes((1, 8), (8,), 8) == []


def test_programs_that_became_alike_are_one() -> None:
    assert sizes((1, 40), (32, 64), 64) == [(1, 32), (1, 63), (40, 24)]


def test_one_size_of_a_dimension_stays_the_only_one() -> None:
    known = BoundedInputs({"tokens": (NEW,), "cache": (PAST,)}, {"new": (1,), "past": (64,)})
    (taken,) = within(every_bound(known), "past", "new", 64)
    assert taken.least == {"new": 1, "past": 0} and taken.open == ("past",)

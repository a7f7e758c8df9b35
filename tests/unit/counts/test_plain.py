"""Fillers as plain data fill the same when they are read again; what is none is refused."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from qglow.counts import Count, Filler, filled_shape, filler_from_plain, filler_to_plain, sizes_from_plain
from qglow.counts.fillers import (
    CountedPlaces,
    JoinedPlaces,
    LivePlaces,
    NewPlace,
    PlacesFromEnd,
    ShiftedPlaces,
)

KNOWN = ("past", "new")
NEW = Count((("new", 1),), 0)
BOTH = Count((("new", 1), ("past", 1)), 2)
PART = NEW.windows(-3, 2)
WITHIN = Count((("past", 3), *PART.terms), 1).windows(1, 5)
FILLERS = [
    LivePlaces("live", BOTH, 12, 3),
    JoinedPlaces("joined", ((Count((("past", 1),), 0), 8), (NEW, 4))),
    NewPlace("new", BOTH),
    ShiftedPlaces("shifted", NEW, 4, 10),
    PlacesFromEnd("end", np.array([[-1, -2], [0, -3]], np.int64), BOTH),
    CountedPlaces("counted", NEW, BOTH, 16, "int32"),
    NewPlace("part", PART),
    NewPlace("within", WITHIN),
]


def nested(depth: int) -> list[Any]:
    """A count whose only term is a part of another one, many times."""
    plain: list[Any] = [0, ["new", 1]]
    for _ in range(depth):
        plain = [0, [[plain, 2], 1]]
    return plain


@pytest.mark.parametrize("filler", FILLERS, ids=lambda filler: type(filler).__name__)
def test_a_filler_fills_the_same_when_it_is_read_again(filler: Filler) -> None:
    again = filler_from_plain(json.loads(json.dumps(filler_to_plain(filler))), dict.fromkeys(KNOWN))
    assert type(again) is type(filler) and again.name == filler.name
    for past, new in ((0, 1), (5, 3), (8, 4)):
        wanted, found = (np.asarray(one.fill({"past": past, "new": new})) for one in (filler, again))
        assert wanted.dtype == found.dtype and np.array_equal(wanted, found)
        assert found.shape == filled_shape(filler) == filled_shape(again)


@pytest.mark.parametrize(
    ("index", "change"),
    [
        (0, {"kind": "Other"}),
        (0, {"bound": -1}),
        (0, {"bound": 2**50}),
        (0, {"bound": True}),
        (0, {"rank": 0}),
        (0, {"rank": 10**9}),
        (0, {"count": [0, ["width", 1]]}),
        (2, {"count": ["one"]}),
        (4, {"dtype": "float32"}),
        (4, {"shape": [3, 3]}),
        (5, {"dtype": "float32"}),
        (5, {"first": [0, ["width", 1]]}),
        (5, {"bound": -1}),
        (6, {"count": [0, [[[0, ["new", 1]], 0], 1]]}),
        (6, {"count": [0, [[[0, ["width", 1]], 2], 1]]}),
        (6, {"count": [0, [[[0, ["new", 1]], 2.5], 1]]}),
        (6, {"count": [0, [[[0, ["new", 1]]], 1]]}),
        (6, {"count": nested(1000)}),
    ],
)
def test_forged_fillers_are_refused(index: int, change: dict[str, Any]) -> None:
    plain = {**filler_to_plain(FILLERS[index]), **change}
    with pytest.raises((KeyError, TypeError, ValueError)):
        filler_from_plain(plain, dict.fromkeys(KNOWN))


def test_sizes_are_those_of_all_dimensions() -> None:
    assert sizes_from_plain({"new": 1, "past": 2}, KNOWN) == {"past": 2, "new": 1}
    with pytest.raises(ValueError, match="instead of"):
        sizes_from_plain({"new": 1}, KNOWN)

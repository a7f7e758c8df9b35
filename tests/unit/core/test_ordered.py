"""An order that is edited in the middle is a list that answers faster."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qglow.core.ordered import Ordered

ITEMS = 8
EDITS = st.lists(
    st.tuples(
        st.sampled_from(["append", "before", "after", "remove", "replace", "clear"]),
        st.integers(0, ITEMS - 1),
        st.none() | st.integers(0, ITEMS - 1),
        st.lists(st.integers(ITEMS, 2 * ITEMS), unique=True, max_size=3),
    ),
    max_size=20,
)


def edited(ordered: Ordered[int], edit: str, item: int, anchor: int | None, items: list[int]) -> None:
    if edit == "append":
        ordered.append(item)
    elif edit == "before":
        ordered.insert_before(anchor, item)
    elif edit == "after":
        ordered.insert_after(anchor, item)
    elif edit == "remove":
        ordered.remove(item)
    elif edit == "replace":
        ordered.replace(item, items)
    else:
        ordered.clear()


def wanted(before: list[int], edit: str, item: int, anchor: int | None, items: list[int]) -> list[int]:
    """What a list becomes. Raises KeyError and ValueError where the order has to."""
    if edit == "clear":
        return []
    if edit in ("remove", "replace"):
        if item not in before:
            raise KeyError(item)
        at = before.index(item)
        rest = before[:at] + before[at + 1 :]
        if edit == "remove":
            return rest
        if set(items) & set(rest):
            raise ValueError(items)
        return before[:at] + items + before[at + 1 :]
    if edit != "append" and anchor is not None and anchor not in before:
        raise KeyError(anchor)
    if item in before:
        raise ValueError(item)
    if edit == "append" or (anchor is None and edit == "before"):
        return [*before, item]
    at = 0 if anchor is None else before.index(anchor) + (edit == "after")
    return [*before[:at], item, *before[at:]]


def assert_same(ordered: Ordered[int], items: list[int]) -> None:
    assert list(ordered) == items and list(reversed(ordered)) == items[::-1] and len(ordered) == len(items)
    assert [item in ordered for item in range(2 * ITEMS + 1)] == [i in items for i in range(2 * ITEMS + 1)]
    assert [ordered[index] for index in range(-len(items), len(items))] == items + items
    assert list(ordered[1:-1]) == items[1:-1]
    places = [ordered.place(item) for item in items]
    assert places == sorted(set(places))
    for index, item in enumerate(items):
        assert ordered.previous(item) == (items[index - 1] if index else None)
        assert ordered.next(item) == (items[index + 1] if index + 1 < len(items) else None)
        assert list(ordered.following(item)) == items[index + 1 :]


@given(st.lists(st.integers(0, ITEMS - 1), unique=True), EDITS)
def test_edits_do_what_they_do_to_a_list(
    items: list[int], edits: list[tuple[str, int, int | None, list[int]]]
) -> None:
    ordered = Ordered(items)
    assert_same(ordered, items)
    for edit in edits:
        try:
            after = wanted(items, *edit)
        except (KeyError, ValueError) as error:
            with pytest.raises(type(error)):
                edited(ordered, *edit)
            if edit[0] == "replace":  # which is refused in the middle of its work
                return
        else:
            edited(ordered, *edit)
            items = after
        assert_same(ordered, items)


@pytest.mark.parametrize("behind", [False, True])
def test_places_stay_in_order_where_all_edits_are_at_one(behind: bool) -> None:
    ordered = Ordered([-2, -1])
    for item in range(200):
        (ordered.insert_after if behind else ordered.insert_before)(-2 if behind else -1, item)
    inserted = list(range(200))
    assert list(ordered) == [-2, *(inserted[::-1] if behind else inserted), -1]
    places = [ordered.place(item) for item in ordered]
    assert places == sorted(set(places))


def test_an_item_by_a_number_that_is_not_there_is_refused() -> None:
    for items in ([], [1, 2]):
        with pytest.raises(IndexError):
            Ordered(items)[len(items)]
        with pytest.raises(IndexError):
            Ordered(items)[-len(items) - 1]

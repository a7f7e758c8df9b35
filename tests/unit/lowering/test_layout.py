"""Reshapes see values where they lie."""

from __future__ import annotations

import pytest

from qglow.lowering.layout import groups, joined_order, reshaped_order, settled

NHWC = (0, 2, 3, 1)


def test_groups_are_as_small_as_can_be() -> None:
    assert groups((2, 12, 5), (2, 3, 4, 5)) == [((0,), (0,)), ((1,), (1, 2)), ((2,), (3,))]
    assert groups((4, 6), (2, 12)) == [((0, 1), (0, 1))]
    assert groups((6, 1), (1, 6)) == [((0,), (0, 1)), ((1,), ())]
    assert groups((), (1, 1)) == [((), (0,)), ((), (1,))]


@pytest.mark.parametrize(
    ("shape", "order", "after", "joined", "result"),
    [
        ((2, 6, 4, 5), NHWC, (2, 3, 2, 4, 5), NHWC, (0, 3, 4, 1, 2)),  # channels split where they lie
        ((2, 6, 4, 5), NHWC, (2, 6, 20), NHWC, (0, 2, 1)),  # pixels merge where they lie
        ((2, 6, 4, 5), NHWC, (2, 120), (0, 1, 2, 3), (0, 1)),  # channels and pixels have to meet
        ((2, 2, 3, 4, 5), (0, 3, 4, 2, 1), (2, 6, 4, 5), (0, 3, 4, 1, 2), NHWC),  # shuffled channels
    ],
)
def test_values_move_only_where_merged_axes_are_apart(
    shape: tuple[int, ...],
    order: tuple[int, ...],
    after: tuple[int, ...],
    joined: tuple[int, ...],
    result: tuple[int, ...],
) -> None:
    parts = groups(shape, after)
    assert joined_order(shape, order, parts) == joined
    assert reshaped_order(shape, joined, parts) == result


def test_axes_of_one_element_do_not_hide_a_usual_order() -> None:
    assert settled((1, 24, 4, 4), (2, 3, 0, 1)) == NHWC
    assert settled((3, 8, 1, 1), (0, 2, 3, 1)) == (0, 1, 2, 3)
    assert settled((2, 3, 4), (1, 0, 2)) == (1, 0, 2)

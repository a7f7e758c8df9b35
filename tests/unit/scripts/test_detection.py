"""Suppression of boxes and mean average precision, on cases worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from detection import (
    Boxes,
    Suppression,
    common_boxes,
    fastestdet_boxes,
    mean_average_precision,
    overlap,
    suppress,
    yolox_boxes,
)
from hypothesis import given
from hypothesis import strategies as st

RULE = Suppression(0.1, 0.5)
UNIT = [0.0, 0.0, 10.0, 10.0]
BESIDE = [20.0, 0.0, 30.0, 10.0]
FAR = [0.0, 50.0, 10.0, 60.0]


def boxes(*rows: tuple[list[float], int, float]) -> Boxes:
    corners = np.array([row[0] for row in rows], np.float64).reshape(-1, 4)
    return Boxes(corners, np.array([row[1] for row in rows], int), np.array([row[2] for row in rows]))


def test_overlap_is_the_share_of_the_union() -> None:
    right_half, outside = [5.0, 0.0, 15.0, 10.0], [10.0, 0.0, 20.0, 10.0]
    found = overlap(np.array([UNIT]), np.array([UNIT, right_half, outside]))
    assert found.tolist() == [[1.0, pytest.approx(50 / 150), 0.0]]


def test_the_best_box_suppresses_those_of_its_class_that_overlap_it() -> None:
    shifted, chained = [2.0, 0.0, 12.0, 10.0], [5.0, 0.0, 15.0, 10.0]
    given_boxes = boxes((shifted, 0, 0.8), (UNIT, 0, 0.9), (UNIT, 1, 0.7), (chained, 0, 0.6), (FAR, 0, 0.05))
    kept = suppress(given_boxes, RULE)
    # `chained` overlaps `shifted` by more than half, but that one is gone by then.
    assert kept.scores.tolist() == [0.9, 0.7, 0.6]
    assert kept.classes.tolist() == [0, 1, 0]


def test_of_equal_scores_the_first_stays_and_a_hundred_at_most() -> None:
    assert suppress(boxes((UNIT, 0, 0.5), ([0.0, 0.0, 10.0, 9.0], 0, 0.5)), RULE).corners.tolist() == [UNIT]
    many = boxes(*(([20.0 * i, 0.0, 20.0 * i + 10, 10.0], 0, 0.5 + i / 1000) for i in range(120)))
    kept = suppress(many, RULE)
    assert len(kept.scores) == 100 and kept.scores.min() == pytest.approx(0.52)


def test_nothing_is_kept_of_nothing() -> None:
    assert suppress(boxes(), RULE).corners.shape == (0, 4)


def test_precision_at_101_recalls_by_hand() -> None:
    truth = [boxes((UNIT, 0, 1.0), (BESIDE, 0, 1.0))]
    found = [boxes((UNIT, 0, 0.9), (FAR, 0, 0.8), (BESIDE, 0, 0.7))]
    # Recall 0.5 at precision 1, recall 1 at precision 2/3: recalls 0 to 0.5 are 51 of the 101.
    assert mean_average_precision(found, truth) == pytest.approx(100 * (51 * 1.0 + 50 * 2 / 3) / 101)


def test_a_true_box_counts_once() -> None:
    truth = [boxes((UNIT, 0, 1.0))]
    twice = [boxes((UNIT, 0, 0.9), (UNIT, 0, 0.8))]
    assert mean_average_precision(twice, truth) == 100.0
    wrong_first = [boxes((FAR, 0, 0.9), (UNIT, 0, 0.8))]
    assert mean_average_precision(wrong_first, truth) == pytest.approx(50.0)


def test_classes_without_true_boxes_do_not_count_and_missed_ones_do() -> None:
    truth = [boxes((UNIT, 0, 1.0)), boxes((UNIT, 3, 1.0))]
    found = [boxes((UNIT, 0, 0.9), (UNIT, 7, 0.9)), boxes()]
    assert mean_average_precision(found, truth) == pytest.approx(50.0)


def test_boxes_of_another_photo_do_not_match() -> None:
    assert mean_average_precision([boxes(), boxes((UNIT, 0, 0.9))], [boxes((UNIT, 0, 1.0)), boxes()]) == 0.0


corner = st.integers(0, 40)
side = st.integers(1, 30)
rows = st.lists(st.tuples(corner, corner, side, side, st.integers(0, 2), st.integers(1, 100)), max_size=12)


def drawn(rows: list[tuple[int, ...]]) -> Boxes:
    return boxes(*(([x, y, x + w, y + h], c, s / 100) for x, y, w, h, c, s in rows))  # type: ignore[misc]


@given(rows)
def test_what_suppression_keeps_is_best_first_apart_and_stable(drawn_rows: list[tuple[int, ...]]) -> None:
    kept = suppress(drawn(drawn_rows), RULE)
    assert (np.diff(kept.scores) <= 0).all() and (kept.scores >= RULE.lowest_score).all()
    same = kept.classes[:, None] == kept.classes[None, :]
    apart = overlap(kept.corners, kept.corners) <= RULE.overlap
    assert (apart | ~same | np.eye(len(same), dtype=bool)).all()
    assert np.array_equal(suppress(kept, RULE).corners, kept.corners)


@given(rows.filter(bool), rows)
def test_precision_is_a_share_and_full_for_the_truth_itself(
    true_rows: list[tuple[int, ...]], guessed: list[tuple[int, ...]]
) -> None:
    truth = suppress(drawn([(*row[:5], 100) for row in true_rows]), RULE)
    assert mean_average_precision([truth], [truth]) == pytest.approx(100.0)
    found = suppress(drawn(guessed), RULE)
    assert 0.0 <= mean_average_precision([found], [truth]) <= 100.0
    # Worse boxes of lower scores after all others take nothing away.
    tail = boxes(*zip(found.corners.tolist(), found.classes.tolist(), found.scores.tolist(), strict=True))
    extended = Boxes(
        np.concatenate([tail.corners, [[900.0, 900.0, 910.0, 910.0]]]),
        np.append(tail.classes, 0),
        np.append(tail.scores, 0.0),
    )
    assert mean_average_precision([extended], [truth]) == pytest.approx(
        mean_average_precision([found], [truth])
    )


def test_yolox_cells_become_pixels_of_the_photo() -> None:
    output = np.zeros((1, 3549, 85), np.float32)
    cell = 52 * 52 + 3 * 26 + 5  # the second stride, 16: row 3, column 5
    output[0, cell, :4] = 0.5, 0.25, np.log(2.0), np.log(3.0)
    output[0, cell, 4], output[0, cell, 5 + 7] = 0.5, 0.8
    found = yolox_boxes(output, (832, 600))
    assert found.classes.tolist() == [7] and found.scores.tolist() == pytest.approx([0.4])
    centre, size = (5.5 * 16 * 2, 3.25 * 16 * 2), (2 * 16 * 2, 3 * 16 * 2)
    expected = [centre[0] - size[0] / 2, centre[1] - size[1] / 2, centre[0] + size[0] / 2]
    assert found.corners[0, :3].tolist() == pytest.approx(expected)
    assert found.corners[0, 3] == pytest.approx(centre[1] + size[1] / 2)


def test_fastestdet_cells_become_pixels_of_the_photo() -> None:
    output = np.zeros((1, 85, 22, 22), np.float32)
    output[0, 3:5] = -50.0
    output[0, :5, 4, 11] = 0.5, np.arctanh(0.5), np.arctanh(-0.25), 0.0, np.log(1 / 3)
    output[0, 5 + 2, 4, 11], output[0, 5 + 9, 4, 11] = 0.7, 0.2
    found = fastestdet_boxes(output, (220, 440))
    assert found.classes.tolist() == [2, 9]  # every class of a cell is a box
    assert found.scores.tolist() == pytest.approx([0.5**0.6 * 0.7**0.4, 0.5**0.6 * 0.2**0.4])
    assert found.corners[0].tolist() == pytest.approx([115 - 55, 75 - 55, 115 + 55, 75 + 55], abs=1e-4)


def test_common_boxes_count_twice_over_all() -> None:
    wanted = boxes((UNIT, 0, 0.9), (BESIDE, 0, 0.8), (FAR, 1, 0.7))
    assert common_boxes([wanted], [wanted]) == 100.0
    other_class = boxes((UNIT, 0, 0.9), (BESIDE, 1, 0.8))
    assert common_boxes([other_class], [wanted]) == pytest.approx(200.0 / 5)
    twice = boxes((UNIT, 0, 0.9), (UNIT, 0, 0.8))
    assert common_boxes([twice], [boxes((UNIT, 0, 0.9))]) == pytest.approx(200.0 / 3)
    assert common_boxes([boxes()], [boxes()]) == 100.0 and common_boxes([boxes()], [wanted]) == 0.0

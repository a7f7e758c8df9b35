"""Suppression of boxes and mean average precision, on cases worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qglow.metrics import Boxes, Suppression, box_f1, map50, mean_average_precision, overlap, suppress

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
    assert map50(found, truth) == pytest.approx(100 * (51 * 1.0 + 50 * 2 / 3) / 101)


def test_a_true_box_counts_once() -> None:
    truth = [boxes((UNIT, 0, 1.0))]
    twice = [boxes((UNIT, 0, 0.9), (UNIT, 0, 0.8))]
    assert map50(twice, truth) == 100.0
    wrong_first = [boxes((FAR, 0, 0.9), (UNIT, 0, 0.8))]
    assert map50(wrong_first, truth) == pytest.approx(50.0)


def test_classes_without_true_boxes_do_not_count_and_missed_ones_do() -> None:
    truth = [boxes((UNIT, 0, 1.0)), boxes((UNIT, 3, 1.0))]
    found = [boxes((UNIT, 0, 0.9), (UNIT, 7, 0.9)), boxes()]
    assert map50(found, truth) == pytest.approx(50.0)


def test_boxes_of_another_photo_do_not_match() -> None:
    assert map50([boxes(), boxes((UNIT, 0, 0.9))], [boxes((UNIT, 0, 1.0)), boxes()]) == 0.0


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
    assert map50([truth], [truth]) == pytest.approx(100.0)
    found = suppress(drawn(guessed), RULE)
    assert 0.0 <= map50([found], [truth]) <= 100.0
    # Worse boxes of lower scores after all others take nothing away.
    tail = boxes(*zip(found.corners.tolist(), found.classes.tolist(), found.scores.tolist(), strict=True))
    extended = Boxes(
        np.concatenate([tail.corners, [[900.0, 900.0, 910.0, 910.0]]]),
        np.append(tail.classes, 0),
        np.append(tail.scores, 0.0),
    )
    assert map50([extended], [truth]) == pytest.approx(map50([found], [truth]))


def test_common_boxes_count_twice_over_all() -> None:
    wanted = boxes((UNIT, 0, 0.9), (BESIDE, 0, 0.8), (FAR, 1, 0.7))
    assert box_f1([wanted], [wanted]) == 100.0
    other_class = boxes((UNIT, 0, 0.9), (BESIDE, 1, 0.8))
    assert box_f1([other_class], [wanted]) == pytest.approx(200.0 / 5)
    twice = boxes((UNIT, 0, 0.9), (UNIT, 0, 0.8))
    assert box_f1([twice], [boxes((UNIT, 0, 0.9))]) == pytest.approx(200.0 / 3)
    assert box_f1([boxes()], [boxes()]) == 100.0 and box_f1([boxes()], [wanted]) == 0.0


def with_crowd(true: Boxes, crowd: list[bool]) -> Boxes:
    return Boxes.true(true.corners, true.classes, np.array(crowd))


def test_perfect_is_all_and_nothing_found_is_none() -> None:
    truth = [boxes((UNIT, 0, 1.0), (FAR, 1, 1.0)), boxes((BESIDE, 0, 1.0))]
    assert mean_average_precision(truth, truth) == pytest.approx(100.0)
    assert map50(truth, truth) == pytest.approx(100.0) and box_f1(truth, truth) == 100.0
    nothing = [boxes(), boxes()]
    assert map50(nothing, truth) == mean_average_precision(nothing, truth) == box_f1(nothing, truth) == 0.0


def test_the_overlap_decides_at_which_of_the_ten_limits_a_box_hits() -> None:
    # 8 of 10 columns are common: 80 of 100, exactly at no limit but between 0.75 and 0.85.
    found = [boxes(([0.0, 0.0, 8.0, 10.0], 0, 0.9))]
    truth = [boxes((UNIT, 0, 1.0))]
    assert mean_average_precision(found, truth) == pytest.approx(100 * 7 / 10)  # 0.50, 0.55 .. 0.80
    assert mean_average_precision(found, truth, (0.81,)) == 0.0
    assert map50([boxes(([0.0, 0.0, 5.0, 10.0], 0, 0.9))], truth) == pytest.approx(100.0)  # 0.5 is enough
    assert map50([boxes(([0.0, 0.0, 4.9, 10.0], 0, 0.9))], truth) == 0.0


def test_boxes_in_a_crowd_do_not_count_and_neither_does_the_crowd() -> None:
    truth = [with_crowd(boxes((UNIT, 0, 1.0), ([100.0, 0.0, 200.0, 100.0], 0, 1.0)), [False, True])]
    inside = ([110.0, 10.0, 120.0, 20.0], 0, 0.95)
    found = [boxes((UNIT, 0, 0.9), inside, ([150.0, 50.0, 160.0, 60.0], 0, 0.99))]
    assert map50(found, truth) == pytest.approx(100.0) and box_f1(found, truth) == 100.0
    assert map50([boxes(inside)], truth) == 0.0
    half_out = [boxes((UNIT, 0, 0.9), ([95.0, 0.0, 104.9, 10.0], 0, 0.95))]
    assert map50(half_out, truth) == pytest.approx(50.0)
    with pytest.raises(ValueError, match="no true boxes"):
        map50(found, [with_crowd(boxes((UNIT, 0, 1.0)), [True])])


def test_a_true_box_is_preferred_to_the_crowd_around_it() -> None:
    truth = [with_crowd(boxes(([0.0, 0.0, 100.0, 100.0], 0, 1.0), (UNIT, 0, 1.0)), [True, False])]
    assert map50([boxes(([0.0, 0.0, 9.0, 10.0], 0, 0.9))], truth) == pytest.approx(100.0)


def test_a_box_hits_the_true_one_that_it_overlaps_most() -> None:
    near, exact = [0.0, 0.0, 10.0, 8.0], UNIT
    truth = [boxes((near, 0, 1.0), (exact, 0, 1.0))]
    # Taken by the better box, `exact` is gone for the other, which still hits `near`.
    assert map50([boxes((UNIT, 0, 0.9), (UNIT, 0, 0.8))], truth) == pytest.approx(100.0)


def test_equal_scores_of_two_images_keep_the_order_of_the_images() -> None:
    truth = [boxes((UNIT, 0, 1.0)), boxes((UNIT, 0, 1.0))]
    right, wrong = boxes((UNIT, 0, 0.5)), boxes((FAR, 0, 0.5))
    assert map50([right, wrong], truth) == pytest.approx(100 * 51 / 101)
    assert map50([wrong, right], truth) == pytest.approx(100 * 0.5 * 51 / 101)


def test_only_the_best_hundred_of_an_image_and_class_count() -> None:
    wrong = [(FAR, 0, 0.9)] * 100
    assert map50([boxes(*wrong, (UNIT, 0, 0.1))], [boxes((UNIT, 0, 1.0))]) == 0.0
    assert map50([boxes(*wrong[1:], (UNIT, 0, 0.1))], [boxes((UNIT, 0, 1.0))]) == pytest.approx(1.0)


def test_f1_counts_boxes_that_are_sure() -> None:
    truth = [boxes((UNIT, 0, 1.0), (FAR, 0, 1.0))]
    found = [boxes((UNIT, 0, 0.5), (BESIDE, 0, 0.49), (FAR, 0, 0.4))]
    assert box_f1(found, truth) == pytest.approx(200 * 1 / (1 + 2))
    assert box_f1(found, truth, least_score=0.0) == pytest.approx(200 * 2 / (3 + 2))
    assert box_f1(found, truth, least_overlap=1.0, least_score=0.0) == pytest.approx(200 * 2 / (3 + 2))


def test_arrays_that_do_not_fit_are_named() -> None:
    with pytest.raises(ValueError, match=r"classes of boxes are \[2\], not \[1\]"):
        Boxes(np.zeros((1, 4)), np.zeros(2, int), np.zeros(1))
    with pytest.raises(ValueError, match=r"corners of boxes are \[1, 5\], not \[1, 4\]"):
        Boxes(np.zeros((1, 5)), np.zeros(1, int), np.zeros(1))
    for figure in (map50, box_f1):
        with pytest.raises(ValueError, match="boxes of 1 images are found, of 2 images known"):
            figure([boxes()], [boxes(), boxes()])


def brute_force(found: list[Boxes], true: list[Boxes], least: float) -> float:
    """mAP at one overlap by the definition: no vectors, no sorting of arrays, every recall by itself."""
    figures = []
    for category in {
        int(c) for b in true for c, crowd in zip(b.classes, b.is_crowd, strict=True) if not crowd
    }:
        total, events = 0, []
        for image, (guessed, wanted) in enumerate(zip(found, true, strict=True)):
            rows = [i for i in range(len(guessed.scores)) if guessed.classes[i] == category]
            rows = sorted(rows, key=lambda i: (-guessed.scores[i], i))[:100]
            targets = [i for i in range(len(wanted.scores)) if wanted.classes[i] == category]
            total += sum(not wanted.is_crowd[i] for i in targets)
            taken: set[int] = set()
            for rank, row in enumerate(rows):
                best, most = None, least
                for target in targets:
                    if wanted.is_crowd[target] or target in taken:
                        continue
                    share = iou(guessed.corners[row], wanted.corners[target], crowd=False)
                    if share >= most:
                        best, most = target, share
                crowded = any(
                    wanted.is_crowd[t] and iou(guessed.corners[row], wanted.corners[t], crowd=True) >= least
                    for t in targets
                )
                if best is not None:
                    taken.add(best)
                if best is not None or not crowded:
                    events.append((-guessed.scores[row], image, rank, best is not None))
        points, right = [], 0
        for count, (_, _, _, hit) in enumerate(sorted(events), 1):
            right += hit
            points.append((right / total, right / count))
        levels = (max((p for r, p in points if r >= level), default=0.0) for level in np.linspace(0, 1, 101))
        figures.append(sum(levels) / 101)
    return 100 * sum(figures) / len(figures)


def iou(a: np.ndarray, b: np.ndarray, crowd: bool) -> float:
    width, height = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    common = max(width, 0.0) * max(height, 0.0)
    first, second = ((box[2] - box[0]) * (box[3] - box[1]) for box in (a, b))
    return float(common / (first if crowd else first + second - common))


image = st.tuples(rows, rows, st.lists(st.booleans(), min_size=12, max_size=12))


@given(st.lists(image, min_size=1, max_size=3), st.sampled_from([0.5, 0.55, 0.75]))
def test_precision_is_that_of_the_definition(
    images: list[tuple[list, list, list[bool]]], least: float
) -> None:
    found = [drawn(guessed) for guessed, _, _ in images]
    true = [with_crowd(drawn(wanted), crowd[: len(wanted)]) for _, wanted, crowd in images]
    if all(boxes.is_crowd.all() for boxes in true):
        return
    expected = brute_force(found, true, least)
    assert mean_average_precision(found, true, (least,)) == pytest.approx(expected, abs=1e-9)

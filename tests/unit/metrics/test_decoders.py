"""Built-in decoders, and the parts that decoders of users are made of."""

from __future__ import annotations

import numpy as np
import pytest

from qglow.metrics import Boxes, Photo, Suppression, grid_corners, prior_corners, select_boxes, top_k
from qglow.metrics.decoders import boxes, ctc, ctc_last, relative_boxes

ROWS = np.array([[[1, 2, 3, 4, 0.5, 7], [0, 0, 1, 1, 0.25, 2]], [[5, 6, 7, 8, 0.75, 1], [0, 0, 0, 0, 0, 0]]])


def test_one_output_of_six_columns_or_three_outputs_are_the_same_boxes() -> None:
    parts = {"det_scores": ROWS[:, :, 4], "labels": ROWS[:, :, 5].astype(np.int64), "boxes": ROWS[:, :, :4]}
    for outputs in ({"y": ROWS}, parts):
        first, second = boxes(outputs)
        assert first.corners.tolist() == [[1, 2, 3, 4], [0, 0, 1, 1]]
        assert first.classes.tolist() == [7, 2] and first.scores.tolist() == [0.5, 0.25]
        assert second.classes.tolist() == [1]  # the row of score 0 fills up


def test_relative_corners_are_shares_of_the_photo() -> None:
    nothing = Boxes.true(np.zeros((0, 4)), np.zeros(0, int))
    photos = [Photo("a", 100, 10, nothing), Photo("b", 10, 100, nothing)]
    first, second = relative_boxes({"y": ROWS}, photos)
    assert first.corners[0].tolist() == [100, 20, 300, 40] and second.corners[0].tolist() == [
        50,
        600,
        70,
        800,
    ]


@pytest.mark.parametrize(
    "outputs",
    [
        {"y": np.zeros((1, 3549, 85))},
        {"boxes": np.zeros((1, 5, 4)), "scores": np.zeros((1, 5))},
        {"boxes": np.zeros((1, 5, 4)), "scores": np.zeros((1, 5)), "classes": np.zeros((1, 4))},
    ],
)
def test_other_outputs_need_a_decoder_of_the_user(outputs: dict[str, np.ndarray]) -> None:
    with pytest.raises(ValueError, match="are no final boxes; a decoder of yours makes them"):
        boxes(outputs)


def test_the_blank_is_the_first_or_the_last_class() -> None:
    scores = np.eye(3)[np.array([[0, 1, 2, 2]])]
    assert ctc({"y": scores}) == [[1, 2]] and ctc_last({"y": scores}) == [[0, 1]]


def test_cells_of_all_strides_become_pixels() -> None:
    rows = np.zeros((8 * 4 + 4 * 2 + 2 * 1, 4))
    rows[8 * 4 + 5] = 0.5, 0.25, np.log(2.0), np.log(3.0)  # stride 16, column 1 of row 1
    corners = grid_corners(rows, (64, 32))
    centre, half = np.array([1.5 * 16, 1.25 * 16]), np.array([16.0, 24.0])
    np.testing.assert_allclose(corners[8 * 4 + 5], [*(centre - half), *(centre + half)])
    np.testing.assert_allclose(corners[0], [-4, -4, 4, 4])
    with pytest.raises(
        ValueError, match="41 rows are not the 42 cells of strides 8, 16, 32 in 64 x 32 pixels"
    ):
        grid_corners(rows[1:], (64, 32))


def test_priors_move_by_shares_of_their_size() -> None:
    priors = np.array([[0.5, 0.5, 0.2, 0.4]])
    corners = prior_corners(np.array([[1.0, -1.0, 5 * np.log(2.0), 0.0]]), priors)
    np.testing.assert_allclose(corners, [[0.52 - 0.2, 0.46 - 0.2, 0.52 + 0.2, 0.46 + 0.2]])


def test_every_class_of_a_row_is_a_box() -> None:
    corners = np.array([[0.0, 0, 10, 10], [0, 0, 10, 9]])
    found = select_boxes(corners, np.array([[0.9, 0.3], [0.8, 0.05]]), Suppression(0.1, 0.5))
    assert found.classes.tolist() == [0, 1] and found.scores.tolist() == [0.9, 0.3]


def test_ranks_by_hand() -> None:
    scores = np.array([[0.1, 0.5, 0.4], [0.3, 0.3, 0.4]])
    assert top_k(scores, np.array([1, 1]), 1) == 50.0
    assert top_k(scores, np.array([2, 0]), 2) == 100.0
    assert top_k(scores, np.array([2, 1]), 2) == 50.0  # of equals the lower class comes first
    with pytest.raises(ValueError, match="are not classes of scores"):
        top_k(scores, np.array([1, 3]), 1)

"""Whole images in a frame of fixed size."""

from __future__ import annotations

import numpy as np
import pytest

from qglow.profiling.images import preprocess_pixels
from qglow.recipe.data import Preprocessing


@pytest.mark.parametrize(("height", "width"), [(8, 4), (4, 8), (8, 8), (3, 1), (16, 12)])
def test_the_whole_image_lies_at_the_top_left_and_the_rest_is_filled(height: int, width: int) -> None:
    pixels = np.full((height, width, 3), 200, np.uint8)
    found = preprocess_pixels(pixels, Preprocessing(letterbox=(8, 8), fill=127.5), "here")
    assert found.shape == (3, 8, 8)
    ratio = 8 / max(height, width)
    rows, columns = round(height * ratio), round(width * ratio)
    assert (found[:, :rows, :columns] == 200).all()
    assert (found[:, rows:] == 127.5).all() and (found[:, :, columns:] == 127.5).all()


def test_what_is_filled_is_normalised_like_pixels() -> None:
    pixels = np.zeros((2, 4, 3), np.uint8)
    settings = Preprocessing(letterbox=(4, 4), fill=127.5, scale=1 / 127.5, mean=(1.0,))
    found = preprocess_pixels(pixels, settings, "here")
    assert (found[:, 2:] == 0.0).all() and (found[:, :2] == -1.0).all()


def test_sizes_of_other_proportions_are_kept_inside() -> None:
    found = preprocess_pixels(np.full((5, 999, 3), 9, np.uint8), Preprocessing(letterbox=(6, 10)), "here")
    assert found.shape == (3, 6, 10) and (found[:, 0] == 9).all() and (found[:, 1:] == 0).all()

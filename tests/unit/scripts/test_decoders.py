"""Cells of the zoo's detectors become boxes in pixels of the photo."""

from __future__ import annotations

import numpy as np
import pytest

from scripts.benchmarks.tasks.decoders import fastestdet_boxes, yolox_boxes


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

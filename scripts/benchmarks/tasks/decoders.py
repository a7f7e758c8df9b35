"""Boxes from the outputs of the detectors of the zoo: one function a model, for one image."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from qglow.core.types import Array
from qglow.metrics import Boxes, Suppression, corners_of, grid, grid_corners, prior_corners, select_boxes

_STRIDES = (8, 16, 32)
_FACE_SIDES = ((10, 16, 24), (32, 48), (64, 96), (128, 192, 256))
"""Pixels of UltraFace's square priors, by stride 8, 16, 32, 64."""

YOLOX = Suppression(0.01, 0.65)
FASTESTDET = Suppression(0.01, 0.45)
"""With these the float models reach the mAP50 that is published with the files that are measured."""

FACES = Suppression(0.5, 0.3)
"""Faces that are more likely there than not, as applications take them."""


def yolox_boxes(output: Array, size: tuple[int, int], side: int = 416) -> Boxes:
    """Of [1, cells, 85] for a photo of (width, height) at the top left of a square: a head without anchors,
    then objectness and 80 classes."""
    rows = output[0].astype(np.float64)
    ratio = min(side / size[0], side / size[1])
    corners = grid_corners(rows[:, :4], (side, side), _STRIDES) / ratio
    return select_boxes(corners, rows[:, 4:5] * rows[:, 5:], YOLOX)


def fastestdet_boxes(output: Array, size: tuple[int, int]) -> Boxes:
    """Of [1, 85, H, W] for a photo of (width, height) stretched to the input: objectness, tanh^-1 of
    offsets, logits of sizes, 80 classes; a score is objectness^0.6 times probability^0.4."""
    side = output.shape[2]
    rows = output[0].astype(np.float64).reshape(output.shape[1], -1).T
    centres = (grid(side, side) + np.tanh(rows[:, 1:3])) / side
    sizes = 1.0 / (1.0 + np.exp(-rows[:, 3:5]))
    corners = corners_of(centres, sizes) * np.array([*size, *size], np.float64)
    scores = np.maximum(rows[:, :1], 0.0) ** 0.6 * np.maximum(rows[:, 5:], 0.0) ** 0.4
    return select_boxes(corners, scores, FASTESTDET)


def ultraface_boxes(scores: Array, offsets: Array, size: tuple[int, int] = (320, 240)) -> Boxes:
    """Faces of [1, priors, 2], the second score being a face's, and of [1, priors, 4]: a head with priors,
    for an input of (width, height). Priors of each stride lie row by row, those of one cell from small to
    large."""
    priors = []
    for stride, sides in zip((*_STRIDES, 64), _FACE_SIDES, strict=True):
        width, height = (-(-side // stride) for side in size)
        centres = np.repeat((grid(width, height) + 0.5) * stride, len(sides), axis=0)
        squares = np.tile(np.array(sides, np.float64)[:, None], (width * height, 2))
        priors.append(np.concatenate([centres, squares], axis=1))
    corners = prior_corners(offsets[0], np.concatenate(priors))
    return select_boxes(corners, scores[0, :, 1:].astype(np.float64), FACES)


def yunet_boxes(classes: Sequence[Array], objectness: Sequence[Array], boxes: Sequence[Array]) -> Boxes:
    """Faces of outputs for strides 8, 16, 32, each [1, cells, ...] of a square: a score is the geometric
    mean of class and objectness."""
    rows, category, present = (
        np.concatenate([array[0].astype(np.float64) for array in arrays])
        for arrays in (boxes, classes, objectness)
    )
    side = _STRIDES[0] * round(len(boxes[0][0]) ** 0.5)
    corners = grid_corners(rows, (side, side), _STRIDES)
    return select_boxes(corners, np.sqrt(np.clip(category * present, 0.0, 1.0)), FACES)

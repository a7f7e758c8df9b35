"""Boxes from the outputs of detectors, and how well they fit true boxes or those of another program.

Boxes are rows (x1, y1, x2, y2) in pixels of the photo that was detected in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from qglow.core.types import Array

OVERLAP = 0.5
_MOST = 100
_STRIDES = (8, 16, 32)
_FACE_SIDES = ((10, 16, 24), (32, 48), (64, 96), (128, 192, 256))
"""Pixels of UltraFace's square anchors, by stride 8, 16, 32, 64."""


@dataclass(frozen=True)
class Boxes:
    """Boxes [N, 4] with their classes [N], and scores [N] from 0 to 1, which are 1 for true boxes."""

    corners: Array
    classes: Array
    scores: Array


@dataclass(frozen=True)
class Suppression:
    """Boxes below `lowest_score` are dropped, and those that overlap a better one of their class by more
    than `overlap`; the best 100 of the rest remain, as many as COCO counts."""

    lowest_score: float
    overlap: float


YOLOX = Suppression(0.01, 0.65)
FASTESTDET = Suppression(0.01, 0.45)
"""With these the float models reach the mAP50 that is published with the files that are measured."""

FACES = Suppression(0.5, 0.3)
"""Faces that are more likely there than not, as applications take them."""


def yolox_boxes(output: Array, size: tuple[int, int], side: int = 416) -> Boxes:
    """Of [1, cells, 85] for a photo of (width, height) at the top left of a square: offsets, logarithms
    of sizes, objectness, 80 classes; the cells of stride 8, then 16, then 32, row by row."""
    rows = output[0].astype(np.float64)
    grid = np.concatenate([_grid(side // stride, side // stride) for stride in _STRIDES])
    strides = np.concatenate([np.full((side // s) ** 2, float(s)) for s in _STRIDES])[:, None]
    centres, sizes = (rows[:, :2] + grid) * strides, np.exp(rows[:, 2:4]) * strides
    ratio = min(side / size[0], side / size[1])
    return _of_cells(_corners(centres, sizes) / ratio, rows[:, 4:5] * rows[:, 5:], YOLOX)


def fastestdet_boxes(output: Array, size: tuple[int, int]) -> Boxes:
    """Of [1, 85, H, W] for a photo of (width, height) stretched to the input: objectness, tanh^-1 of
    offsets, logits of sizes, 80 classes; a score is objectness^0.6 times probability^0.4."""
    side = output.shape[2]
    rows = output[0].astype(np.float64).reshape(output.shape[1], -1).T
    centres = (_grid(side, side) + np.tanh(rows[:, 1:3])) / side
    sizes = 1.0 / (1.0 + np.exp(-rows[:, 3:5]))
    corners = _corners(centres, sizes) * np.array([*size, *size], np.float64)
    scores = np.maximum(rows[:, :1], 0.0) ** 0.6 * np.maximum(rows[:, 5:], 0.0) ** 0.4
    return _of_cells(corners, scores, FASTESTDET)


def ultraface_boxes(scores: Array, offsets: Array, size: tuple[int, int] = (320, 240)) -> Boxes:
    """Faces of [1, anchors, 2], the second score being a face's, and of [1, anchors, 4]: offsets of the
    centre in tenths of the anchor, and logarithms of the size in fifths; for an input of (width, height).
    Anchors of each stride lie row by row, those of one cell from small to large."""
    anchors = []
    for stride, sides in zip((*_STRIDES, 64), _FACE_SIDES, strict=True):
        width, height = (-(-side // stride) for side in size)
        centres = np.repeat((_grid(width, height) + 0.5) * stride, len(sides), axis=0)
        squares = np.tile(np.array(sides, np.float64)[:, None], (width * height, 2))
        anchors.append(np.concatenate([centres, squares], axis=1))
    places, rows = np.concatenate(anchors), offsets[0].astype(np.float64)
    centres = places[:, :2] + 0.1 * rows[:, :2] * places[:, 2:]
    corners = _corners(centres, places[:, 2:] * np.exp(0.2 * rows[:, 2:]))
    return _of_cells(corners, scores[0, :, 1:].astype(np.float64), FACES)


def yunet_boxes(classes: Sequence[Array], objectness: Sequence[Array], boxes: Sequence[Array]) -> Boxes:
    """Faces of outputs for strides 8, 16, 32, each [1, cells, ...] of a square: a score is the geometric
    mean of class and objectness; boxes are offsets and logarithms of sizes in cells, here in pixels."""
    corners, scores = [], []
    for stride, category, present, box in zip(_STRIDES, classes, objectness, boxes, strict=True):
        rows = box[0].astype(np.float64)
        side = round(len(rows) ** 0.5)
        corners.append(_corners((rows[:, :2] + _grid(side, side)) * stride, np.exp(rows[:, 2:]) * stride))
        scores.append(np.sqrt(np.clip(category[0].astype(np.float64) * present[0], 0.0, 1.0)))
    return _of_cells(np.concatenate(corners), np.concatenate(scores), FACES)


def _of_cells(corners: Array, scores: Array, rule: Suppression) -> Boxes:
    """A box for every class of every cell: of corners [cells, 4] and scores [cells, classes]."""
    cells, classes = np.nonzero(scores >= rule.lowest_score)
    return suppress(Boxes(corners[cells], classes, scores[cells, classes]), rule)


def common_boxes(found: Sequence[Boxes], expected: Sequence[Boxes]) -> float:
    """F1 in per cent: pairs of one class that overlap by half, twice, over the boxes of both; 100 where
    neither has any."""
    pairs = sum(
        sum(_match(guessed.corners[guessed.classes == c], wanted.corners[wanted.classes == c]))
        for guessed, wanted in zip(found, expected, strict=True)
        for c in np.unique(wanted.classes)
    )
    boxes = sum(len(each.scores) for each in (*found, *expected))
    return 200.0 * pairs / boxes if boxes else 100.0


def mean_average_precision(found: list[Boxes], truth: list[Boxes]) -> float:
    """mAP50 in per cent: mean over the classes with true boxes, precision at 101 recalls as in COCO."""
    present = np.unique(np.concatenate([boxes.classes for boxes in truth]))
    return 100.0 * float(np.mean([_average_precision(found, truth, int(c)) for c in present]))


def _average_precision(found: list[Boxes], truth: list[Boxes], category: int) -> float:
    scores: list[float] = []
    hits: list[bool] = []
    total = 0
    for guessed, true in zip(found, truth, strict=True):
        expected = true.corners[true.classes == category]
        total += len(expected)
        chosen = guessed.classes == category
        scores.extend(guessed.scores[chosen])
        hits.extend(_match(guessed.corners[chosen], expected))
    order = np.argsort(-np.array(scores, np.float64), kind="stable")
    right = np.cumsum(np.array(hits, bool)[order])
    recall = right / total
    precision = right / np.arange(1, len(right) + 1)
    best_from = np.maximum.accumulate(precision[::-1])[::-1]
    places = np.searchsorted(recall, np.linspace(0.0, 1.0, 101), side="left")
    return float(np.append(best_from, 0.0)[places].mean())


def _match(guessed: Array, expected: Array) -> list[bool]:
    """Whether each box, best first, takes a true one that no better box took."""
    overlaps = overlap(guessed, expected)
    hits = []
    for row in overlaps:
        best = int(row.argmax()) if row.size else 0
        hits.append(bool(row.size and row[best] >= OVERLAP))
        if hits[-1]:
            overlaps[:, best] = 0.0
    return hits


def suppress(boxes: Boxes, rule: Suppression) -> Boxes:
    """What remains of the boxes, best first; of equal scores the earlier box is the better one."""
    order = np.argsort(-boxes.scores, kind="stable")
    order = order[boxes.scores[order] >= rule.lowest_score]
    kept: list[int] = []
    while order.size and len(kept) < _MOST:
        best, order = order[0], order[1:]
        kept.append(int(best))
        close = overlap(boxes.corners[best : best + 1], boxes.corners[order])[0] > rule.overlap
        order = order[~(close & (boxes.classes[order] == boxes.classes[best]))]
    return Boxes(boxes.corners[kept], boxes.classes[kept], boxes.scores[kept])


def overlap(first: Array, second: Array) -> Array:
    """Intersection over union of boxes [N, 4] and [M, 4], as [N, M]."""
    low = np.maximum(first[:, None, :2], second[None, :, :2])
    high = np.minimum(first[:, None, 2:], second[None, :, 2:])
    common = np.prod(np.maximum(high - low, 0.0), axis=2)
    areas = [np.prod(boxes[:, 2:] - boxes[:, :2], axis=1) for boxes in (first, second)]
    result: Array = common / np.maximum(areas[0][:, None] + areas[1][None, :] - common, 1e-9)
    return result


def _grid(width: int, height: int) -> Array:
    """(x, y) of every cell, row by row."""
    rows, columns = np.indices((height, width))
    return np.stack([columns.ravel(), rows.ravel()], axis=1).astype(np.float64)


def _corners(centres: Array, sizes: Array) -> Array:
    return np.concatenate([centres - sizes / 2, centres + sizes / 2], axis=1)

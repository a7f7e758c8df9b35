"""Metrics of found boxes against true ones: mean average precision as COCO has it, and F1.

All figures are in per cent. `found` and `true` have one element an image, in one order.
Source: the evaluation of COCO (cocodataset.org, detection evaluation), areas of all sizes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from qglow.core.types import Array
from qglow.metrics.boxes import MOST_BOXES, Boxes, overlap

COCO_OVERLAPS = tuple(float(value) for value in np.linspace(0.5, 0.95, 10))
"""Overlaps that COCO's mAP is the mean over."""
_RECALLS = np.linspace(0.0, 1.0, 101)


def mean_average_precision(
    found: Sequence[Boxes], true: Sequence[Boxes], overlaps: Sequence[float] = COCO_OVERLAPS
) -> float:
    """Mean average precision over overlaps and over the classes with true boxes, in per cent.

    Of each image and class the best 100 boxes count. Taken best first, a box hits the true box of its class
    that it overlaps most, and by at least the limit, of those that no better box has hit; else it is wrong,
    unless it lies in a crowd, where it does not count. Precision is read at 101 recalls, each the best at
    that recall or a higher one.

    Raises ValueError if there are no true boxes, or for different numbers of images.
    """
    _check_images(found, true)
    classes = sorted({int(c) for boxes in true for c in boxes.classes[~boxes.is_crowd]})
    if not classes:
        raise ValueError("there are no true boxes")
    rows = [_average_precisions(found, true, category, overlaps) for category in classes]
    return 100.0 * float(np.mean(rows))


def map50(found: Sequence[Boxes], true: Sequence[Boxes]) -> float:
    """Mean average precision at an overlap of 0.5, in per cent. Errors are as of `mean_average_precision`."""
    return mean_average_precision(found, true, (0.5,))


def box_f1(
    found: Sequence[Boxes], true: Sequence[Boxes], least_overlap: float = 0.5, least_score: float = 0.5
) -> float:
    """F1 in per cent: hits, twice, over found and true boxes together; 100 where there are neither.

    Found boxes of at least `least_score` count; what a hit is, and crowds, are as in mAP. Raises ValueError
    for different numbers of images.

    >>> corners, classes = np.array([[0.0, 0.0, 2.0, 2.0], [5.0, 5.0, 6.0, 6.0]]), np.array([0, 1])
    >>> found = Boxes(corners[:1], classes[:1], np.array([0.9]))
    >>> box_f1([found], [Boxes.true(corners, classes)])  # one hit, three boxes together
    66.666...
    """
    _check_images(found, true)
    hits = boxes = 0
    for guessed, wanted in zip(found, true, strict=True):
        sure = guessed.chosen(guessed.scores >= least_score).best_first()
        for category in np.union1d(sure.classes, wanted.classes):
            expected = wanted.chosen(wanted.classes == category)
            overlaps = overlap(sure.corners[sure.classes == category], expected.corners, expected.is_crowd)
            hit, ignored = match(overlaps, expected.is_crowd, least_overlap)
            hits += int(hit.sum())
            boxes += int((~ignored).sum()) + int((~expected.is_crowd).sum())
    return 200.0 * hits / boxes if boxes else 100.0


def match(overlaps: Array, crowd: Array, least: float) -> tuple[Array, Array]:
    """Match found boxes with true ones: masks of those that hit one, and of those that do not count.

    Both are bool [N]. overlaps: [N, M], found boxes best first. crowd: bool [M]. If several true boxes
    overlap a found one equally, the last is hit.
    """
    hits, ignored = np.zeros(len(overlaps), bool), np.zeros(len(overlaps), bool)
    free = ~crowd
    for index, row in enumerate(overlaps):
        candidates = np.where(free, row, -1.0)[::-1]
        best = len(row) - 1 - int(candidates.argmax()) if row.size else -1
        if best >= 0 and free[best] and row[best] >= least:
            hits[index], free[best] = True, False
        else:
            ignored[index] = bool((row[crowd] >= least).any())
    return hits, ignored


def _average_precisions(
    found: Sequence[Boxes], true: Sequence[Boxes], category: int, overlaps: Sequence[float]
) -> list[float]:
    """Average precision of one class for each overlap, 0 to 1."""
    images = list(_of_class(found, true, category))
    total = sum(int((~crowd).sum()) for _, _, crowd in images)
    scores = np.concatenate([scores for scores, _, _ in images])
    order = np.argsort(-scores, kind="stable")
    result = []
    for least in overlaps:
        pairs = [match(table, crowd, least) for _, table, crowd in images]
        hits, ignored = (np.concatenate(column)[order] for column in zip(*pairs, strict=True))
        result.append(_precision_over_recalls(hits[~ignored], total))
    return result


def _of_class(
    found: Sequence[Boxes], true: Sequence[Boxes], category: int
) -> Iterator[tuple[Array, Array, Array]]:
    """Yield for each image the scores [N] of a class's best boxes, overlaps [N, M] with true ones, crowds."""
    for guessed, wanted in zip(found, true, strict=True):
        best = guessed.chosen(guessed.classes == category).best_first()
        best = best.chosen(np.arange(min(len(best.scores), MOST_BOXES)))
        expected = wanted.chosen(wanted.classes == category)
        yield best.scores, overlap(best.corners, expected.corners, expected.is_crowd), expected.is_crowd


def _precision_over_recalls(hits: Array, total: int) -> float:
    """Mean precision at 101 recalls, 0 beyond the last one reached, from whether each box is a hit, best
    first."""
    right = np.cumsum(hits)
    precision = right / np.arange(1, len(right) + 1)
    best_from = np.maximum.accumulate(precision[::-1])[::-1]
    places = np.searchsorted(right / total, _RECALLS, side="left")
    return float(np.append(best_from, 0.0)[places].mean())


def _check_images(found: Sequence[Boxes], true: Sequence[Boxes]) -> None:
    if len(found) != len(true):
        raise ValueError(f"boxes of {len(found)} images are found, of {len(true)} images known")

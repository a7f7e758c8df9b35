"""Boxes of an image: overlap, and suppression of boxes that overlap better ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qglow.core.types import Array

MOST_BOXES = 100
"""Boxes that remain of an image, or of a class of it, as many as COCO counts."""


@dataclass(frozen=True)
class Boxes:
    """Boxes of one image, found or true.

    corners: real [N, 4], rows (x1, y1, x2, y2) in pixels of the image. classes: integers [N] from 0.
    scores: real [N], higher is surer; ones for true boxes. crowd: bool [N], the true boxes that are regions
    of many objects, where boxes that are found neither count nor harm; None for none.

    Raises ValueError for arrays of other shapes.
    """

    corners: Array
    classes: Array
    scores: Array
    crowd: Array | None = None

    def __post_init__(self) -> None:
        count = len(self.corners)
        wanted = {"corners": (count, 4), "classes": (count,), "scores": (count,), "crowd": (count,)}
        for name, shape in wanted.items():
            array = getattr(self, name)
            if array is not None and array.shape != shape:
                raise ValueError(f"{name} of boxes are {list(array.shape)}, not {list(shape)}")

    @staticmethod
    def true(corners: Array, classes: Array, crowd: Array | None = None) -> Boxes:
        """True boxes, with scores of 1. Arguments and errors are those of the class."""
        return Boxes(corners, classes, np.ones(len(corners)), crowd)

    def chosen(self, which: Array) -> Boxes:
        """The boxes of these indices, or where a bool [N] is true."""
        crowd = None if self.crowd is None else self.crowd[which]
        return Boxes(self.corners[which], self.classes[which], self.scores[which], crowd)

    def best_first(self) -> Boxes:
        """Sorted by falling score; of equal scores the earlier box comes first."""
        return self.chosen(np.argsort(-self.scores, kind="stable"))

    @property
    def is_crowd(self) -> Array:
        """Mask of the boxes that are regions of many objects, bool [N]."""
        return np.zeros(len(self.scores), bool) if self.crowd is None else self.crowd.astype(bool)


@dataclass(frozen=True)
class Suppression:
    """Rule of non-maximum suppression: boxes remain that score at least `lowest_score` and overlap no better
    box of their class by more than `overlap` (intersection over union), at most `most` of them."""

    lowest_score: float
    overlap: float
    most: int = MOST_BOXES


def suppress(boxes: Boxes, rule: Suppression) -> Boxes:
    """Suppress boxes and return the rest, best first; of equal scores the earlier box is the better one.

    >>> corners = np.array([[0.0, 0.0, 2.0, 2.0], [0.0, 0.0, 2.0, 1.9], [5.0, 5.0, 6.0, 6.0]])
    >>> boxes = Boxes(corners, np.zeros(3, int), np.array([0.6, 0.9, 0.7]))
    >>> suppress(boxes, Suppression(lowest_score=0.1, overlap=0.5)).scores
    array([0.9, 0.7])
    """
    order = np.argsort(-boxes.scores, kind="stable")
    order = order[boxes.scores[order] >= rule.lowest_score]
    kept: list[int] = []
    while order.size and len(kept) < rule.most:
        best, order = order[0], order[1:]
        kept.append(int(best))
        close = overlap(boxes.corners[best : best + 1], boxes.corners[order])[0] > rule.overlap
        order = order[~(close & (boxes.classes[order] == boxes.classes[best]))]
    return boxes.chosen(np.array(kept, np.int64))


def overlap(first: Array, second: Array, crowd: Array | None = None) -> Array:
    """Intersection over union of boxes [N, 4] and [M, 4], as [N, M].

    Where `crowd` [M] is true, intersection over the area of the first box: a region of many objects covers
    what lies in it.

    >>> overlap(np.array([[0.0, 0.0, 2.0, 2.0]]), np.array([[0.0, 0.0, 2.0, 1.0], [5.0, 5.0, 6.0, 6.0]]))
    array([[0.5, 0. ]])
    """
    low = np.maximum(first[:, None, :2], second[None, :, :2])
    high = np.minimum(first[:, None, 2:], second[None, :, 2:])
    common = np.prod(np.maximum(high - low, 0.0), axis=2)
    areas = [np.prod(boxes[:, 2:] - boxes[:, :2], axis=1) for boxes in (first, second)]
    whole = areas[0][:, None] + areas[1][None, :] - common
    if crowd is not None:
        whole = np.where(crowd[None, :], areas[0][:, None], whole)
    result: Array = common / np.maximum(whole, 1e-9)
    return result

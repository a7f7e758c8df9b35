"""Built-in decoders: from the outputs of a model to what a metric measures.

A decoder is a function whose parameters are some of `outputs`, `inputs`, `keys` and `photos`, by these names.
It gives a list with one element a sample: `Boxes` for detection, lists of integers for sequences.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from qglow.core.types import Array
from qglow.metrics.boxes import Boxes
from qglow.metrics.sequences import ctc_decode
from qglow.metrics.truth import Photo

Outputs = Mapping[str, Array]


def boxes(outputs: Outputs) -> list[Boxes]:
    """Final detections with corners (x1, y1, x2, y2) in pixels of the photo.

    Either one output [N, M, 6], corners, score and class; or corners [N, M, 4], scores [N, M] and classes
    [N, M], told apart by "class" or "label" in a name. Rows of no positive score fill up and are dropped.
    Raises ValueError for other outputs.
    """
    corners, scores, classes = _detections(outputs)
    found = []
    for row in range(len(corners)):
        real = scores[row] > 0
        kinds = classes[row][real].astype(np.int64)
        found.append(Boxes(corners[row][real].astype(np.float64), kinds, scores[row][real]))
    return found


def relative_boxes(outputs: Outputs, photos: Sequence[Photo]) -> list[Boxes]:
    """Decode like `boxes`, from corners as shares of the photo's width and height, 0 to 1."""
    return [
        Boxes(each.corners * np.array([photo.width, photo.height] * 2), each.classes, each.scores)
        for each, photo in zip(boxes(outputs), photos, strict=True)
    ]


def ctc(outputs: Outputs) -> list[list[int]]:
    """The best path of the first output [N, steps, classes], whose class 0 is the blank."""
    return ctc_decode(next(iter(outputs.values())), 0)


def ctc_last(outputs: Outputs) -> list[list[int]]:
    """Decode like `ctc`, with the last class as the blank."""
    return ctc_decode(next(iter(outputs.values())), -1)


def ctc_classes_first(outputs: Outputs) -> list[list[int]]:
    """Decode like `ctc`, from an output [N, classes, steps]."""
    return ctc_decode(_steps_first(outputs), 0)


def ctc_last_classes_first(outputs: Outputs) -> list[list[int]]:
    """Decode like `ctc_last`, from an output [N, classes, steps]."""
    return ctc_decode(_steps_first(outputs), -1)


def _steps_first(outputs: Outputs) -> Array:
    """The first output [N, classes, steps] as [N, steps, classes]. Raises ValueError for another rank."""
    scores = next(iter(outputs.values()))
    if scores.ndim != 3:
        raise ValueError(f"scores {list(scores.shape)} are not [N, classes, steps]")
    return scores.transpose(0, 2, 1)


def _detections(outputs: Outputs) -> tuple[Array, Array, Array]:
    """Corners [N, M, 4], scores [N, M] and classes [N, M]."""
    whole = [array for array in outputs.values() if array.ndim == 3 and array.shape[2] == 6]
    if len(outputs) == 1 and whole:
        return whole[0][:, :, :4], whole[0][:, :, 4], whole[0][:, :, 5]
    corners = [array for array in outputs.values() if array.ndim == 3 and array.shape[2] == 4]
    flat = {name: array for name, array in outputs.items() if array.ndim == 2}
    classes = [array for name, array in flat.items() if _is_class(name)]
    scores = [array for name, array in flat.items() if not _is_class(name)]
    fit = len(corners) == len(classes) == len(scores) == 1
    if not fit or not corners[0].shape[:2] == classes[0].shape == scores[0].shape:
        shapes = ", ".join(f"{name} {list(array.shape)}" for name, array in outputs.items())
        raise ValueError(f"outputs {shapes} are no final boxes; a decoder of yours makes them")
    return corners[0], scores[0], classes[0]


def _is_class(name: str) -> bool:
    return "class" in name.lower() or "label" in name.lower()


DECODERS: dict[str, Callable[..., list[Any]]] = {
    "boxes": boxes,
    "relative_boxes": relative_boxes,
    "ctc": ctc,
    "ctc_last": ctc_last,
    "ctc_classes_first": ctc_classes_first,
    "ctc_last_classes_first": ctc_last_classes_first,
}
"""Decoders by the names that a metric takes behind a colon."""

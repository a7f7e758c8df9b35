"""Classification: which class has the best score, and how often that is the label."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from qglow.core.types import Array


def rank_of(scores: Array, classes: Array) -> Array:
    """Places (0 is best) of `classes` [N] in `scores` [N, C]; of equal scores the lower class comes first."""
    own = np.take_along_axis(scores, classes[:, None], axis=1)
    before = np.arange(scores.shape[1])[None, :] < classes[:, None]
    ahead: Array = (scores > own) | ((scores == own) & before)
    return np.asarray(ahead.sum(axis=1))


def best_class(scores: Array) -> Any:
    """The class [N] of the highest score of each row of [N, C], the lower one of equals."""
    return np.argmax(scores, axis=1)


def classification_output(outputs: Mapping[str, Array], samples: int) -> str | None:
    """The first output with one score a class and sample, [N, classes] but for axes of size 1."""
    for name, array in outputs.items():
        scored = array.ndim >= 2 and array.shape[0] == samples and array.shape[1] >= 2
        if scored and array.size == samples * array.shape[1]:
            return name
    return None


def position_output(outputs: Mapping[str, Array], samples: int, positions: int) -> str | None:
    """The first real output with one score a class and position, [N, T, classes]."""
    for name, array in outputs.items():
        fits = array.ndim == 3 and array.shape[:2] == (samples, positions) and array.shape[2] >= 2
        if fits and np.issubdtype(array.dtype, np.floating):
            return name
    return None


def class_scores(array: Array) -> Array:
    """An output of shape [N, classes, 1, ...] as [N, classes]."""
    return array.reshape(array.shape[0], array.shape[1])


def position_scores(array: Array) -> Array:
    """An output of shape [N, T, classes] as [N * T, classes]."""
    return array.reshape(-1, array.shape[2])


def labelled_scores(outputs: Mapping[str, Array], labels: Array) -> tuple[Array, Array]:
    """Scores [M, classes] and their labels [M], of labels [N] or of labels [N, T].

    The first output [N, classes], or [N, T, classes], has the scores; positions of negative labels are left
    out. Raises ValueError if there is no such output, or nothing is labelled.
    """
    name = (
        position_output(outputs, *labels.shape)
        if labels.ndim == 2
        else classification_output(outputs, len(labels))
    )
    if name is None:
        wanted = ", ".join(["N", "T"][: labels.ndim] + ["classes"])
        shapes = ", ".join(f"{key} {list(array.shape)}" for key, array in outputs.items())
        raise ValueError(f"no output [{wanted}] for labels {list(labels.shape)}; there are {shapes}")
    if labels.ndim == 1:
        scores, classes = class_scores(outputs[name]), labels
    else:
        counted = labels.reshape(-1) >= 0
        scores, classes = position_scores(outputs[name])[counted], labels.reshape(-1)[counted]
    if not classes.size or classes.min() < 0 or classes.max() >= scores.shape[1]:
        raise ValueError(f"labels {list(labels.shape)} are not classes of scores {list(scores.shape)}")
    return scores, classes


def top1(outputs: Mapping[str, Array], labels: Array) -> float:
    """Share of labels that have the best score, in per cent: of [N] in the first output [N, classes], of
    [N, T] in the first output [N, T, classes]. Negative labels of [N, T] do not count.

    Raises ValueError if there is no such output, nothing labelled, or a label outside of the classes.
    """
    return top_k(*labelled_scores(outputs, labels), 1)


def top5(outputs: Mapping[str, Array], labels: Array) -> float:
    """Share of labels with one of the best five scores, in per cent; see `top1`."""
    return top_k(*labelled_scores(outputs, labels), 5)


def top_k(scores: Array, labels: Array, count: int) -> float:
    """Share of labels [N] that are among the best `count` of scores [N, classes], in per cent.

    Raises ValueError for no samples, or labels outside of the classes.

    >>> scores = np.array([[0.1, 0.7, 0.2], [0.5, 0.3, 0.2]])
    >>> top_k(scores, np.array([1, 1]), 1), top_k(scores, np.array([1, 1]), 2)
    (50.0, 100.0)
    """
    if not labels.size or labels.min() < 0 or labels.max() >= scores.shape[1]:
        raise ValueError(f"labels {list(labels.shape)} are not classes of scores {list(scores.shape)}")
    return 100.0 * float(np.mean(rank_of(scores, labels) < count))

"""Probabilities of classes, one distribution a sample, and what a softmax made them of.

Of a few samples nearly all have one probability close to 1, and the others would decide alone, each as much
as a whole answer where a close call turns. Logarithms weigh all samples alike.
"""

from __future__ import annotations

import numpy as np

from qglow.core.types import Array
from qglow.metrics.classification import class_scores, classification_output

_LEAST = 1e-9
_NEARLY_ONE = 1e-3


def are_probabilities(array: Array) -> bool:
    """Whether each sample has one distribution over classes, [N, classes] but for axes of size 1."""
    if array.dtype.kind != "f" or not array.ndim or classification_output({"": array}, len(array)) is None:
        return False
    scores = class_scores(array)
    return bool(np.all(scores >= 0.0) and np.all(np.abs(scores.sum(axis=1) - 1.0) < _NEARLY_ONE))


def centred_logarithms(array: Array, step: float = 0.0) -> Array:
    """Logarithms [N, classes] of probabilities, in float64, without the mean of each sample.

    step: of the integers that the probabilities are made of, if they are; below half of one they are equal.
    """
    least = max(_LEAST, 0.5 * step)
    logarithms: Array = np.log(np.maximum(class_scores(array).astype(np.float64), least))
    logarithms -= logarithms.mean(axis=1, keepdims=True)
    return logarithms

"""Closeness of scores of classes to labels and to the float model: [N, classes], or [N, T, classes] at T
positions of each sample, such as tokens.

`labels` are int64 [N] or [N, T]; negative labels of positions do not count. `tokens` are the integers [N, T]
that a model of sequences was fed, or None. Scores are logits, or probabilities where no value is outside of
0 to 1 and rows sum to about 1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from qglow.core.types import Array
from qglow.metrics.classification import (
    best_class,
    class_scores,
    classification_output,
    labelled_scores,
    position_output,
    position_scores,
)

_LEAST_PROBABILITY = 1e-7
"""What a probability of 0 counts as."""


def agreement(
    outputs: Mapping[str, Array], expected: Mapping[str, Array], labels: Array | None = None
) -> float:
    """Share of samples or positions with the same best class as the float model, in per cent.

    Of the first output [N, classes] or, where labels [N, T] fit one or there is no such output, of the first
    real output [N, T, classes]. Raises ValueError if there is none.

    >>> expected = {"y": np.eye(3)[[[0, 1, 2, 2]]]}  # one sample, the best classes of its four positions
    >>> agreement({"y": np.eye(3)[[[0, 1, 1, 2]]]}, expected)
    75.0
    >>> agreement({"y": np.eye(3)[[[0, 1, 1, 2]]]}, expected, labels=np.array([[0, 1, -100, 2]]))
    100.0
    """
    found, reference, counted = _pairs(outputs, expected, labels)
    return 100.0 * float(np.mean((best_class(found) == best_class(reference))[counted]))


def kl_float(
    outputs: Mapping[str, Array], expected: Mapping[str, Array], labels: Array | None = None
) -> float:
    """Mean Kullback-Leibler divergence from the probabilities of the float model, in nats; 0 is equal.

    Arguments and errors are those of `agreement`.

    >>> expected = {"y": np.array([[0.5, 0.5]])}
    >>> kl_float({"y": np.array([[0.25, 0.75]])}, expected)  # log(2) / 2 + log(2 / 3) / 2
    0.1438...
    """
    return float(np.nanmean(divergences(outputs, expected, labels)))


def divergences(
    outputs: Mapping[str, Array], expected: Mapping[str, Array], labels: Array | None = None
) -> Array:
    """Divergences of `kl_float`, one by one: float64 [samples, positions], one position for [N, classes].

    NaN where a position does not count.
    """
    found, reference, counted = _pairs(outputs, expected, labels)
    found, reference = (log_probabilities(rows[counted]) for rows in (found, reference))
    each = np.full(len(counted), np.nan)
    each[counted] = np.sum(np.exp(reference) * (reference - found), axis=1)
    return each.reshape(len(next(iter(expected.values()))), -1)


def label_cross_entropy(
    outputs: Mapping[str, Array], tokens: Array | None, labels: Array | None = None
) -> float:
    """Mean cross-entropy of labels, in nats; without labels, of the next tokens: scores at t are for t + 1.

    Raises ValueError for neither labels nor tokens, or no output that fits them.
    """
    if labels is not None:
        scores, classes = labelled_scores(outputs, labels)
    elif tokens is None:
        raise ValueError("there are no labels, and no input [N, T] of tokens in place of them")
    else:
        scores, classes = labelled_scores(*_next_tokens(outputs, tokens))
    own = np.take_along_axis(log_probabilities(scores), classes[:, None].astype(np.int64), axis=1)
    return -float(np.mean(own))


def label_perplexity(
    outputs: Mapping[str, Array], tokens: Array | None, labels: Array | None = None
) -> float:
    """Exponential of `label_cross_entropy`, whose arguments and errors it has."""
    return math.exp(label_cross_entropy(outputs, tokens, labels))


def label_likelihood(
    outputs: Mapping[str, Array], tokens: Array | None, labels: Array | None = None
) -> float:
    """Mean logarithm of the probability of labels, in nats: minus `label_cross_entropy`."""
    return -label_cross_entropy(outputs, tokens, labels)


def log_probabilities(scores: Array) -> Array:
    """Logarithms of probabilities [M, classes], float64, of logits or of probabilities themselves.

    Scores are probabilities where all are from 0 to 1 and rows sum to 0.5 to 1.5 in the mean, as int8 rounds
    them; those below 1e-7 count as that.

    >>> np.exp(log_probabilities(np.array([[0.0, math.log(3.0)]]))), np.exp(log_probabilities(np.eye(2)))[0]
    (array([[0.25, 0.75]]), array([1.e+00, 1.e-07]))
    """
    rows: Array = scores.astype(np.float64)
    if rows.min() >= 0.0 and rows.max() <= 1.0 and 0.5 <= float(np.mean(rows.sum(1))) <= 1.5:
        return np.asarray(np.log(np.maximum(rows, _LEAST_PROBABILITY)))
    rows = rows - rows.max(1, keepdims=True)
    return np.asarray(rows - np.log(np.exp(rows).sum(1, keepdims=True)))


def _pairs(
    outputs: Mapping[str, Array], expected: Mapping[str, Array], labels: Array | None
) -> tuple[Array, Array, Array]:
    """Scores [M, classes] of a program and of the float model, and which of them count, bool [M]."""
    samples = len(next(iter(expected.values())))
    name, counted = None, None
    if labels is not None and labels.ndim == 2:
        name, counted = position_output(expected, *labels.shape), labels.reshape(-1) >= 0
    if name is None:
        counted, name = None, classification_output(expected, samples)
        if name is not None:
            reference = class_scores(expected[name])
            return class_scores(outputs[name]), reference, np.ones(len(reference), bool)
        shapes = [array.shape[1] for array in expected.values() if array.ndim == 3]
        fitting = (position_output(expected, samples, positions) for positions in shapes)
        name = next((each for each in fitting if each is not None), None)
    if name is None:
        shown = ", ".join(f"{key} {list(array.shape)}" for key, array in expected.items())
        raise ValueError(f"no output [N, classes] or [N, T, classes] fits; there are {shown}")
    found, reference = position_scores(outputs[name]), position_scores(expected[name])
    return found, reference, np.ones(len(reference), bool) if counted is None else counted


def _next_tokens(outputs: Mapping[str, Array], tokens: Array) -> tuple[dict[str, Array], Array]:
    """The first output [N, T, vocabulary] without its last position, and the tokens that follow."""
    name = position_output(outputs, *tokens.shape) if tokens.ndim == 2 else None
    if name is None or tokens.shape[1] < 2:
        shapes = ", ".join(f"{key} {list(array.shape)}" for key, array in outputs.items())
        raise ValueError(f"no logits [N, T, vocabulary] for tokens {list(tokens.shape)}; there are {shapes}")
    return {name: outputs[name][:, :-1]}, tokens[:, 1:]

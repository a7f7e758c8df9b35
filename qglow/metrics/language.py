"""Language models: how probable the tokens are that follow."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from qglow.core.types import Array


def cross_entropy(logits: Array, tokens: Array) -> float:
    """Mean cross-entropy of tokens in nats: of logits [..., vocabulary] and integers [...].

    Raises ValueError for shapes that do not fit, tokens outside of the vocabulary, or no tokens.

    >>> cross_entropy(np.zeros((1, 8)), np.array([3]))  # log(8): each of 8 tokens is equally probable
    2.079...
    """
    size = logits.shape[-1] if logits.ndim else 0
    if logits.shape[:-1] != tokens.shape or not tokens.size:
        raise ValueError(f"logits {list(logits.shape)} do not fit tokens {list(tokens.shape)}")
    if tokens.min() < 0 or tokens.max() >= size:
        raise ValueError(f"tokens {tokens.min()} to {tokens.max()} are outside of a vocabulary of {size}")
    rows = logits.reshape(-1, size).astype(np.float64)
    rows = rows - rows.max(1, keepdims=True)
    own = rows[np.arange(len(rows)), tokens.reshape(-1)]
    return float(np.mean(np.log(np.exp(rows).sum(1)) - own))


def perplexity(logits: Array, tokens: Array) -> float:
    """Exponential of the cross-entropy: the number of equally probable tokens that would be as uncertain.

    Arguments and errors are those of `cross_entropy`.

    >>> round(perplexity(np.zeros((1, 8)), np.array([3])), 6)
    8.0
    """
    return math.exp(cross_entropy(logits, tokens))


def log_likelihood(outputs: Mapping[str, Array], inputs: Mapping[str, Array]) -> float:
    """Mean logarithm of the probability of each next token, in nats: minus the cross-entropy, so that higher
    is better; the perplexity is exp(-value).

    The first output of shape [N, T, vocabulary] has the logits, the first integer input [N, T] the tokens:
    those at t are for the token at t + 1. Raises ValueError if there are no such tensors.
    """
    logits = next((array for array in outputs.values() if array.ndim == 3), None)
    tokens = next((a for a in inputs.values() if a.ndim == 2 and np.issubdtype(a.dtype, np.integer)), None)
    if logits is None or tokens is None or logits.shape[:2] != tokens.shape or tokens.shape[1] < 2:
        shapes = ", ".join(f"{n} {list(a.shape)}" for n, a in [*inputs.items(), *outputs.items()])
        raise ValueError(f"no logits [N, T, vocabulary] for integer tokens [N, T]; there are {shapes}")
    return -cross_entropy(logits[:, :-1], tokens[:, 1:])

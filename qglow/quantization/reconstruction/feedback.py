"""Rounding the weights of a filter one after the other, each making up for the errors before it.

E. Frantar et al., "GPTQ: Accurate Post-Training Quantization for Generative Pre-trained
Transformers" (ICLR 2023): of the squared error of a layer's result, x being its input and C the
covariance of x,

    E[(e x)^2] = e C e^T,   e = w - w',

the part that rounding one weight adds is taken back as well as possible by the weights that are
still to be rounded, which the Cholesky factor of the inverse of C tells for all of them.
"""

from __future__ import annotations

import numpy as np

from qglow.core.types import Array
from qglow.numerics.weights import WEIGHT_MAX

DAMPING = 0.01
"""Share of the mean variance that is added to every variance: keeps C far from singular."""
BLOCK = 64
"""Columns whose errors are carried on one by one; those behind them get the sum of a block."""


def nearest(weights: Array, scales: Array) -> Array:
    """float64 integers [G, O, K], each the nearest: `weights` [G, O, K], `scales` [G, O]."""
    return np.clip(np.rint(weights / scales[..., None]), -WEIGHT_MAX, WEIGHT_MAX)


def rounded_with_feedback(weights: Array, scales: Array, covariance: Array) -> Array:
    """float64 integers [G, O, K] in [-127, 127], of `weights` [G, O, K] and `covariance` [G, K, K].

    Inputs of much variance come first, while most others can still make up for them.
    """
    length = covariance.shape[-1]
    diagonal = np.arange(length)
    order = np.argsort(-covariance[:, diagonal, diagonal], axis=1, kind="stable")
    left = np.take_along_axis(weights.astype(np.float64), order[:, None, :], axis=2)
    factor = _inverse_factor(_ordered(covariance, order))
    result = np.empty_like(left)
    for start in range(0, length, BLOCK):
        stop = min(start + BLOCK, length)
        errors = np.empty((*left.shape[:2], stop - start))
        for column in range(start, stop):
            exact = left[:, :, column]
            integer = np.clip(np.rint(exact / scales), -WEIGHT_MAX, WEIGHT_MAX)
            result[:, :, column] = integer
            error = (exact - integer * scales) / factor[:, None, column, column]
            left[:, :, column:stop] -= error[..., None] * factor[:, None, column, column:stop]
            errors[:, :, column - start] = error
        left[:, :, stop:] -= np.matmul(errors, factor[:, start:stop, stop:])
    back = np.argsort(order, axis=1)
    return np.take_along_axis(result, back[:, None, :], axis=2)


def expected_error(weights: Array, integers: Array, scales: Array, covariance: Array) -> Array:
    """float64[G, O]: E[(e x)^2] of every output channel."""
    error = weights - integers * scales[..., None]
    return np.asarray(np.sum(np.matmul(error, covariance) * error, axis=2))


def _ordered(covariance: Array, order: Array) -> Array:
    rows = np.take_along_axis(covariance, order[:, :, None], axis=1)
    return np.take_along_axis(rows, order[:, None, :], axis=2)


def _inverse_factor(covariance: Array) -> Array:
    """Upper triangular U with U^T U the inverse of the damped covariance."""
    length = covariance.shape[-1]
    diagonal = np.arange(length)
    damped = covariance.copy()
    typical = np.mean(damped[:, diagonal, diagonal], axis=1, keepdims=True)
    damped[:, diagonal, diagonal] += np.where(typical > 0.0, DAMPING * typical, 1.0)
    inverse = np.linalg.inv(damped)
    symmetric = (inverse + inverse.transpose(0, 2, 1)) / 2
    return np.asarray(np.linalg.cholesky(symmetric).transpose(0, 2, 1))

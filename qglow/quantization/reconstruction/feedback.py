"""Rounding of the weights of a filter one after the other, each compensating the errors before it.

E. Frantar et al., "GPTQ: Accurate Post-Training Quantization for Generative Pre-trained
Transformers" (ICLR 2023): the squared error of a layer's result, x being its input and C the
covariance of x, is

    E[(e x)^2] = e C e^T,   e = w - w'.

The part that rounding one weight adds is compensated as well as possible by changes of the weights
that are still to be rounded. The Cholesky factor of the inverse of C gives these changes.
"""

from __future__ import annotations

import numpy as np

from qglow.core.types import Array
from qglow.numerics.weights import WEIGHT_MAX

DAMPING = 0.01
"""Share of the mean variance that is added to every variance: keeps C far from singular."""
SMALLEST_HALF = 64
"""Rows up to which a triangular matrix is inverted at once, and not by halves."""
BLOCK = 64
"""Columns of a block: inside it errors are passed on column by column, to later columns once a block."""


def nearest(weights: Array, scales: Array) -> Array:
    """Round `weights` [G, O, K] with `scales` [G, O] to the nearest integers, float64[G, O, K]."""
    return np.clip(np.rint(weights / scales[..., None]), -WEIGHT_MAX, WEIGHT_MAX)


def rounded_with_feedback(weights: Array, scales: Array, covariance: Array) -> Array:
    """Round `weights` [G, O, K] with `scales` [G, O], by the `covariance` [G, K, K] of their inputs.

    Returns float64 integers [G, O, K] in [-127, 127]. Weights of inputs with high variance are rounded first,
    while most others can still compensate their errors.
    """
    length = covariance.shape[-1]
    diagonal = np.arange(length)
    order = np.argsort(-covariance[:, diagonal, diagonal], axis=1, kind="stable")
    left = np.take_along_axis(weights.astype(np.float64), order[:, None, :], axis=2)
    factor = inverse_factor(_ordered(covariance, order))
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


def inverse_factor(covariance: Array) -> Array:
    """Upper triangular U with U^T U the inverse of the damped covariance C.

    With the order of rows and columns reversed, C = L L^T, and U is the inverse of L.
    """
    length = covariance.shape[-1]
    diagonal = np.arange(length)
    damped = covariance.copy()
    typical = np.mean(damped[:, diagonal, diagonal], axis=1, keepdims=True)
    damped[:, diagonal, diagonal] += np.where(typical > 0.0, DAMPING * typical, 1.0)
    lower = np.linalg.cholesky(damped[:, ::-1, ::-1])
    return np.asarray(_triangular_inverse(lower)[:, ::-1, ::-1])


def _triangular_inverse(lower: Array) -> Array:
    """Invert lower triangular matrices [G, K, K] by halves, so that most of the work is matrix products."""
    length = lower.shape[-1]
    if length <= SMALLEST_HALF:
        return np.asarray(np.tril(np.linalg.inv(lower)))
    half = length // 2
    first, last = _triangular_inverse(lower[:, :half, :half]), _triangular_inverse(lower[:, half:, half:])
    inverse = np.zeros_like(lower)
    inverse[:, :half, :half], inverse[:, half:, half:] = first, last
    inverse[:, half:, :half] = -np.matmul(np.matmul(last, lower[:, half:, :half]), first)
    return inverse

"""Learning of whether each weight of a filter is rounded up or down.

M. Nagel et al., "Up or Down? Adaptive Rounding for Post-Training Quantization" (ICML 2020): each
weight is floor(w / s) + h with h between 0 and 1. Gradient descent on h minimizes the squared error of
the layer's result, e C e^T with the covariance C of its input, while a regularization term pushes h
ever more strongly to 0 or 1. The error depends on the samples through C alone, so no step needs them.
"""

from __future__ import annotations

import numpy as np

from qglow.core.types import Array
from qglow.numerics.weights import WEIGHT_MAX

STEPS = 400
FEWEST_STEPS = 50
MULTIPLY_ADDS = 5e10
"""Budget of multiply-adds for all steps of a layer: some seconds, but the same steps on every machine."""
WARM_UP = 0.2
"""Share of the steps, at the beginning, without the regularization term."""
RATE = 0.02
FIRST_MOMENT, SECOND_MOMENT = 0.9, 0.999
"""Decay of Adam's averages."""
SHARPNESS = (20.0, 2.0)
"""First and last exponent of the regularization term: it is flat around h = 0.5 at first, then steep."""
DECIDING = 0.1
"""Weight of the regularization term relative to the error, which is about 1 for nearest rounding."""
START = 0.1
"""Distance from 0 or 1 at which h begins."""
LOW, HIGH = -0.1, 1.1
"""Range to which the sigmoid is stretched before h is clipped to [0, 1], so that h can reach both ends."""


def rounded_by_learning(weights: Array, scales: Array, covariance: Array, start: Array) -> Array:
    """Round `weights` [G, O, K] with `scales` [G, O], by the `covariance` [G, K, K] of their inputs.

    Returns float64 integers [G, O, K] in [-127, 127]. `start` holds integers in that range, such as GPTQ's;
    each may become its neighbour on the side of the exact weight. Deterministic. A layer so large that
    the budget allows fewer than `FEWEST_STEPS` steps keeps `start`.
    """
    groups, outputs, length = weights.shape
    steps = int(min(STEPS, MULTIPLY_ADDS / max(1, groups * outputs * length**2)))
    if steps < FEWEST_STEPS:
        return start
    exact = weights / scales[..., None]
    floor = np.clip(np.where(exact >= start, start, start - 1.0), -WEIGHT_MAX, WEIGHT_MAX - 1.0)
    share = (exact - floor).astype(np.float32)
    products = _relative(covariance)
    inner = (START + (1.0 - 2.0 * START) * (start - floor) - LOW) / (HIGH - LOW)
    variable = np.log(inner / (1.0 - inner)).astype(np.float32)
    first, second = np.zeros_like(variable), np.zeros_like(variable)
    for step in range(1, steps + 1):
        gradient = _gradient(variable, share, products, step / steps)
        first = FIRST_MOMENT * first + (1.0 - FIRST_MOMENT) * gradient
        second = SECOND_MOMENT * second + (1.0 - SECOND_MOMENT) * gradient**2
        change = (first / (1.0 - FIRST_MOMENT**step)) / (
            np.sqrt(second / (1.0 - SECOND_MOMENT**step)) + np.float32(1e-8)
        )
        variable = variable - np.float32(RATE) * change
    return np.asarray(floor + (_between(variable)[0] >= 0.5))


def _relative(covariance: Array) -> Array:
    """Scale the covariance so that a weight rounded to nearest has a mean error of 1; float32[G, K, K]."""
    variance = float(np.mean(np.diagonal(covariance, axis1=1, axis2=2)))
    return np.asarray(covariance * (12.0 / variance if variance > 0.0 else 0.0), np.float32)


def _between(variable: Array) -> tuple[Array, Array]:
    """Return h and its derivative with respect to the variable."""
    sigmoid = 1.0 / (1.0 + np.exp(-variable))
    stretched = sigmoid * np.float32(HIGH - LOW) + np.float32(LOW)
    inside = (stretched > 0.0) & (stretched < 1.0)
    slope = np.where(inside, sigmoid * (1.0 - sigmoid) * np.float32(HIGH - LOW), np.float32(0.0))
    return np.clip(stretched, 0.0, 1.0), slope


def _gradient(variable: Array, share: Array, products: Array, progress: float) -> Array:
    h, slope = _between(variable)
    gradient = 2.0 * np.matmul(h - share, products) / np.float32(share.shape[-1])
    if progress > WARM_UP:
        passed = (progress - WARM_UP) / (1.0 - WARM_UP)
        exponent = SHARPNESS[1] + (SHARPNESS[0] - SHARPNESS[1]) * (1.0 + np.cos(np.pi * passed)) / 2.0
        away = 2.0 * h - 1.0
        decided = -2.0 * exponent * np.abs(away) ** (exponent - 1.0) * np.sign(away)
        gradient = gradient + np.float32(DECIDING) * decided.astype(np.float32)
    return np.asarray(gradient * slope, np.float32)

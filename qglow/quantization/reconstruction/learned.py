"""Learning for every weight of a filter whether it is rounded up or down.

M. Nagel et al., "Up or Down? Adaptive Rounding for Post-Training Quantization" (ICML 2020): each
weight is floor(w / s) + h, h between 0 and 1, and h goes down the gradient of the squared error of
the layer's result, e C e^T with the covariance C of its input, while a second term pushes it ever
more strongly to 0 or 1. The covariance holds all that the samples say, so no step looks at them again.
"""

from __future__ import annotations

import numpy as np

from qglow.core.types import Array
from qglow.numerics.weights import WEIGHT_MAX

STEPS = 400
FEWEST_STEPS = 50
MULTIPLY_ADDS = 5e10
"""What the steps of a layer may take together: seconds, the same number of steps on every machine."""
WARM_UP = 0.2
"""Share of the steps without the term that decides."""
RATE = 0.02
FIRST_MOMENT, SECOND_MOMENT = 0.9, 0.999
"""Decay of Adam's averages."""
SHARPNESS = (20.0, 2.0)
"""The exponent of the deciding term: flat around the middle at first, then steep."""
DECIDING = 0.1
"""Weight of the deciding term beside the error, which is about 1 for nearest rounding."""
START = 0.1
"""How far from 0 or 1 h begins."""
LOW, HIGH = -0.1, 1.1
"""h is a sigmoid stretched to this range and cut off at 0 and 1, which it so can reach."""


def rounded_by_learning(weights: Array, scales: Array, covariance: Array, start: Array) -> Array:
    """float64 integers [G, O, K] in [-127, 127], of `weights` [G, O, K] and `covariance` [G, K, K].

    `start` holds integers in that range, such as GPTQ's; each may become its neighbour on the side of the
    exact weight. The same arguments give the same integers. A layer so large that few steps are affordable
    keeps those it has.
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
    """float32[G, K, K]: the covariance in units that make 1 of the mean error of a weight rounded alone."""
    variance = float(np.mean(np.diagonal(covariance, axis1=1, axis2=2)))
    return np.asarray(covariance * (12.0 / variance if variance > 0.0 else 0.0), np.float32)


def _between(variable: Array) -> tuple[Array, Array]:
    """h and its slope."""
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

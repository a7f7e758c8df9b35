"""Normalization by statistics of the input itself, float32, reductions as in rule 9 of the contract.

See the ONNX operators LayerNormalization, InstanceNormalization, LRN.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from qglow.core.types import Array
from qglow.numerics.elementwise import add, div, mul, sub
from qglow.numerics.functions import power_of, reciprocal, sqrt
from qglow.numerics.pool import average_pool_float
from qglow.numerics.reduce import reduce


def standardize(x: Array, axes: Sequence[int], epsilon: float) -> Array:
    """`(x - mean) * (1 / sqrt(variance + epsilon))`, statistics over axes together."""
    with np.errstate(all="ignore"):
        centred = sub(x, reduce(x, "mean", axes))
        variance = reduce(mul(centred, centred), "mean", axes)
        return mul(centred, reciprocal(sqrt(add(variance, np.array(epsilon, np.float32)))))


def layer_normalization(x: Array, scale: Array, bias: Array | None, axis: int, epsilon: float) -> Array:
    """Standardized over the axes from `axis` on, times `scale`, plus `bias`; both broadcast to x."""
    result = mul(standardize(x, range(axis % x.ndim, x.ndim), epsilon), scale)
    return result if bias is None else add(result, bias)


def instance_normalization(x: Array, scale: Array, bias: Array, epsilon: float) -> Array:
    """Every channel of every image standardized, times `scale` [C], plus `bias` [C]."""
    vector = (-1, *(1,) * (x.ndim - 2))
    result = mul(standardize(x, range(2, x.ndim), epsilon), scale.reshape(vector))
    return add(result, bias.reshape(vector))


def local_response(x: Array, size: int, alpha: float, beta: float, bias: float) -> Array:
    """`x / (bias + alpha * mean)^beta`, the mean over the squares of `size` neighbouring channels.

    Channels that do not exist count as zeros.
    """
    images = mul(x, x).reshape(x.shape[0], 1, x.shape[1], -1)
    before = (size - 1) // 2
    pads = (before, 0, size - 1 - before, 0)
    means = average_pool_float(images, (size, 1), pads=pads, count_include_pad=True).reshape(x.shape)
    return div(x, power_of(add(mul(means, np.array(alpha, np.float32)), np.array(bias, np.float32)), beta))

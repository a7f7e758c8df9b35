"""Normalization by statistics of the input itself, float32, reductions as in rule 9 of the contract.

See the ONNX operators LayerNormalization, InstanceNormalization, LRN.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from qglow.core.types import Array
from qglow.numerics.elementwise import add, div, mul, sub
from qglow.numerics.reduce import reduce
from qglow.numerics.reductions import interleaved_sum
from qglow.numerics.scalar.arrays import evaluate
from qglow.numerics.scalar.elementary import PowerOf, Reciprocal, Sqrt


def standardize(
    x: Array, axes: Sequence[int], epsilon: float, *, centres: bool = True, divides: bool = False
) -> Array:
    """`(x - mean) * (1 / sqrt(variance + epsilon))`, statistics over axes together.

    centres: whether the mean is subtracted; else the variance is the mean of squares. divides: whether the
    root is divided by, in place of a product with its reciprocal.
    """
    with np.errstate(all="ignore"):
        centred = sub(x, reduce(x, "mean", axes)) if centres else x
        variance = reduce(mul(centred, centred), "mean", axes)
        deviation = evaluate(Sqrt().real, add(variance, np.array(epsilon, np.float32)))
        if divides:
            return div(centred, deviation)
        return mul(centred, evaluate(Reciprocal().real, deviation))


def layer_normalization(x: Array, scale: Array, bias: Array | None, axis: int, epsilon: float) -> Array:
    """Standardized over the axes from `axis` on, times `scale`, plus `bias`; both broadcast to x."""
    result = mul(standardize(x, range(axis % x.ndim, x.ndim), epsilon), scale)
    return result if bias is None else add(result, bias)


def instance_normalization(x: Array, scale: Array, bias: Array, epsilon: float) -> Array:
    """Every channel of every image standardized, times `scale` [C], plus `bias` [C]."""
    vector = (-1, *(1,) * (x.ndim - 2))
    result = mul(standardize(x, range(2, x.ndim), epsilon), scale.reshape(vector))
    return add(result, bias.reshape(vector))


def local_response(x: Array, size: int, alpha: float, beta: float, bias: float, axis: int = 1) -> Array:
    """`x / (bias + (alpha / size) * sum)^beta`, the sum over the squares of `size` neighbours along `axis`.

    Neighbours that do not exist count as zeros. Neighbour i of the window has index i in the
    interleaved sum; `alpha / size` is one float32, rounded from the quotient in double.
    """
    x = np.moveaxis(np.asarray(x, np.float32), axis, -1)
    before = (size - 1) // 2
    pads = [(0, 0)] * (x.ndim - 1) + [(before, size - 1 - before)]
    windows = sliding_window_view(np.pad(mul(x, x), pads), size, axis=-1)
    with np.errstate(all="ignore"):
        scaled = mul(interleaved_sum(windows), response_factor(alpha, size))
        powers = evaluate(PowerOf(beta).real, add(scaled, np.array(bias, np.float32)))
    return np.moveaxis(div(x, powers), -1, axis)


def response_factor(alpha: float, size: int) -> Array:
    """Factor of the sums of squares in local_response, a float32."""
    return np.array(alpha / size, np.float32)

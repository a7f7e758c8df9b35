"""Products of rows with the matrices of experts, one of several for each row (mixtures of experts).

The matrices [K, N] of all experts lie beside each other, [K, experts * N], those of the first one first; so
do blocks of weights, and biases [experts * N].
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from qglow.core.types import Array
from qglow.numerics.blocks import apart, gemm_blocks
from qglow.numerics.linear import gemm_float, product_in_order


def gemm_experts(
    x: Array, w: Array, experts: Array, count: int, bias: Array | None, in_order: bool = False
) -> Array:
    """float32 x [..., K] times the matrix of each row's expert, plus its bias.

    experts: integers [...], see `chosen_experts`. in_order: whether sums are in the order of K instead of
    numpy's.
    """
    multiply = product_in_order if in_order else gemm_float

    def product(rows: Array, part: slice) -> Array:
        result = multiply(rows, np.ascontiguousarray(w[:, part]))
        return result if bias is None else np.asarray(result + bias[part], np.float32)

    return _by_experts(x, experts, count, w.shape[1] // count, product)


def gemm_expert_blocks(
    x: Array,
    packed: Array,
    scales: Array,
    experts: Array,
    count: int,
    zero_points: Array | None,
    bias: Array | None,
    bits: int,
    block: int,
    lo: float = -math.inf,
    hi: float = math.inf,
) -> Array:
    """The same with weights in blocks, by the order of `gemm_blocks`, within the bounds."""
    points = None if zero_points is None else apart(zero_points, bits, len(scales))

    def product(rows: Array, part: slice) -> Array:
        own, factors = (np.ascontiguousarray(array[:, part]) for array in (packed, scales))
        zeros = None if points is None else np.ascontiguousarray(points[:, part])
        terms = None if bias is None else bias[part]
        return gemm_blocks(rows, own, factors, zeros, terms, bits, block, lo, hi)

    return _by_experts(x, experts, count, scales.shape[1] // count, product)


def chosen_experts(indices: Array, count: int) -> Array:
    """Indices of `count` experts, where negative ones count from the end, and far ones are the nearest."""
    wide = np.asarray(indices, np.int64).reshape(-1)
    return np.clip(np.where(wide < 0, wide + count, wide), 0, count - 1)


def _by_experts(
    x: Array, experts: Array, count: int, columns: int, product: Callable[[Array, slice], Array]
) -> Array:
    """float32 [..., columns]; product: that of some rows and the columns in a slice of all experts'."""
    rows, chosen = np.asarray(x, np.float32).reshape(-1, x.shape[-1]), chosen_experts(experts, count)
    result = np.zeros((len(rows), columns), np.float32)
    for number in range(count):
        own = chosen == number
        if np.any(own):
            result[own] = product(rows[own], slice(number * columns, (number + 1) * columns))
    return result.reshape(*x.shape[:-1], columns)

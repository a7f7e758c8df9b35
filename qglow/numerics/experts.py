"""Products of rows with the matrices of experts, one of several for each row (mixtures of experts).

The matrices [K, N] of all experts lie beside each other, [K, experts * N], those of the first one first; so
do blocks of weights, and biases [experts * N].
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from qglow.core.types import Array
from qglow.numerics.blocks import apart, gemm_blocks, gemm_integer_blocks
from qglow.numerics.linear import gemm_float, product_in_order


def gemm_experts(
    x: Array, w: Array, experts: Array, count: int, bias: Array | None, in_order: bool = False
) -> Array:
    """float32 x [..., K] times the matrix of each row's expert, plus its bias.

    experts: integers [...], see `chosen_experts`. in_order: whether sums are in the order of K instead of
    numpy's.
    """
    multiply = product_in_order if in_order else gemm_float

    def product(own: Array, part: slice) -> Array:
        result = multiply(rows[own], np.ascontiguousarray(w[:, part]))
        return result if bias is None else np.asarray(result + bias[part], np.float32)

    rows = np.asarray(x, np.float32).reshape(-1, x.shape[-1])
    return _by_experts(experts, count, w.shape[1] // count, product)


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
    row_scales: Array | None = None,
) -> Array:
    """The same with weights in blocks, by the order of `gemm_blocks`, within the bounds.

    With row_scales [..., 1] x are integers of rows, and the order is that of `gemm_integer_blocks`.
    """
    points = None if zero_points is None else apart(zero_points, bits, len(scales))

    def product(own: Array, part: slice) -> Array:
        codes, factors = (np.ascontiguousarray(array[:, part]) for array in (packed, scales))
        zeros = None if points is None else np.ascontiguousarray(points[:, part])
        terms = None if bias is None else bias[part]
        operands, form = (codes, factors, zeros, terms), (bits, block, lo, hi)
        if by_rows is not None:
            return gemm_integer_blocks(rows[own], by_rows[own], *operands, *form)
        return gemm_blocks(rows[own], *operands, *form)

    rows = x.reshape(-1, x.shape[-1])
    by_rows = None if row_scales is None else row_scales.reshape(-1, 1)
    return _by_experts(experts, count, scales.shape[1] // count, product)


def chosen_experts(indices: Array, count: int) -> Array:
    """Indices of `count` experts, where negative ones count from the end, and far ones are the nearest."""
    wide = np.asarray(indices, np.int64).reshape(-1)
    return np.clip(np.where(wide < 0, wide + count, wide), 0, count - 1)


def _by_experts(experts: Array, count: int, columns: int, product: Callable[[Array, slice], Array]) -> Array:
    """float32 [..., columns]; product: that of the rows in a mask and a slice of all experts' columns."""
    chosen = chosen_experts(experts, count)
    result = np.zeros((len(chosen), columns), np.float32)
    for number in range(count):
        own = chosen == number
        if np.any(own):
            result[own] = product(own, slice(number * columns, (number + 1) * columns))
    return result.reshape(*experts.shape, columns)

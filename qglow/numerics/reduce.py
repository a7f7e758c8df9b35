"""Reductions over axes: sums, means, products, largest and smallest elements; and running sums.

See the ONNX operators CumSum, ReduceSum, ReduceMean, ReduceProd, ReduceMax, ReduceMin.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from qglow.core.types import Array, Quantization
from qglow.numerics.integers import quotient
from qglow.numerics.pool import average_multiplier
from qglow.numerics.reductions import PARTIAL_SUMS, interleaved_sum
from qglow.numerics.requantize import requantize


def interleaved_product(x: Array, axis: int = -1) -> Array:
    """Float32 product along `axis`, in the order of `interleaved_sum`, partial products from 1.0."""
    rows = np.moveaxis(np.asarray(x, np.float32), axis, -1)
    lanes = np.ones((*rows.shape[:-1], PARTIAL_SUMS), np.float32)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        for start in range(0, rows.shape[-1], PARTIAL_SUMS):
            chunk = rows[..., start : start + PARTIAL_SUMS]
            lanes[..., : chunk.shape[-1]] *= chunk
        while lanes.shape[-1] > 1:
            half = lanes.shape[-1] // 2
            lanes = lanes[..., :half] * lanes[..., half:]
    return lanes[..., 0]


def running_sum(x: Array, axis: int, exclusive: bool = False, reverse: bool = False) -> Array:
    """Sums of the elements up to each place of an axis, added one by one; of floats or integers.

    exclusive: up to the place before, so that the first sum is 0. reverse: from the end of the axis.
    Integers wrap around.
    """
    rows = np.moveaxis(np.asarray(x), axis, -1)
    rows = rows[..., ::-1] if reverse else rows
    if exclusive:
        rows = np.concatenate([np.zeros((*rows.shape[:-1], 1), rows.dtype), rows], -1)[..., :-1]
    with np.errstate(over="ignore", invalid="ignore"):
        sums = np.add.accumulate(rows, axis=-1, dtype=rows.dtype)
    return np.moveaxis(sums[..., ::-1] if reverse else sums, -1, axis)


KINDS = ("sum", "mean", "max", "min", "prod")


def reduce(x: Array, kind: str, axes: Sequence[int], keepdims: bool = True) -> Array:
    """One of KINDS over axes together, their elements in row-major order; of floats or integers.

    Sums of nothing are 0, products 1, the largest and smallest of nothing are those of the type
    that never win. NaN wins every maximum and minimum. A mean of integers loses its fraction.
    """
    x = np.asarray(x)
    reduced = sorted(axis % x.ndim for axis in axes)
    kept = [axis for axis in range(x.ndim) if axis not in reduced]
    outer = tuple(x.shape[axis] for axis in kept)
    rows = x.transpose(*kept, *reduced).reshape(*outer, math.prod(x.shape[a] for a in reduced))
    result = _REAL[kind](rows) if x.dtype == np.float32 else _INTEGER[kind](rows).astype(x.dtype)
    shape = tuple(1 if axis in reduced else n for axis, n in enumerate(x.shape))
    return np.asarray(result).reshape(shape if keepdims else outer)


def _mean(rows: Array) -> Array:
    with np.errstate(all="ignore"):
        return np.asarray(interleaved_sum(rows) / np.float32(rows.shape[-1]))


def _whole_mean(rows: Array) -> Array:
    count = np.array(max(rows.shape[-1], 1), rows.dtype)
    return quotient(np.asarray(np.sum(rows, axis=-1).astype(rows.dtype)), count)


_REAL: dict[str, Callable[[Array], Array]] = {
    "sum": interleaved_sum,
    "mean": _mean,
    "max": lambda rows: np.max(rows, axis=-1, initial=np.float32(-np.inf)),
    "min": lambda rows: np.min(rows, axis=-1, initial=np.float32(np.inf)),
    "prod": interleaved_product,
}
_INTEGER: dict[str, Callable[[Array], Array]] = {
    "sum": lambda rows: np.sum(rows, axis=-1),
    "mean": _whole_mean,
    "max": lambda rows: np.max(rows, axis=-1, initial=_end(rows, "min")),
    "min": lambda rows: np.min(rows, axis=-1, initial=_end(rows, "max")),
    "prod": lambda rows: np.prod(rows, axis=-1),
}


def _end(rows: Array, which: str) -> Any:
    """The smallest or largest value of an integer or boolean type."""
    if rows.dtype == np.bool_:
        return which == "max"
    return getattr(np.iinfo(rows.dtype), which)


def mean_int8(x: Array, x_quant: Quantization, y_quant: Quantization, axes: Sequence[int]) -> Array:
    """Rule 6 for averages: the exact sum of `q - zp` times `s_x / (s_y * count)`; axes stay with extent 1."""
    centred = np.asarray(x).astype(np.int64) - x_quant.zero_point
    total = np.sum(centred, axis=tuple(axes), keepdims=True)
    count = np.array(math.prod(x.shape[axis] for axis in axes))
    return requantize(total, average_multiplier(x_quant, y_quant, count), y_quant)

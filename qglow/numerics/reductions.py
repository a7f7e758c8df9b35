"""Float32 sums in an order that vector code can keep (rule 9 of the numeric contract)."""

from __future__ import annotations

import numpy as np

from qglow.core.types import Array

PARTIAL_SUMS = 16


def interleaved_sum(x: Array, axis: int = -1) -> Array:
    """Float32 sum along `axis`; the axis is gone from the result.

    Element i is added to partial sum i mod 16, ascending, each starting from +0.0; then lane
    j takes lane j + 8, the eight left take j + 4, then j + 2, then j + 1. A position that
    holds no element may be skipped or added as 0.0: the bits are the same.
    """
    rows = np.moveaxis(np.asarray(x, np.float32), axis, -1)
    lanes = np.zeros((*rows.shape[:-1], PARTIAL_SUMS), np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        for start in range(0, rows.shape[-1], PARTIAL_SUMS):
            chunk = rows[..., start : start + PARTIAL_SUMS]
            lanes[..., : chunk.shape[-1]] += chunk
        return pairwise_tree(lanes)


def pairwise_tree(lanes: Array) -> Array:
    """Sum of the last axis (a power of two long): the upper half onto the lower until one is left."""
    while lanes.shape[-1] > 1:
        half = lanes.shape[-1] // 2
        lanes = lanes[..., :half] + lanes[..., half:]
    return lanes[..., 0]

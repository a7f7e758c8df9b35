"""Scales, zero points and codes of weights in blocks along K (rule 12 of the numeric contract)."""

from __future__ import annotations

import numpy as np

from qglow.core.types import Array
from qglow.numerics.blocks import middle

LEAST_SCALE = 2.0**-100
"""Least scale of a block: that of zeros too."""
LEAST_FLOAT16, LARGEST_FLOAT16 = np.float32(2.0**-24), np.float32(65504.0)
"""Least and largest positive numbers of float16."""


def block_range(w: Array, block: int) -> tuple[Array, Array]:
    """Least and largest weights of blocks, float64 [blocks, N], at most and at least 0."""
    starts = np.arange(0, len(w), block)
    low, high = (extreme.reduceat(w, starts, axis=0) for extreme in (np.minimum, np.maximum))
    return np.minimum(low.astype(np.float64), 0.0), np.maximum(high.astype(np.float64), 0.0)


def block_parameters(
    low: Array, high: Array, bits: int, symmetric: bool, fraction: float = 1.0, float16: bool = False
) -> tuple[Array, Array]:
    """Scales float32 and zero points uint8 of blocks with these ranges [blocks, N], for a fraction of them.

    float16: whether scales are numbers of that type.
    """
    if symmetric:
        extent, steps = np.maximum(-low, high), middle(bits) - 1
    else:
        extent, steps = high - low, (1 << bits) - 1
    scales = storable_scales(np.maximum(fraction * extent / steps, LEAST_SCALE), float16)
    if symmetric:
        return scales, np.full(scales.shape, middle(bits), np.uint8)
    return scales, np.clip(np.rint(-low * fraction / scales), 0, steps).astype(np.uint8)


def storable_scales(scales: Array, float16: bool) -> Array:
    """The nearest float32, or with `float16` the nearest of that type, widened; none is 0 or infinite."""
    nearest = scales.astype(np.float32)
    if not float16:
        return nearest
    return np.clip(nearest, LEAST_FLOAT16, LARGEST_FLOAT16).astype(np.float16).astype(np.float32)


def spread(parameters: Array, block: int, depth: int) -> Array:
    """One parameter for each of K weights, from one for each block."""
    return np.repeat(parameters, block, axis=0)[:depth]


def codes_of(w: Array, scales: Array, zeros: Array, bits: int) -> Array:
    """Nearest codes of weights: `round_half_even(w / scale) + zero point`, in float32, within the range."""
    nearest = np.rint(np.asarray(w, np.float32) / scales)
    # Far beyond the codes nothing but the side matters.
    near = np.clip(nearest, -(1 << 15), 1 << 15).astype(np.int32)
    return np.asarray(np.clip(near + zeros, 0, (1 << bits) - 1).astype(np.uint8))


def squared_errors(w: Array, scales: Array, zeros: Array, bits: int, block: int) -> Array:
    """Squared errors float64 [blocks, N] of weights with the codes that these parameters give."""
    steps, points = spread(scales, block, len(w)), spread(zeros, block, len(w))
    found = (codes_of(w, steps, points, bits) - points.astype(np.float64)) * steps
    return np.asarray(np.add.reduceat(np.square(found - w), np.arange(0, len(w), block), axis=0))

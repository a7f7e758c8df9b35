"""Scales and zero points of weights in blocks by half-quadratic splitting, without any data (HQQ).

The method is that of H. Badri and A. Shaji, "Half-Quadratic Quantization of Large Machine Learning Models"
(2023): what rounding adds to a block is split into a few large errors, which a shrinkage keeps apart, and the
rest, which parameters are fitted to. Here the scale is fitted too, zero points stay integers, and parameters
are taken only where they lower the squared error of the block.
"""

from __future__ import annotations

import numpy as np

from qglow.core.types import Array
from qglow.numerics.block_codes import LEAST_SCALE, spread, squared_errors, storable_scales

POWER = 0.7
"""Power of the error that the shrinkage minimises: below 1, so that few errors are large."""
SHARPNESS, SHARPER = 10.0, 1.01
"""How closely the errors kept apart follow all errors, in steps, and its growth from round to round."""
ROUNDS = 20


def refined_parameters(
    w: Array, scales: Array, zeros: Array, bits: int, block: int, symmetric: bool, float16: bool
) -> tuple[Array, Array]:
    """Scales float32 and zero points uint8 [blocks, N] of w [K, N], from those that rounding begins with.

    A block keeps what it has where no round lowers its squared error.
    """
    exact, starts = np.asarray(w, np.float64), np.arange(0, len(w), block)
    counts = np.diff(np.append(starts, len(w)))[:, None]
    largest, depth = (1 << bits) - 1, len(w)
    step, point = scales.astype(np.float64), zeros.astype(np.float64)
    least = squared_errors(w, scales, zeros, bits, block)
    sharpness = SHARPNESS
    for _ in range(ROUNDS):
        steps = spread(step, block, depth)
        codes = np.clip(np.rint(exact / steps + spread(point, block, depth)), 0, largest)
        errors = exact / steps - (codes - spread(point, block, depth))
        fitted = exact - _shrunk(errors, sharpness) * steps
        if not symmetric:
            point = np.add.reduceat(codes - fitted / steps, starts, axis=0) / counts
        centred = codes - spread(point, block, depth)
        power = np.add.reduceat(np.square(centred), starts, axis=0)
        overlap = np.add.reduceat(centred * fitted, starts, axis=0)
        step = np.where((power > 0.0) & (overlap > 0.0), overlap / np.maximum(power, LEAST_SCALE), step)
        step = np.maximum(step, LEAST_SCALE)
        tried = storable_scales(step, float16), np.clip(np.rint(point), 0, largest).astype(np.uint8)
        error = squared_errors(w, *tried, bits, block)
        better, least = error < least, np.minimum(error, least)
        scales, zeros = (np.where(better, new, old) for new, old in zip(tried, (scales, zeros), strict=True))
        sharpness *= SHARPER
    return scales, zeros


def _shrunk(errors: Array, sharpness: float) -> Array:
    """Errors that are kept apart: each nearer to 0 by `|e|^(POWER - 1) / sharpness`, and 0 beyond it."""
    sizes = np.abs(errors)
    shrinkage = np.maximum(sizes, LEAST_SCALE) ** (POWER - 1.0) / sharpness
    return np.asarray(np.sign(errors) * np.maximum(sizes - shrinkage, 0.0))

"""Rounding of weights to codes in blocks, with scales and zero points of least error."""

from __future__ import annotations

import itertools

import numpy as np

from qglow.core.types import Array
from qglow.numerics.block_codes import block_parameters, block_range, codes_of, spread, squared_errors
from qglow.numerics.blocks import block_count
from qglow.numerics.half_quadratic import refined_parameters

FRACTIONS = np.linspace(1.0, 0.6, 21)
"""Scales that are tried for weights of few bits, as fractions of the one that reaches the largest weight."""


AT_ONCE = 1 << 15
"""Weights whose scales are tried at once: few enough to stay in a cache."""


def quantize_blocks(
    w: Array, bits: int, block: int, symmetric: bool, float16: bool = False, refined: bool = False
) -> tuple[Array, Array, Array | None]:
    """Codes uint8 [K, N], scales [blocks, N] and zero points uint8, None if symmetric, of w [K, N].

    symmetric: the scale is at most `max|w| / (2^(bits - 1) - 1)`. Else codes cover the range of the block and
    0: the scale is at most its extent over `2^bits - 1`, and the zero point the nearest code of 0. With fewer
    than 8 bits each block has the fraction of that scale with the least squared error of its weights; of
    equal ones the largest. Scales are float32 of at least 2^-100, or with `float16` the nearest of that type
    from 2^-24 to 65504; each weight has the code that is nearest with its scale as it is stored.

    refined: whether scales and zero points are then fitted by half-quadratic splitting.
    """
    depth, columns = w.shape
    codes = np.empty((depth, columns), np.uint8)
    scales = np.empty((block_count(depth, block), columns), np.float16 if float16 else np.float32)
    zeros = np.empty(scales.shape, np.uint8)
    width = max(1, min(columns, AT_ONCE // block))
    rows = max(1, AT_ONCE // (block * width)) * block
    for start, first in itertools.product(range(0, depth, rows), range(0, columns, width)):
        part, across = slice(start, start + rows), slice(first, first + width)
        own = slice(start // block, (start + rows) // block)
        codes[part, across], scales[own, across], zeros[own, across] = _quantized_part(
            w[part, across], bits, block, symmetric, float16, refined
        )
    return codes, scales, None if symmetric else zeros


def _quantized_part(
    w: Array, bits: int, block: int, symmetric: bool, float16: bool, refined: bool
) -> tuple[Array, Array, Array]:
    """Codes, scales in float32 and zero points of some whole blocks."""
    low, high = block_range(w, block)
    least = np.full(low.shape, np.inf)
    scales, zeros = block_parameters(low, high, bits, symmetric, float16=float16)
    for fraction in FRACTIONS if bits < 8 else ():
        tried = block_parameters(low, high, bits, symmetric, fraction, float16)
        error = squared_errors(w, *tried, bits, block)
        better = error < least
        least = np.where(better, error, least)
        scales, zeros = (np.where(better, new, old) for new, old in zip(tried, (scales, zeros), strict=True))
    if refined:
        scales, zeros = refined_parameters(w, scales, zeros, bits, block, symmetric, float16)
    codes = codes_of(w, spread(scales, block, len(w)), spread(zeros, block, len(w)), bits)
    return codes, scales, zeros

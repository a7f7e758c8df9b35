"""Packing of weights in blocks for products of integers: words of codes, and their sums.

A word holds 32 bits of one column: byte i has, in its lowest bits, the code of k = i of the first step of
four, above it that of the next step, and so on. A shift and a mask leave the bytes of one step.
"""

from __future__ import annotations

import numpy as np

from qglow.core.types import Array
from qglow.instructions.ops.experts import AnyBlockGemm

STEP = 4
"""Elements along K that one step of a tile multiplies."""


def integer_words(codes: Array, bits: int, last: Array) -> Array:
    """uint32 [words, N] of codes [K, N] in this module's order; `last` fills them up."""
    steps, (depth, columns) = 8 // bits, codes.shape
    each = steps * STEP
    filled = np.empty((-(-depth // each) * each, columns), np.uint32)
    filled[:depth], filled[depth:] = codes, last
    parts = filled.reshape(-1, steps, STEP, columns)
    words = np.zeros((len(parts), columns), np.uint32)
    for step in range(steps):
        for byte in range(STEP):
            words |= parts[:, step, byte] << np.uint32(8 * byte + bits * step)
    return words


def block_sums(codes: Array, subtracted: Array, block: int) -> Array:
    """int32 [blocks, N] of codes [K, N] less what is subtracted from each, [blocks or 1, N]."""
    starts = np.arange(0, len(codes), block)
    lengths = np.diff(np.append(starts, len(codes)))[:, None]
    summed = np.add.reduceat(codes, starts, axis=0, dtype=np.int32)
    return np.asarray(summed - lengths * subtracted, np.int32)


def short_sums(operation: AnyBlockGemm, split: bool) -> bool:
    """Whether the sums of blocks have 16 bits: those of 256 codes of 8 bits do if these are less 128."""
    largest = (1 << operation.bits) - 1
    return split or largest * operation.block < 1 << 15

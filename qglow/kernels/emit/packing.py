"""Places of the columns of a matrix in packed constants, where look-ups find them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qglow.core.types import Array, ElementType
from qglow.numerics.half import store_exactly

WORD_BYTES = 4
STEP = 4
"""Elements along K that one step of a tile of integers multiplies."""
HIGHEST_BITS = 0x80808080
"""The highest bit of each byte of a word."""


@dataclass(frozen=True)
class ColumnPacking:
    """Panels of columns one after the other, each with its rows one after the other.

    The first `count` panels have `wide` columns, the others `narrow`. A row of a panel holds a word for each
    column: an element of several bytes, or four rows of bytes. bits: width of codes whose bytes are in the
    order of steps, as tiles of integers read them; 0 where bytes are in order. flipped: whether the highest
    bit of each byte is another one than where the matrix is stored as it is. weights: name of the type of 16
    bits that elements of a float32 matrix are stored in, which holds them; "" for their own.
    """

    wide: int
    count: int
    narrow: int = 0
    bits: int = 0
    flipped: bool = False
    weights: str = ""

    def fits(self, matrix: Array) -> bool:
        """Whether words of a matrix are whole."""
        return matrix.ndim == 2 and len(matrix) % bytes_together(matrix) == 0

    def pack(self, matrix: Array) -> Array:
        """The words of a matrix that `fits`, as unsigned integers, columns filled up with zeros."""
        if self.weights:
            matrix = store_exactly(matrix, ElementType(self.weights))
        rows, columns = matrix.shape
        each = bytes_together(matrix)
        apart = np.ascontiguousarray(matrix.reshape(rows // each, each, columns).transpose(0, 2, 1))
        words = apart.view(f"u{each * matrix.itemsize}").reshape(rows // each, columns)
        if self.bits:
            words = self._in_steps(words)
        if self.flipped:
            words = words ^ np.uint32(HIGHEST_BITS)
        first = self.wide * self.count
        parts = [panels(words[:, :first], self.wide)]
        if columns > first:
            parts.append(panels(words[:, first:], self.narrow))
        return np.concatenate([part.reshape(-1) for part in parts])

    def places(self) -> list[tuple[int, int]]:
        """Lowest bits of each code of a word: in order, and as steps have it."""
        return [
            (self.bits * code, 8 * (code % STEP) + self.bits * (code // STEP))
            for code in range(8 * WORD_BYTES // self.bits)
        ]

    def _in_steps(self, words: Array) -> Array:
        mask, found = np.uint32((1 << self.bits) - 1), np.zeros_like(words)
        for ordered, stepped in self.places():
            found |= (words >> np.uint32(ordered) & mask) << np.uint32(stepped)
        return found


def bytes_together(matrix: Array) -> int:
    """Rows of a matrix that share a word."""
    return WORD_BYTES if matrix.itemsize == 1 else 1


def panels(rows: Array, width: int) -> Array:
    """[R, N] in the order [panels, R, width]; the last panel is filled up with zeros."""
    count, columns = rows.shape
    number = -(-columns // width)
    filled = np.pad(rows, ((0, 0), (0, number * width - columns)))
    return np.ascontiguousarray(filled.reshape(count, number, width).transpose(1, 0, 2))

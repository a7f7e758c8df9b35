"""Constant integers with parameters in blocks, as a model has them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from qglow.core.types import Array, Shape
from qglow.numerics.blocks import block_fault

Derived = Callable[[Hashable, Sequence[Array], Callable[[], Array]], Array]
"""Gives what a function computes from arrays in the stated way."""


@dataclass(frozen=True)
class WeightBlocks:
    """Codes of a matrix, and scales and zero points of every `block` of them along `axis`.

    codes: uint8. zero_points: uint8, or None for the middle of the codes.
    """

    codes: Array
    scales: Array
    zero_points: Array | None
    bits: int
    block: int
    axis: int

    @property
    def shape(self) -> Shape:
        """Extents of the matrix."""
        return self.codes.shape

    @property
    def is_product(self) -> bool:
        """Whether a product can sum over the blocks: they lie along the first axis of the right operand."""
        return self.axis == 0 and block_fault(self.bits, self.block) is None

    def transposed(self, derived: Derived) -> WeightBlocks:
        """The same of the transposed matrix; `derived` is that of the import's context."""

        def turned(array: Array) -> Array:
            return derived("transposed", [array], lambda: np.ascontiguousarray(array.T))

        zeros = None if self.zero_points is None else turned(self.zero_points)
        codes, scales = turned(self.codes), turned(self.scales)
        return replace(self, codes=codes, scales=scales, zero_points=zeros, axis=1 - self.axis)

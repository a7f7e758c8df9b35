"""Micro-kernel tile of int8 that multiplies one widened byte of a pixel with a vector of widened weights.

For vector units that add products of 16 bits to sums of 32, one for each lane, where an operand is an element
of a register or a number (smlal of NEON, vwmacc of RISC-V).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import ClassVar

import numpy as np

from qglow.core.errors import InternalError
from qglow.core.types import Array
from qglow.kernels.emit.builder import I8, I16, Value, vec
from qglow.kernels.emit.emitter import Emitter
from qglow.kernels.emit.tiles import Tile
from qglow.kernels.tiles.tile import MicroTile


@dataclass(frozen=True)
class WordTile(MicroTile):
    """Tile of a multiplication of one product a lane (k = 1). Activations are signed, without a bias.

    Where an operand may be an element of a register, a step of a pixel is widened there at once, and weights
    are loaded for two elements at a time; else each byte of a pixel is a number of its own.
    """

    multiply: Tile

    step: ClassVar[int] = 8

    @property
    def weight_bytes(self) -> int:
        """An int16 for each byte of a step and channel."""
        return 2 * self.step * self.lanes

    @property
    def portions(self) -> int:
        """One for each byte of a step."""
        return self.step

    def most_pixels(self, vectors: int) -> int:
        """Most pixels: registers also hold the weights of a byte, and a step of each pixel if any."""
        held = 1 if self.multiply.by_element else 0
        return max(1, (self.registers - vectors) // (vectors + held))

    def step_cycles(self, pixels: int, vectors: int) -> float:
        """Estimated cycles: products, loads and widening, one after the other."""
        model, products = self.model, self.step * pixels * vectors
        activations = 2 * pixels if self.multiply.by_element else self.step * pixels
        weights = self.step * vectors * (0.5 if self.multiply.by_element else 1.0)
        return products / model.products_a_cycle + (activations + weights) / model.loads_a_cycle

    def pack(self, filters: Array) -> Array:
        """Widen weights to 16 bits, those of all lanes for one byte side by side."""
        vectors, steps = filters.shape[:2]
        wide = np.ascontiguousarray(filters.astype(np.int16).transpose(0, 1, 3, 2))
        return wide.view(np.uint8).reshape(vectors, steps, self.weight_bytes)

    def load_activation(self, e: Emitter, pointer: Value) -> tuple[Value, ...]:
        """Load a step of a pixel as 16-bit numbers, each in all lanes."""
        if not self.multiply.by_element:
            loaded = (e.load(e.offset(pointer, place), I8) for place in range(self.step))
            return tuple(e.splat(e.b.sext(byte, I16), self.lanes) for byte in loaded)
        row = e.b.sext(e.load(pointer, vec(I8, self.step), align=1), vec(I16, self.step))
        return tuple(e.shuffle(row, None, [place] * self.lanes) for place in range(self.step))

    def load_weights(self, e: Emitter, pointer: Value) -> tuple[Value, ...]:
        """Load the weights of one vector of channels for every byte of a step."""
        return tuple(self._weights(e, pointer))

    def _weights(self, e: Emitter, pointer: Value) -> Iterator[Value]:
        size = 2 * self.lanes
        for place in range(self.step):
            at = e.offset(pointer, place * size)
            if not self.multiply.by_element:
                yield e.load(at, vec(I16, self.lanes), align=size)
            elif place % 2 == 0:
                both = e.load(at, vec(I16, 2 * self.lanes), align=2 * size)
                yield e.shuffle(both, None, range(self.lanes))
                yield e.shuffle(both, None, range(self.lanes, 2 * self.lanes))

    def accumulate(
        self, e: Emitter, total: Value, activation: tuple[Value, ...], weights: tuple[Value, ...]
    ) -> Value:
        """Raise InternalError: steps are emitted byte by byte for all sums."""
        raise InternalError("words are multiplied for all sums of a tile in turn")

    def add_step(
        self, e: Emitter, src: Value, weights: Value, offsets: tuple[int, ...], sums: list[Value]
    ) -> list[Value]:
        """Emit one step: every byte of every pixel times every vector of channels."""
        vectors, result = len(sums) // len(offsets), list(sums)
        loaded = [self.load_weights(e, e.offset(weights, v * self.weight_bytes)) for v in range(vectors)]
        rows = [self.load_activation(e, e.offset(src, offset)) for offset in offsets]
        for place, (number, row) in product(range(self.step), enumerate(rows)):
            for v, weight in enumerate(loaded, number * vectors):
                result[v] = self.multiply.add(e, result[v], weight[place], row[place])
        return result

"""Micro-kernel tiles of int8 whose steps are wider than four bytes of a pixel.

A multiplication may add up all products of a register, or those of two pixels and two channels, or take one
element of a register. Where sums are no vectors of channels, they become such when a tile is complete.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from qglow.core.errors import InternalError
from qglow.core.types import Array
from qglow.kernels.emit.builder import I8, I32, I64, Value, poison, vec
from qglow.kernels.emit.emitter import Emitter
from qglow.kernels.emit.target import VectorTarget
from qglow.kernels.emit.tiles import Tile
from qglow.kernels.tiles.tile import ByteTile, MicroTile, constant_tile
from qglow.kernels.tiles.words import WordTile

REGISTER = 16
"""Bytes of a register of 128 bits."""
MATRIX_PIXELS = 4
"""Most pixels of a tile of a matrix product."""


@dataclass(frozen=True)
class WideTile(ByteTile):
    """Tile of a multiplication that takes registers of weights, each of one or two channels."""

    multiply: Tile

    @property
    def weight_bytes(self) -> int:
        """Bytes of a step for each channel."""
        return self.step * self.lanes

    def accumulate(
        self, e: Emitter, total: Value, activation: tuple[Value, ...], weights: tuple[Value, ...]
    ) -> Value:
        """Raise InternalError: steps are emitted whole."""
        raise InternalError(f"{self.multiply.name} multiplies no lanes of channels")

    @property
    @abstractmethod
    def registers_of_weights(self) -> int:
        """Registers of weights of one vector of channels in a step."""

    def load_weights(self, e: Emitter, pointer: Value) -> tuple[Value, ...]:
        """Load registers of signed bytes."""
        places = [REGISTER * number for number in range(self.registers_of_weights)]
        return tuple(e.load(e.offset(pointer, place), vec(I8, REGISTER), align=REGISTER) for place in places)


@dataclass(frozen=True)
class AcrossTile(WideTile):
    """Tile of a multiplication that adds all products of a register to one number (m = n = 1, k = 16).

    Sums are scalars, in the order [pixel][vector][lane].
    """

    step: ClassVar[int] = REGISTER
    most_vectors: ClassVar[int] = 1

    @property
    def registers_of_weights(self) -> int:
        """One for each channel."""
        return self.lanes

    def most_pixels(self, vectors: int) -> int:
        """One pixel: sums are scalars, of which there are few registers."""
        return 1

    def step_cycles(self, pixels: int, vectors: int) -> float:
        """Estimated cycles: loads and products, one after the other."""
        sums = pixels * vectors * self.lanes
        loads = pixels + vectors * self.lanes
        return sums / self.model.products_a_cycle + loads / self.model.loads_a_cycle

    def start(self, e: Emitter, bias: Sequence[Value], pixels: int) -> list[Value]:
        """Take the lanes of the biases as scalars."""
        lanes = [e.extract(vector, lane) for vector in bias for lane in range(self.lanes)]
        return lanes * pixels

    def finish(self, e: Emitter, sums: list[Value], pixels: int) -> list[Value]:
        """Collect scalars to vectors."""
        found = []
        for first in range(0, len(sums), self.lanes):
            vector: Value = poison(vec(I32, self.lanes))
            for lane in range(self.lanes):
                vector = e.insert(vector, sums[first + lane], lane)
            found.append(vector)
        return found

    def add_step(
        self, e: Emitter, src: Value, weights: Value, offsets: tuple[int, ...], sums: list[Value]
    ) -> list[Value]:
        """Emit one step: every pixel times every channel."""
        channels = len(sums) // len(offsets)
        loaded: list[Value] = []
        for first in range(0, channels, self.lanes):
            loaded += self.load_weights(e, e.offset(weights, first * self.step))
        result = []
        for number, offset in enumerate(offsets):
            activation = e.load(e.offset(src, offset), vec(I8, REGISTER))
            for channel in range(channels):
                total = sums[number * channels + channel]
                result.append(self.multiply.add(e, total, activation, loaded[channel]))
        return result


@dataclass(frozen=True)
class PortionTile(WideTile):
    """Tile of a multiplication that takes the bytes of a step in portions, of which a register holds several.

    `portion`: bytes of a pixel that one multiplication takes. Weights are stored portion by portion.
    """

    step: ClassVar[int] = REGISTER
    portion: ClassVar[int]

    @property
    def portions(self) -> int:
        """Portions of a step."""
        return self.step // self.portion

    @property
    def registers_of_weights(self) -> int:
        """Registers of every portion, for all lanes."""
        return self.weight_bytes // REGISTER

    def pack(self, filters: Array) -> Array:
        """Put the bytes of a portion of each channel side by side."""
        vectors, steps, lanes, _ = filters.shape
        parts = filters.reshape(vectors, steps, lanes, self.portions, self.portion).transpose(0, 1, 3, 2, 4)
        return np.ascontiguousarray(parts, np.int8).view(np.uint8).reshape(vectors, steps, self.weight_bytes)

    def step_cycles(self, pixels: int, vectors: int) -> float:
        """Estimated cycles: the most of what products, loads and the latency of one sum take."""
        model, products = self.model, self._products(pixels, vectors)
        waiting = model.chain_wait * max(0, model.enough_chains - products)
        loading = (pixels + vectors * self.portions) / model.loads_a_cycle
        each = max(model.chain_cycles, products / model.products_a_cycle + waiting)
        return max(self.portions * each, loading)

    @abstractmethod
    def _products(self, pixels: int, vectors: int) -> int:
        """Multiplications of one portion."""

    def _portions_of_weights(self, e: Emitter, weights: Value, vectors: int) -> list[list[Value]]:
        """Load the weights of a step: for every portion the registers of all vectors."""
        loaded = [self.load_weights(e, e.offset(weights, v * self.weight_bytes)) for v in range(vectors)]
        each = self.registers_of_weights // self.portions
        return [
            [register for vector in loaded for register in vector[number * each : (number + 1) * each]]
            for number in range(self.portions)
        ]


@dataclass(frozen=True)
class ElementTile(PortionTile):
    """Tile of a dot product with one element of a register, which holds four steps of a pixel.

    So a register of a pixel is loaded once, and no element is broadcast.
    """

    portion: ClassVar[int] = 4

    def most_pixels(self, vectors: int) -> int:
        """Most pixels: registers also hold the weights of a portion and a pixel each."""
        return max(1, (self.registers - vectors) // (vectors + 1))

    def _products(self, pixels: int, vectors: int) -> int:
        return pixels * vectors

    def add_step(
        self, e: Emitter, src: Value, weights: Value, offsets: tuple[int, ...], sums: list[Value]
    ) -> list[Value]:
        """Emit one step: every element of every pixel times every vector of channels."""
        vectors, result = len(sums) // len(offsets), list(sums)
        loaded = self._portions_of_weights(e, weights, vectors)
        rows = [e.load(e.offset(src, offset), vec(I32, self.portions)) for offset in offsets]
        for number, registers in enumerate(loaded):
            for pixel, row in enumerate(rows):
                element = e.b.bitcast(e.shuffle(row, None, [number] * self.lanes), vec(I8, REGISTER))
                for place, register in enumerate(registers, pixel * vectors):
                    result[place] = self.multiply.add(e, result[place], register, element)
        return result


@dataclass(frozen=True)
class MatrixTile(PortionTile):
    """Tile of a multiplication of eight bytes of two pixels with those of two channels (m = n = 2, k = 8).

    A sum is a register of both pixels and both channels, in the order [pair of pixels][vector][pair of
    channels]. An odd last pixel is multiplied twice.
    """

    portion: ClassVar[int] = 8

    def most_pixels(self, vectors: int) -> int:
        """Most pixels: registers also hold a step of every pixel and the weights of a portion.

        No more than four: with as many vectors, whole registers of results are stored.
        """
        pairs = (self.registers - 2 * vectors - 2) // (2 * vectors + 2)
        return max(1, min(2 * pairs, MATRIX_PIXELS))

    def _products(self, pixels: int, vectors: int) -> int:
        return 2 * -(-pixels // 2) * vectors

    @property
    def _channels(self) -> range:
        """The first channel of each pair in a vector."""
        return range(0, self.lanes, 2)

    def start(self, e: Emitter, bias: Sequence[Value], pixels: int) -> list[Value]:
        """Take the biases of two channels for both pixels."""
        pairs = [e.shuffle(vector, None, [c, c + 1, c, c + 1]) for vector in bias for c in self._channels]
        return pairs * -(-pixels // 2)

    def finish(self, e: Emitter, sums: list[Value], pixels: int) -> list[Value]:
        """Take pixels apart and join the pairs of channels."""
        each = len(self._channels)
        per_pair = len(sums) // -(-pixels // 2)
        wide = [e.b.bitcast(value, vec(I64, 2)) for value in sums]
        found = []
        for pixel in range(pixels):
            first, half = pixel // 2 * per_pair, pixel % 2
            for start in range(first, first + per_pair, each):
                row = e.shuffle(wide[start], wide[start + 1], [half, half + 2])
                found.append(e.b.bitcast(row, self.accumulator))
        return found

    def add_step(
        self, e: Emitter, src: Value, weights: Value, offsets: tuple[int, ...], sums: list[Value]
    ) -> list[Value]:
        """Emit one step: every pair of pixels times every pair of channels."""
        pairs = [offsets[first : first + 2] for first in range(0, len(offsets), 2)]
        per_pair, result = len(sums) // len(pairs), list(sums)
        loaded = self._portions_of_weights(e, weights, per_pair // len(self._channels))
        rows = [[e.load(e.offset(src, offset), vec(I64, 2)) for offset in pair] for pair in pairs]
        for number, registers in enumerate(loaded):
            for pair, row in enumerate(rows):
                both = e.b.bitcast(e.shuffle(row[0], row[-1], [number, number + 2]), vec(I8, REGISTER))
                for place, register in enumerate(registers, pair * per_pair):
                    result[place] = self.multiply.add(e, result[place], both, register)
        return result


def wide_tiles(target: VectorTarget) -> list[str]:
    """Names of the target's multiplications that tiles of this module use."""
    return [tile.name for tile in target.tiles if _kind(tile) is not None]


def int8_tile(target: VectorTarget, name: str, once: bool = False) -> MicroTile:
    """The int8 tile of a multiplication of `wide_tiles`; with "" the usual one.

    once: a call reads each weight once.
    """
    multiply = target.tile(name) if name else None
    kind = None if multiply is None else _kind(multiply)
    if multiply is None or kind is None:
        return constant_tile(target, once)
    return kind(target.float_lanes, target.registers, target.model, multiply)


def _kind(tile: Tile) -> type[WideTile | WordTile] | None:
    if tile.by_element and tile.k == 4:
        return ElementTile
    shapes: dict[tuple[int, int, int], type[WideTile | WordTile]] = {
        (1, 1, 16): AcrossTile,
        (2, 2, 8): MatrixTile,
        (1, 4, 1): WordTile,
    }
    return shapes.get((tile.m, tile.n, tile.k))

"""Micro-kernel tiles of int8 whose steps are wider than four bytes of a pixel.

Such multiplications add up many products of one row: all of a register, or those of two pixels and two
channels at once. Their sums are brought into vectors of channels when a tile is complete.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from qglow.core.errors import InternalError
from qglow.kernels.emit.builder import I8, I32, I64, Value, poison, vec
from qglow.kernels.emit.emitter import Emitter
from qglow.kernels.emit.target import VectorTarget
from qglow.kernels.emit.tiles import Tile
from qglow.kernels.tiles.tile import ByteTile, MicroTile, select_tile

REGISTER = 16
"""Bytes of a register of 128 bits."""


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
class MatrixTile(WideTile):
    """Tile of a multiplication of eight bytes of two pixels with those of two channels (m = n = 2, k = 8).

    A sum is a register of both pixels and both channels, in the order [pair of pixels][vector][pair of
    channels]. An odd last pixel is multiplied twice.
    """

    step: ClassVar[int] = 8

    @property
    def registers_of_weights(self) -> int:
        """One for two channels."""
        return self.lanes // 2

    def most_pixels(self, vectors: int) -> int:
        """Most pixels: registers also hold the weights of a step and one pair of pixels."""
        pairs = (self.registers - 2 * vectors - 2) // (2 * vectors)
        return max(1, 2 * pairs)

    def step_cycles(self, pixels: int, vectors: int) -> float:
        """Estimated cycles for four bytes of depth, as tiles of four bytes have them."""
        model, pairs = self.model, -(-pixels // 2)
        chains = 2 * pairs * vectors
        waiting = model.chain_wait * max(0, model.enough_chains - chains)
        loading = (pixels + 2 * vectors) / model.loads_a_cycle
        return max(model.chain_cycles, chains / model.products_a_cycle + waiting, loading)

    def start(self, e: Emitter, bias: Sequence[Value], pixels: int) -> list[Value]:
        """Take the biases of two channels for both pixels."""
        pairs = [e.shuffle(vector, None, [c, c + 1, c, c + 1]) for vector in bias for c in self._channels]
        return pairs * -(-pixels // 2)

    def finish(self, e: Emitter, sums: list[Value], pixels: int) -> list[Value]:
        """Take pixels apart and join the pairs of channels."""
        each = len(self._channels)
        per_pair = len(sums) // -(-pixels // 2)
        found = []
        for pixel in range(pixels):
            first, half = pixel // 2 * per_pair, pixel % 2 * 2
            for start in range(first, first + per_pair, each):
                low, high = sums[start : start + each]
                found.append(e.shuffle(low, high, [half, half + 1, half + 4, half + 5]))
        return found

    @property
    def _channels(self) -> range:
        return range(0, self.lanes, 2)

    def add_step(
        self, e: Emitter, src: Value, weights: Value, offsets: tuple[int, ...], sums: list[Value]
    ) -> list[Value]:
        """Emit one step: every pair of pixels times every pair of channels."""
        pairs = [offsets[first : first + 2] for first in range(0, len(offsets), 2)]
        per_pair = len(sums) // len(pairs)
        loaded: list[Value] = []
        for vector in range(per_pair // self.registers_of_weights):
            loaded += self.load_weights(e, e.offset(weights, vector * self.weight_bytes))
        result = []
        for number, pair in enumerate(pairs):
            activation = self._two_pixels(e, src, pair[0], pair[-1])
            for channel in range(per_pair):
                total = sums[number * per_pair + channel]
                result.append(self.multiply.add(e, total, activation, loaded[channel]))
        return result

    def _two_pixels(self, e: Emitter, src: Value, first: int, second: int) -> Value:
        rows: Any = poison(vec(I64, 2))
        for lane, offset in enumerate((first, second)):
            rows = e.insert(rows, e.load(e.offset(src, offset), I64), lane)
        return e.b.bitcast(rows, vec(I8, REGISTER))


def wide_tiles(target: VectorTarget) -> list[str]:
    """Names of the target's multiplications that tiles of this module use."""
    return [tile.name for tile in target.tiles if _kind(tile) is not None]


def int8_tile(target: VectorTarget, name: str) -> MicroTile:
    """The int8 tile of a multiplication of `wide_tiles`; with "" the usual one."""
    multiply = target.tile(name) if name else None
    kind = None if multiply is None else _kind(multiply)
    if multiply is None or kind is None:
        return select_tile(target, False)
    return kind(target.float_lanes, target.registers, target.model, multiply)


def _kind(tile: Tile) -> type[AcrossTile] | type[MatrixTile] | None:
    if (tile.m, tile.n, tile.k) == (1, 1, AcrossTile.step):
        return AcrossTile
    return MatrixTile if (tile.m, tile.n, tile.k) == (2, 2, MatrixTile.step) else None

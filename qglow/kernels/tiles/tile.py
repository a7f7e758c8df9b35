"""Micro-kernel tiles: a step multiplies four bytes of a pixel with the weights of a vector of channels.

A step broadcasts four int8 or one float32 of one pixel to all lanes and multiplies them with packed weights
of `lanes` output channels. All steps of a pixel and vector add to one accumulator. So a float result is one
chain of multiply-adds in ascending order, an int8 result is exact, and the size of a tile does not change
them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from qglow.core.errors import InternalError
from qglow.core.types import Array, ElementType
from qglow.kernels.arithmetic.fused import add_product, step_instructions
from qglow.kernels.arithmetic.half import load_widened
from qglow.kernels.emit.builder import F32, I8, I16, I32, Value, vec
from qglow.kernels.emit.emitter import Emitter
from qglow.kernels.emit.machine import MachineModel
from qglow.kernels.emit.target import NarrowWeights, VectorTarget
from qglow.kernels.emit.tiles import Tile
from qglow.numerics.half import store_exactly

Step = tuple[tuple[Value, ...], tuple[Value, ...]]
"""Activation and weights of one step, as a tile loads them."""


@dataclass(frozen=True)
class PackedTile(ABC):
    """Layout of weights in memory for vectors of `lanes` output channels."""

    lanes: int

    is_float: ClassVar[bool] = False

    @property
    @abstractmethod
    def weight_bytes(self) -> int:
        """Bytes of packed weights of one vector in one step."""

    @property
    def accumulator(self) -> Any:
        """LLVM type of the sums of one pixel and vector."""
        return vec(F32 if self.is_float else I32, self.lanes)

    @property
    def accumulator_bytes(self) -> int:
        """Bytes of an accumulator, and of a vector of biases or multipliers."""
        return 4 * self.lanes

    @abstractmethod
    def pack(self, filters: Array) -> Array:
        """Pack weights [vectors, steps, lanes, elements a step] to bytes [vectors, steps, weight_bytes]."""


@dataclass(frozen=True)
class MicroTile(PackedTile):
    """Products of one step, added to one vector register of channels.

    `registers`: vector registers of the target. `model`: costs of its products. `step`: bytes of a pixel that
    a step multiplies.
    """

    registers: int
    model: MachineModel

    most_vectors: ClassVar[int] = 8
    step: ClassVar[int] = 4

    @property
    def portions(self) -> int:
        """Products of one sum in a step that are emitted one after the other."""
        return 1

    @abstractmethod
    def most_pixels(self, vectors: int) -> int:
        """Most pixels of a tile with this many vectors that the registers have room for; at least 1."""

    @abstractmethod
    def step_cycles(self, pixels: int, vectors: int) -> float:
        """Estimated cycles of one step of a tile whose operands are in the first-level cache."""

    @abstractmethod
    def load_activation(self, e: Emitter, pointer: Value) -> tuple[Value, ...]:
        """Load one step of one pixel and broadcast it to all lanes; a tuple of operands for `accumulate`."""

    @abstractmethod
    def load_weights(self, e: Emitter, pointer: Value) -> tuple[Value, ...]:
        """Load the weights of one step and one vector of channels; a tuple of operands for `accumulate`."""

    def load_bytes(self, e: Emitter, pointer: Value) -> tuple[Value, ...]:
        """Load the weights of one step and one vector from signed bytes, four for each lane.

        Raises InternalError for a tile that multiplies no bytes.
        """
        raise InternalError(f"{type(self).__name__} multiplies no bytes")

    @abstractmethod
    def accumulate(
        self, e: Emitter, total: Value, activation: tuple[Value, ...], weights: tuple[Value, ...]
    ) -> Value:
        """Add the products of one step to `total`."""

    @property
    def joins(self) -> bool:
        """Whether `accumulate_all` is faster than one step after the other."""
        return False

    def accumulate_all(self, e: Emitter, total: Value, steps: Sequence[Step]) -> Value:
        """Add the products of several steps to `total`."""
        for activation, weights in steps:
            total = self.accumulate(e, total, activation, weights)
        return total

    def start(self, e: Emitter, bias: Sequence[Value], pixels: int) -> list[Value]:
        """Sums of a tile before the first step, from a vector of biases for each vector of channels."""
        return [value for _ in range(pixels) for value in bias]

    def finish(self, e: Emitter, sums: list[Value], pixels: int) -> list[Value]:
        """Bring the sums of a tile into vectors of channels, in the order [pixel][vector]."""
        return sums

    def add_step(
        self, e: Emitter, src: Value, weights: Value, offsets: tuple[int, ...], sums: list[Value]
    ) -> list[Value]:
        """Emit one step of a tile: the pixels at `offsets` bytes from `src` times every vector at `weights`.

        `sums` and the result are as `start` gives them, by default in the order [pixel][vector].
        """
        vectors = range(len(sums) // len(offsets))
        # The weights of a step stay in registers for all pixels. An activation is loaded, multiplied with all
        # vectors and dropped, so it takes a register for a short time only. Thus pixels x vectors products
        # take pixels + vectors loads.
        loaded = [self.load_weights(e, e.offset(weights, v * self.weight_bytes)) for v in vectors]
        result = []
        for number, offset in enumerate(offsets):
            activation = self.load_activation(e, e.offset(src, offset))
            for v in vectors:
                result.append(self.accumulate(e, sums[number * len(vectors) + v], activation, loaded[v]))
        return result


@dataclass(frozen=True)
class ByteTile(MicroTile):
    """Tile that multiplies bytes of activations with signed bytes of weights, both as memory holds them."""

    @property
    def weight_bytes(self) -> int:
        """Four int8 a channel."""
        return 4 * self.lanes

    def pack(self, filters: Array) -> Array:
        """Put the four bytes of each channel side by side."""
        vectors, steps, lanes, elements = filters.shape
        return np.ascontiguousarray(filters, np.int8).view(np.uint8).reshape(vectors, steps, lanes * elements)

    def load_activation(self, e: Emitter, pointer: Value) -> tuple[Value, ...]:
        """Broadcast four bytes of a pixel to every 32-bit lane."""
        step = _broadcast_step(e, pointer, self.lanes, I32)
        return (e.b.bitcast(step, vec(I8, 4 * self.lanes)),)

    def load_weights(self, e: Emitter, pointer: Value) -> tuple[Value, ...]:
        """Load signed bytes, four for each lane."""
        return (e.load(pointer, vec(I8, 4 * self.lanes), align=self.weight_bytes),)

    def load_bytes(self, e: Emitter, pointer: Value) -> tuple[Value, ...]:
        """Load signed bytes, which is how weights lie anyway."""
        return self.load_weights(e, pointer)


@dataclass(frozen=True)
class DotTile(ByteTile):
    """Tile of a multiplication that adds four products to each 32-bit lane (a vector tile of k = 4)."""

    multiply: Tile

    def most_pixels(self, vectors: int) -> int:
        """Most pixels: registers also hold the weights of a step and one activation."""
        return max(1, (self.registers - vectors - 1) // vectors)

    def step_cycles(self, pixels: int, vectors: int) -> float:
        """Estimated cycles: the most of what products, loads and the latency of one accumulator take.

        Products take `chain_wait` longer for each accumulator that is missing to `enough_chains`.
        """
        model, chains = self.model, pixels * vectors
        waiting = model.chain_wait * max(0, model.enough_chains - chains)
        loading = (pixels + vectors) / model.loads_a_cycle
        return max(model.chain_cycles, chains / model.products_a_cycle + waiting, loading)

    def accumulate(
        self, e: Emitter, total: Value, activation: tuple[Value, ...], weights: tuple[Value, ...]
    ) -> Value:
        """Multiply bytes of activations and weights and add four products to each lane."""
        return self.multiply.add(e, total, activation[0], weights[0])

    @property
    def joins(self) -> bool:
        """Whether the multiplication joins steps."""
        return self.multiply.join is not None

    def accumulate_all(self, e: Emitter, total: Value, steps: Sequence[Step]) -> Value:
        """Join several steps, for which that is exact."""
        return self.multiply.add_all(e, total, [(step[0][0], step[1][0]) for step in steps])


@dataclass(frozen=True)
class PairTile(MicroTile):
    """Tile of a multiplication that adds two 16-bit products to each lane (k = 2), which a step needs twice.

    The pairs are bytes 0 and 2, then bytes 1 and 3: a mask and a shift split even from odd bytes, which is
    cheaper than widening neighbours. `signed`: activations are signed bytes in memory, without a bias.
    `narrow`: weights are bytes in memory, and widened as they are loaded.
    """

    multiply: Tile
    signed: bool = False
    narrow: bool = False

    most_vectors: ClassVar[int] = 4

    @property
    def weight_bytes(self) -> int:
        """Four int16 a channel, or four bytes."""
        return (4 if self.narrow else 8) * self.lanes

    def most_pixels(self, vectors: int) -> int:
        """Most pixels: registers also hold half a step of weights, one activation and one product."""
        return max(1, (self.registers - vectors - 2) // vectors)

    def step_cycles(self, pixels: int, vectors: int) -> float:
        """Estimated cycles: multiply and add, split activations, and load weights of twice the size."""
        model = self.model
        return max(model.chain_cycles, model.pair_cycles * pixels * vectors + pixels + vectors)

    def pack(self, filters: Array) -> Array:
        """Widen weights to 16 bits: pairs (0, 2) of all lanes first, then pairs (1, 3); or keep bytes."""
        vectors, steps = filters.shape[:2]
        if self.narrow:
            stored = np.ascontiguousarray(filters, np.int8).view(np.uint8)
            return stored.reshape(vectors, steps, self.weight_bytes)
        wide = filters.astype(np.int16)[..., [0, 2, 1, 3]]
        halves = wide.reshape(vectors, steps, self.lanes, 2, 2).transpose(0, 1, 3, 2, 4)
        return np.ascontiguousarray(halves).view(np.uint8).reshape(vectors, steps, self.weight_bytes)

    def load_activation(self, e: Emitter, pointer: Value) -> tuple[Value, ...]:
        """Broadcast a step and split it: bytes 0 and 2, then bytes 1 and 3, widened to 16 bits."""
        return e.target.split_bytes(e, e.load(pointer, I32, align=1), self.lanes, self.signed)

    def load_weights(self, e: Emitter, pointer: Value) -> tuple[Value, ...]:
        """Load the weights of both halves of a step: those of pairs (0, 2), then of (1, 3)."""
        if self.narrow:
            return self.load_bytes(e, pointer)
        words = vec(I16, 2 * self.lanes)
        size = 4 * self.lanes
        return tuple(e.load(e.offset(pointer, half * size), words, align=size) for half in (0, 1))

    def load_bytes(self, e: Emitter, pointer: Value) -> tuple[Value, ...]:
        """Load signed bytes and widen them: bytes 0 and 2, then bytes 1 and 3."""
        return e.target.load_steps(e, pointer, self.lanes)

    def accumulate(
        self, e: Emitter, total: Value, activation: tuple[Value, ...], weights: tuple[Value, ...]
    ) -> Value:
        """Add the products of both halves of a step."""
        for pair, weight in zip(activation, weights, strict=True):
            total = self.multiply.add(e, total, pair, weight)
        return total


@dataclass(frozen=True)
class FloatTile(MicroTile):
    """Tile of float32: one multiply-add a channel and step.

    `step_instructions`: those of one multiply-add. `stored`: type of weights in memory, float32 or a
    16-bit float, which is widened in registers.
    """

    step_instructions: float
    stored: ElementType = ElementType.FLOAT

    is_float: ClassVar[bool] = True

    @property
    def weight_bytes(self) -> int:
        """Bytes of one weight for each channel."""
        return self.stored.size * self.lanes

    def most_pixels(self, vectors: int) -> int:
        """Most pixels: registers also hold weights of a step, one activation and (unless fused) a product."""
        other = 1 if self.step_instructions == 1.0 else 2
        return max(1, (self.registers - vectors - other) // vectors)

    def step_cycles(self, pixels: int, vectors: int) -> float:
        """Estimated cycles: the most of what multiply-adds, loads and the latency of one chain take."""
        model = self.model
        multiplying = pixels * vectors * self.step_instructions / model.products_a_cycle
        return max(model.chain_cycles, multiplying, (pixels + vectors) / model.loads_a_cycle)

    def pack(self, filters: Array) -> Array:
        """Convert weights to the stored type, one for each lane in order."""
        vectors, steps = filters.shape[:2]
        is_wide = self.stored is not ElementType.FLOAT and filters.dtype == np.float32
        stored = store_exactly(filters, self.stored) if is_wide else filters
        stored = np.ascontiguousarray(stored, self.stored.dtype)
        return stored.view(np.uint8).reshape(vectors, steps, self.weight_bytes)

    def load_activation(self, e: Emitter, pointer: Value) -> tuple[Value, ...]:
        """Broadcast one float32 of a pixel to every lane."""
        return (_broadcast_step(e, pointer, self.lanes, F32),)

    def load_weights(self, e: Emitter, pointer: Value) -> tuple[Value, ...]:
        """Load one weight for each lane, as float32."""
        if self.stored is not ElementType.FLOAT:
            return (load_widened(e, pointer, self.stored, self.lanes),)
        return (e.load(pointer, self.accumulator, align=self.weight_bytes),)

    def accumulate(
        self, e: Emitter, total: Value, activation: tuple[Value, ...], weights: tuple[Value, ...]
    ) -> Value:
        """Multiply and add."""
        return add_product(e, activation[0], weights[0], total)


def _broadcast_step(e: Emitter, pointer: Value, lanes: int, element: Any) -> Value:
    """Broadcast one step of a pixel to every lane; pixels begin at any byte, so the load is unaligned."""
    return e.splat(e.load(pointer, element, align=1), lanes)


def select_tile(target: VectorTarget, is_float: bool, stored: ElementType = ElementType.FLOAT) -> MicroTile:
    """Choose the tile for float32 or int8 on a target; `stored`: type of float weights in memory.

    Raises InternalError for a target that multiplies no int8.
    """
    lanes, registers, model = target.float_lanes, target.registers, target.model
    if is_float:
        return FloatTile(lanes, registers, model, step_instructions(target), stored)
    fours, pairs = target.vector_tile(4), target.vector_tile(2)
    if fours is not None:
        return DotTile(lanes, registers, model, fours)
    if pairs is None:
        raise InternalError(f"target {target.name} has no exact multiplication of bytes or words")
    return PairTile(lanes, registers, model, pairs, signed=target.activation_bias == 0)


def constant_tile(target: VectorTarget, once: bool = False) -> MicroTile:
    """Choose the tile for int8 whose weights are constants. once: a call reads each of them once.

    Raises as `select_tile`.
    """
    tile = select_tile(target, False)
    narrow = target.narrow is NarrowWeights.ALL or (once and target.narrow is NarrowWeights.ONCE)
    return replace(tile, narrow=narrow) if isinstance(tile, PairTile) else tile


def fastest_tile(target: VectorTarget, is_float: bool) -> MicroTile:
    """Choose the tile with the highest rate of products, even if it is exact for some weights only."""
    fours = next((tile for tile in target.tiles if tile.is_vector and tile.k == 4), None)
    if is_float or fours is None:
        return select_tile(target, is_float)
    return DotTile(target.float_lanes, target.registers, target.model, fours)

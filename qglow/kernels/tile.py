"""Micro-kernel tiles: one step multiplies four bytes of an activation with a vector of channels.

A step takes four int8 or one float32 of one pixel, broadcast, and `lanes` output channels of
packed weights. The products join one accumulator, so a float result is one chain of
multiply-adds in ascending order and an int8 result is exact, whatever the tile's size.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from qglow.core.types import Array, ElementType
from qglow.kernels.builder import F32, I8, I16, I32, Emitter, Value, scalar, vec
from qglow.kernels.half import load_widened
from qglow.kernels.isa import Isa

ENOUGH_CHAINS = 12
"""Accumulators from which on two products start in every cycle, whatever else a step does [measured]."""
CHAIN_WAIT = 0.1
"""Cycles that a step of products loses for each accumulator less [measured]."""


@dataclass(frozen=True)
class PackedTile(ABC):
    """Vectors of `lanes` channels and how their weights lie in memory."""

    lanes: int

    is_float: ClassVar[bool] = False

    @property
    @abstractmethod
    def weight_bytes(self) -> int:
        """Bytes of packed weights of one vector and step."""

    @property
    def accumulator(self) -> Any:
        """Type of the sums of one pixel and vector."""
        return vec(F32 if self.is_float else I32, self.lanes)

    @property
    def accumulator_bytes(self) -> int:
        """Bytes of an accumulator, and of a vector of biases or multipliers."""
        return 4 * self.lanes

    @abstractmethod
    def pack(self, filters: Array) -> Array:
        """Weights [vectors, steps, lanes, elements a step] as bytes [vectors, steps, weight_bytes]."""


@dataclass(frozen=True)
class MicroTile(PackedTile):
    """One vector register of channels and how one step accumulates into it."""

    registers: int

    most_vectors: ClassVar[int] = 8

    @abstractmethod
    def most_pixels(self, vectors: int) -> int:
        """Pixels that fit into the registers beside this many vectors; at least 1."""

    @abstractmethod
    def step_cycles(self, pixels: int, vectors: int) -> float:
        """Cycles of one step of a tile whose operands are near."""

    @abstractmethod
    def load_activation(self, e: Emitter, pointer: Value) -> tuple[Value, ...]:
        """Operands that hold one step of one pixel in every lane."""

    @abstractmethod
    def load_weights(self, e: Emitter, pointer: Value) -> tuple[Value, ...]:
        """Operands that hold one step of one vector of channels."""

    @abstractmethod
    def accumulate(
        self, e: Emitter, total: Value, activation: tuple[Value, ...], weights: tuple[Value, ...]
    ) -> Value:
        """`total` plus the products of one step."""


@dataclass(frozen=True)
class ByteTile(MicroTile):
    """Unsigned bytes of an activation times signed bytes of weights, both as memory holds them."""

    @property
    def weight_bytes(self) -> int:
        """Four int8 a channel."""
        return 4 * self.lanes

    def pack(self, filters: Array) -> Array:
        """Four bytes of each channel side by side."""
        vectors, steps, lanes, elements = filters.shape
        return np.ascontiguousarray(filters, np.int8).view(np.uint8).reshape(vectors, steps, lanes * elements)

    def load_activation(self, e: Emitter, pointer: Value) -> tuple[Value, ...]:
        """Four unsigned bytes in every lane."""
        step = _broadcast_step(e, pointer, self.lanes, I32)
        return (e.b.bitcast(step, vec(I8, 4 * self.lanes)),)

    def load_weights(self, e: Emitter, pointer: Value) -> tuple[Value, ...]:
        """Signed bytes."""
        return (e.load(pointer, vec(I8, 4 * self.lanes), align=self.weight_bytes),)


@dataclass(frozen=True)
class DotTile(ByteTile):
    """VNNI: vpdpbusd, four products of each channel. The intrinsic also makes AVX-VNNI's encoding."""

    def most_pixels(self, vectors: int) -> int:
        """Weights of a step and one activation stay beside the accumulators."""
        return max(1, (self.registers - vectors - 1) // vectors)

    def step_cycles(self, pixels: int, vectors: int) -> float:
        """Two products and two loads a cycle; a chain of products takes four, few of them wait more."""
        chains = pixels * vectors
        waiting = CHAIN_WAIT * max(0, ENOUGH_CHAINS - chains)
        return max(4.0, chains / 2 + waiting, (pixels + vectors) / 2)

    def accumulate(
        self, e: Emitter, total: Value, activation: tuple[Value, ...], weights: tuple[Value, ...]
    ) -> Value:
        """Unsigned times signed bytes, added without saturation."""
        name = f"llvm.x86.avx512.vpdpbusd.{32 * self.lanes}"
        return e.call(name, self.accumulator, [total, activation[0], weights[0]])


@dataclass(frozen=True)
class PairTile(MicroTile):
    """AVX2 and SSE2: vpmaddwd of 16-bit pairs, bytes 0 and 2, then bytes 1 and 3 of a step.

    Even and odd bytes are split by a mask and a shift, cheaper than widening neighbours.
    """

    most_vectors: ClassVar[int] = 4

    @property
    def weight_bytes(self) -> int:
        """Four int16 a channel."""
        return 8 * self.lanes

    def most_pixels(self, vectors: int) -> int:
        """Half a step of weights, one activation and one product stay beside the accumulators."""
        return max(1, (self.registers - vectors - 2) // vectors)

    def step_cycles(self, pixels: int, vectors: int) -> float:
        """Two multiplications and two additions a vector, three of them a cycle."""
        return max(4.0, 1.4 * pixels * vectors + pixels + vectors)

    def pack(self, filters: Array) -> Array:
        """Pairs (0, 2) of all lanes, then pairs (1, 3)."""
        vectors, steps = filters.shape[:2]
        wide = filters.astype(np.int16)[..., [0, 2, 1, 3]]
        halves = wide.reshape(vectors, steps, self.lanes, 2, 2).transpose(0, 1, 3, 2, 4)
        return np.ascontiguousarray(halves).view(np.uint8).reshape(vectors, steps, self.weight_bytes)

    def load_activation(self, e: Emitter, pointer: Value) -> tuple[Value, ...]:
        """Bytes 0 and 2, bytes 1 and 3, widened to 16 bits."""
        words = vec(I16, 2 * self.lanes)
        step = e.b.bitcast(_broadcast_step(e, pointer, self.lanes, I32), words)
        even = e.b.and_(step, scalar(words, 255))
        return even, e.b.lshr(step, scalar(words, 8))

    def load_weights(self, e: Emitter, pointer: Value) -> tuple[Value, ...]:
        """Both halves of a step."""
        words = vec(I16, 2 * self.lanes)
        size = 4 * self.lanes
        return tuple(e.load(e.offset(pointer, half * size), words, align=size) for half in (0, 1))

    def accumulate(
        self, e: Emitter, total: Value, activation: tuple[Value, ...], weights: tuple[Value, ...]
    ) -> Value:
        """Products of both halves."""
        name = "llvm.x86.avx2.pmadd.wd" if self.lanes == 8 else "llvm.x86.sse2.pmadd.wd"
        for pair, weight in zip(activation, weights, strict=True):
            total = e.b.add(total, e.call(name, self.accumulator, [pair, weight]))
        return total


@dataclass(frozen=True)
class BytePairTile(ByteTile):
    """AVX2: vpmaddubsw, which adds two products of bytes in 16 bits, then vpmaddwd by 1.

    Only for weights whose pairs fit: see step_lists.
    """

    most_vectors: ClassVar[int] = 4

    def most_pixels(self, vectors: int) -> int:
        """Weights of a step, one activation and one product stay beside the accumulators."""
        return max(1, (self.registers - vectors - 2) // vectors)

    def step_cycles(self, pixels: int, vectors: int) -> float:
        """Bound by two multiplications a vector."""
        return max(4.0, 1.4 * pixels * vectors)

    def accumulate(
        self, e: Emitter, total: Value, activation: tuple[Value, ...], weights: tuple[Value, ...]
    ) -> Value:
        """Unsigned times signed bytes in pairs, then pairs of pairs."""
        return self.add_pairs(e, total, self.pairs(e, activation, weights))

    def pairs(self, e: Emitter, activation: tuple[Value, ...], weights: tuple[Value, ...]) -> Value:
        """Sums of two products each, int16."""
        words = vec(I16, 2 * self.lanes)
        return e.call("llvm.x86.avx2.pmadd.ub.sw", words, [activation[0], weights[0]])

    def add_pairs(self, e: Emitter, total: Value, pairs: Value) -> Value:
        """`total` plus both int16 of each channel."""
        ones = scalar(pairs.type, 1)
        return e.b.add(total, e.call("llvm.x86.avx2.pmadd.wd", self.accumulator, [pairs, ones]))


@dataclass(frozen=True)
class FloatTile(MicroTile):
    """float32: one multiply-add a channel and step, fused where the ISA can.

    stored: how weights lie in memory, float32 or in 16 bits, from which they are widened in registers.
    """

    fused: bool
    stored: ElementType = ElementType.FLOAT

    is_float: ClassVar[bool] = True

    @property
    def weight_bytes(self) -> int:
        """One real a channel."""
        return self.stored.size * self.lanes

    def most_pixels(self, vectors: int) -> int:
        """Weights of a step and one activation (without fusing, also a product) stay in registers."""
        other = 1 if self.fused else 2
        return max(1, (self.registers - vectors - other) // vectors)

    def step_cycles(self, pixels: int, vectors: int) -> float:
        """Two multiply-adds and two loads a cycle; a chain of them takes four."""
        return max(4.0, pixels * vectors / (2 if self.fused else 1), (pixels + vectors) / 2)

    def pack(self, filters: Array) -> Array:
        """Reals in order."""
        vectors, steps = filters.shape[:2]
        stored = np.ascontiguousarray(filters, self.stored.dtype)
        return stored.view(np.uint8).reshape(vectors, steps, self.weight_bytes)

    def load_activation(self, e: Emitter, pointer: Value) -> tuple[Value, ...]:
        """One float in every lane."""
        return (_broadcast_step(e, pointer, self.lanes, F32),)

    def load_weights(self, e: Emitter, pointer: Value) -> tuple[Value, ...]:
        """One float a lane."""
        if self.stored is not ElementType.FLOAT:
            return (load_widened(e, pointer, self.stored, self.lanes),)
        return (e.load(pointer, self.accumulator, align=self.weight_bytes),)

    def accumulate(
        self, e: Emitter, total: Value, activation: tuple[Value, ...], weights: tuple[Value, ...]
    ) -> Value:
        """One rounding where fused, else two."""
        if self.fused:
            return e.intrinsic("llvm.fma", activation[0], weights[0], total)
        return e.b.fadd(total, e.b.fmul(activation[0], weights[0]))


def _broadcast_step(e: Emitter, pointer: Value, lanes: int, element: Any) -> Value:
    return e.splat(e.load(pointer, element, align=1), lanes)


def select_tile(isa: Isa, is_float: bool, stored: ElementType = ElementType.FLOAT) -> MicroTile:
    """The tile for float32 or int8 on the vector unit of this ISA; `stored`: how float weights are."""
    lanes = isa.vector_bits // 32
    if is_float:
        return FloatTile(lanes, isa.registers, isa.has_fma, stored)
    if isa.tile("vpdpbusd") is not None:
        return DotTile(lanes, isa.registers)
    return PairTile(lanes, isa.registers)


def fastest_tile(isa: Isa, is_float: bool) -> MicroTile:
    """The tile that does most products in a time, whether or not it takes any weights."""
    tile = select_tile(isa, is_float)
    if isa.tile("vpmaddwd") is not None and not is_float:
        return BytePairTile(tile.lanes, tile.registers)
    return tile

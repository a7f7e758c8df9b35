"""Multiplication steps of int8 depthwise convolutions: several taps of a byte vector of channels at once.

Byte vectors of different taps are interleaved, so that the taps of a channel share a 32-bit lane.
Interleaving changes the order of channels within each 128 bits. The saturating packs that narrow int8
results to bytes change it back, so that no instruction is spent on the order.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from qglow.core.errors import InternalError
from qglow.core.types import Array
from qglow.kernels.emit.builder import I8, I16, I32, Value, scalar, vec
from qglow.kernels.emit.emitter import Emitter
from qglow.kernels.emit.target import VectorTarget
from qglow.kernels.emit.tiles import Tile
from qglow.kernels.tiles.interleaved import unpack

VECTORS = 4
"""Accumulators of one interleaved byte vector of channels: a 32-bit lane for each of its bytes."""
NARROW = 4
"""Channels of one accumulator where bytes are not interleaved."""
PART = 16
"""int8 channels in 128 bits."""


def lane_order(width: int) -> Array:
    """Channel of every lane of the accumulators of `width` channels, as [vector, lane]."""
    vector, part, lane = np.ogrid[:VECTORS, : width // PART, : PART // VECTORS]
    return np.asarray(PART * part + VECTORS * vector + lane).reshape(VECTORS, -1)


@dataclass(frozen=True)
class TapStep(ABC):
    """Products of up to `taps` bytes of each of `width` channels with their weights, added to the sums.

    `vectors`: accumulators of these channels.
    """

    width: int

    taps: ClassVar[int]
    vectors: ClassVar[int] = VECTORS

    @property
    def lanes(self) -> int:
        """Channels of one accumulator."""
        return self.width // self.vectors

    @property
    def accumulator(self) -> Any:
        """Type of one accumulator."""
        return vec(I32, self.lanes)

    @property
    def order(self) -> Array:
        """Channel of every lane of the accumulators, as [vector, lane]."""
        return lane_order(self.width)

    @property
    def result_order(self) -> Array:
        """Channel of every lane of `results`."""
        return self.order

    def results(self, e: Emitter, sums: list[Value]) -> list[Value]:
        """Bring complete sums into the order that the output stage takes."""
        return sums

    @property
    @abstractmethod
    def weight_bytes(self) -> int:
        """Bytes of packed weights of one step, for all `width` channels."""

    @abstractmethod
    def pack(self, weights: Array) -> Array:
        """Pack int8 weights [taps, width] to the bytes that `load_weights` reads."""

    @abstractmethod
    def interleave(self, e: Emitter, rows: Sequence[Value]) -> list[Value]:
        """Combine one byte vector a tap to an operand of `accumulate` for each accumulator."""

    @abstractmethod
    def accumulate(self, e: Emitter, total: Value, taps: Value, weights: Value) -> Value:
        """Add the products of one operand to its accumulator `total`."""

    def load_weights(self, e: Emitter, pointer: Value) -> list[Value]:
        """Load the weights of one step, a vector for each accumulator."""
        size = self.weight_bytes // self.vectors
        kind = self.weight_type()
        return [e.load(e.offset(pointer, v * size), kind, align=size) for v in range(self.vectors)]

    @abstractmethod
    def weight_type(self) -> Any:
        """LLVM type of the weights of one accumulator."""


@dataclass(frozen=True)
class DotStep(TapStep):
    """Step of four taps in each lane: bytes times bytes, with four products a lane added up."""

    multiply: Tile

    taps: ClassVar[int] = 4

    @property
    def weight_bytes(self) -> int:
        """Four int8 a channel."""
        return 4 * self.width

    def weight_type(self) -> Any:
        """Signed bytes."""
        return vec(I8, self.width)

    def pack(self, weights: Array) -> Array:
        """Put the four taps of a channel side by side, channels in the order of lanes."""
        lanes = weights.astype(np.int8)[:, lane_order(self.width)]
        return np.ascontiguousarray(lanes.transpose(1, 2, 0)).view(np.uint8).reshape(-1)

    def interleave(self, e: Emitter, rows: Sequence[Value]) -> list[Value]:
        """Interleave bytes to pairs of taps, then pairs to fours."""
        words = vec(I16, self.width // 2)
        pairs = []
        for upper in (False, True):
            for first in (0, 2):
                pairs.append(e.b.bitcast(unpack(e, rows[first], rows[first + 1], upper), words))
        fours = [unpack(e, pairs[i], pairs[i + 1], upper) for i in (0, 2) for upper in (False, True)]
        return [e.b.bitcast(four, vec(I8, self.width)) for four in fours]

    def accumulate(self, e: Emitter, total: Value, taps: Value, weights: Value) -> Value:
        """Multiply bytes of activations and weights and add four products to each lane."""
        return self.multiply.add(e, total, taps, weights)


@dataclass(frozen=True)
class PairStep(TapStep):
    """Step of two taps in each lane: 16 bits times 16 bits, with two products a lane added up.

    Bytes are widened to 16 bits, whose products and sums of two are exact in int32.
    `signed`: activations are signed bytes in memory (no activation bias), else unsigned.
    """

    multiply: Tile
    signed: bool

    taps: ClassVar[int] = 2

    @property
    def weight_bytes(self) -> int:
        """Two int16 a channel."""
        return 4 * self.width

    def weight_type(self) -> Any:
        """Signed 16-bit words."""
        return vec(I16, self.width // 2)

    def pack(self, weights: Array) -> Array:
        """Put the two taps of a channel side by side, widened, channels in the order of lanes."""
        lanes = weights.astype(np.int16)[:, lane_order(self.width)]
        return np.ascontiguousarray(lanes.transpose(1, 2, 0)).view(np.uint8).reshape(-1)

    def interleave(self, e: Emitter, rows: Sequence[Value]) -> list[Value]:
        """Interleave taps in pairs, then widen bytes to 16 bits by interleaving them with zeros.

        Unsigned bytes get the zero above them. Signed bytes get it below, and an arithmetic shift by 8 brings
        them down with their sign.
        """
        zero, words = scalar(vec(I8, self.width), 0), vec(I16, self.width // 2)
        pairs = [unpack(e, rows[0], rows[1], upper) for upper in (False, True)]
        if self.signed:
            high = [unpack(e, zero, pair, upper) for pair in pairs for upper in (False, True)]
            return [e.b.ashr(e.b.bitcast(value, words), scalar(words, 8)) for value in high]
        wide = [unpack(e, pair, zero, upper) for pair in pairs for upper in (False, True)]
        return [e.b.bitcast(value, words) for value in wide]

    def accumulate(self, e: Emitter, total: Value, taps: Value, weights: Value) -> Value:
        """Multiply 16-bit taps and weights and add two products to each lane."""
        return self.multiply.add(e, total, taps, weights)


@dataclass(frozen=True)
class SingleStep(TapStep):
    """Step of one tap: a product of its own for each channel, for targets that do not interleave bytes.

    `signed`: activations are signed bytes in memory (no activation bias), else unsigned.
    """

    signed: bool

    taps: ClassVar[int] = 1
    vectors: ClassVar[int] = 1

    @property
    def order(self) -> Array:
        """Channels in their order."""
        return np.arange(self.width).reshape(1, -1)

    @property
    def weight_bytes(self) -> int:
        """One int8 a channel."""
        return self.width

    def weight_type(self) -> Any:
        """Signed bytes."""
        return vec(I8, self.width)

    def pack(self, weights: Array) -> Array:
        """Keep the weights of channels in their order."""
        return np.ascontiguousarray(weights[0], np.int8).view(np.uint8)

    def interleave(self, e: Emitter, rows: Sequence[Value]) -> list[Value]:
        """Take the bytes as they are."""
        return list(rows)

    def accumulate(self, e: Emitter, total: Value, taps: Value, weights: Value) -> Value:
        """Multiply and add in 32 bits."""
        widen = e.b.sext if self.signed else e.b.zext
        return e.b.add(total, e.b.mul(widen(taps, total.type), e.b.sext(weights, total.type)))


@dataclass(frozen=True)
class HalfStep(TapStep):
    """Step of one tap on targets that multiply either half of a word: weights are widened in memory.

    Bytes 0 and 2 of a word become the halves of one word, bytes 1 and 3 those of another.
    """

    taps: ClassVar[int] = 1
    vectors: ClassVar[int] = 1

    @property
    def order(self) -> Array:
        """Channels 0 and 2, then 1 and 3."""
        return np.array([[0, 2, 1, 3]])

    @property
    def result_order(self) -> Array:
        """Channels in their order."""
        return np.arange(NARROW).reshape(1, -1)

    def results(self, e: Emitter, sums: list[Value]) -> list[Value]:
        """Exchange the middle lanes, which are registers of their own."""
        return [e.shuffle(sums[0], None, [0, 2, 1, 3])]

    @property
    def weight_bytes(self) -> int:
        """One int16 a channel."""
        return 2 * self.width

    def weight_type(self) -> Any:
        """Two words of two weights."""
        return vec(I32, 2)

    def pack(self, weights: Array) -> Array:
        """Widen weights, in the order of lanes."""
        return np.ascontiguousarray(weights[0, self.order[0]], np.int16).view(np.uint8)

    def interleave(self, e: Emitter, rows: Sequence[Value]) -> list[Value]:
        """Widen the bytes of a word to two words of two halves."""
        word = e.b.bitcast(rows[0], I32)
        halves = e.target.split_bytes(e, word, 1, signed=True)
        return [e.concat([e.b.bitcast(half, vec(I32, 1)) for half in halves])]

    def accumulate(self, e: Emitter, total: Value, taps: Value, weights: Value) -> Value:
        """Multiply halves of words and add."""
        for lane in range(NARROW):
            lhs, rhs = (e.extract(value, lane // 2) for value in (taps, weights))
            added = e.target.add_half_product(e, e.extract(total, lane), lhs, rhs, upper=bool(lane % 2))
            total = e.insert(total, added, lane)
        return total


def select_step(target: VectorTarget, channels: int) -> TapStep:
    """Choose the step for a target: the least width that holds `channels`, from 128 bits to a full register.

    Targets that do not interleave bytes take few channels at a time, for which they have registers.
    Raises InternalError for a target that multiplies no int8.
    """
    if not target.interleaves:
        return (
            HalfStep(NARROW)
            if target.multiplies_halves
            else SingleStep(NARROW, signed=target.activation_bias == 0)
        )
    width = PART
    while width < target.byte_lanes and width < channels:
        width *= 2
    fours, pairs = target.vector_tile(4), target.vector_tile(2)
    if fours is not None:
        return DotStep(width, fours)
    if pairs is None:
        raise InternalError(f"target {target.name} has no exact multiplication of bytes or words")
    return PairStep(width, pairs, signed=target.activation_bias == 0)

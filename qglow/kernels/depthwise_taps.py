"""Steps of depthwise convolutions: several taps of a byte vector of channels at once.

Rows of bytes are interleaved so that the taps of a channel share a 32-bit lane; interleaving
and the packs at the end work within 128 bits, and the orders cancel.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from qglow.core.types import Array
from qglow.kernels.builder import I8, I16, I32, Emitter, Value, scalar, vec
from qglow.kernels.interleaved import unpack
from qglow.kernels.isa import Isa

VECTORS = 4
"""Accumulators of one vector of channels: a 32-bit lane for each byte."""
PART = 16
"""Channels within 128 bits."""


def lane_order(width: int) -> Array:
    """Channel of every lane of the accumulators, [vector, lane]."""
    vector, part, lane = np.ogrid[:VECTORS, : width // PART, : PART // VECTORS]
    return np.asarray(PART * part + VECTORS * vector + lane).reshape(VECTORS, -1)


@dataclass(frozen=True)
class TapStep(ABC):
    """Multiplies up to `taps` bytes of each of `width` channels with weights."""

    width: int

    taps: ClassVar[int]

    @property
    def accumulator(self) -> Any:
        """Type of one of the four accumulators."""
        return vec(I32, self.width // VECTORS)

    @property
    @abstractmethod
    def weight_bytes(self) -> int:
        """Bytes of packed weights of one step."""

    @abstractmethod
    def pack(self, weights: Array) -> Array:
        """Bytes of int8 weights [taps, width]."""

    @abstractmethod
    def interleave(self, e: Emitter, rows: Sequence[Value]) -> list[Value]:
        """Four vectors that hold the taps of every channel, from one byte vector a tap."""

    @abstractmethod
    def accumulate(self, e: Emitter, total: Value, taps: Value, weights: Value) -> Value:
        """`total` plus the products of one of the four vectors."""

    def load_weights(self, e: Emitter, pointer: Value) -> list[Value]:
        """Weights of one step, a vector for each accumulator."""
        size = self.weight_bytes // VECTORS
        kind = self.weight_type()
        return [e.load(e.offset(pointer, v * size), kind, align=size) for v in range(VECTORS)]

    @abstractmethod
    def weight_type(self) -> Any:
        """Type of the weights of one accumulator."""


@dataclass(frozen=True)
class DotStep(TapStep):
    """VNNI: four taps in each lane."""

    taps: ClassVar[int] = 4

    @property
    def weight_bytes(self) -> int:
        """Four int8 a channel."""
        return 4 * self.width

    def weight_type(self) -> Any:
        """Signed bytes."""
        return vec(I8, self.width)

    def pack(self, weights: Array) -> Array:
        """Taps of a channel side by side."""
        lanes = weights.astype(np.int8)[:, lane_order(self.width)]
        return np.ascontiguousarray(lanes.transpose(1, 2, 0)).view(np.uint8).reshape(-1)

    def interleave(self, e: Emitter, rows: Sequence[Value]) -> list[Value]:
        """Bytes in pairs, then pairs in fours."""
        words = vec(I16, self.width // 2)
        pairs = []
        for upper in (False, True):
            for first in (0, 2):
                pairs.append(e.b.bitcast(unpack(e, rows[first], rows[first + 1], upper), words))
        fours = [unpack(e, pairs[i], pairs[i + 1], upper) for i in (0, 2) for upper in (False, True)]
        return [e.b.bitcast(four, vec(I8, self.width)) for four in fours]

    def accumulate(self, e: Emitter, total: Value, taps: Value, weights: Value) -> Value:
        """Unsigned times signed bytes, added without saturation."""
        return e.call(f"llvm.x86.avx512.vpdpbusd.{8 * self.width}", self.accumulator, [total, taps, weights])


@dataclass(frozen=True)
class PairStep(TapStep):
    """AVX2 and SSE2: two taps in each lane, widened to 16 bits."""

    taps: ClassVar[int] = 2

    @property
    def weight_bytes(self) -> int:
        """Two int16 a channel."""
        return 4 * self.width

    def weight_type(self) -> Any:
        """Signed 16-bit words."""
        return vec(I16, self.width // 2)

    def pack(self, weights: Array) -> Array:
        """Taps of a channel side by side."""
        lanes = weights.astype(np.int16)[:, lane_order(self.width)]
        return np.ascontiguousarray(lanes.transpose(1, 2, 0)).view(np.uint8).reshape(-1)

    def interleave(self, e: Emitter, rows: Sequence[Value]) -> list[Value]:
        """Bytes in pairs, then each with a zero byte."""
        zero = scalar(vec(I8, self.width), 0)
        pairs = [unpack(e, rows[0], rows[1], upper) for upper in (False, True)]
        wide = [unpack(e, pair, zero, upper) for pair in pairs for upper in (False, True)]
        return [e.b.bitcast(value, vec(I16, self.width // 2)) for value in wide]

    def accumulate(self, e: Emitter, total: Value, taps: Value, weights: Value) -> Value:
        """16-bit products, added in pairs."""
        name = "llvm.x86.avx2.pmadd.wd" if self.width == 32 else "llvm.x86.sse2.pmadd.wd"
        return e.b.add(total, e.call(name, self.accumulator, [taps, weights]))


def select_step(isa: Isa, channels: int) -> TapStep:
    """The widest step that channels fill, at least 128 bits."""
    width = PART
    while width < isa.byte_lanes and width < channels:
        width *= 2
    return PairStep(width) if isa.tile("vpdpbusd") is None else DotStep(width)

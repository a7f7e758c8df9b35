"""A global average pool at the end of an epilogue: results are added up and never stored.

Sums are exact, as in the pool's own loop, so no bit depends on where they are added up. They lie on
the stack, at distances that are known, so that LLVM keeps them in registers where there are any left.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from llvmlite import ir

from qglow.core.errors import InternalError
from qglow.core.types import Array
from qglow.instructions.operation import Operation
from qglow.instructions.program import Instruction
from qglow.kernels.builder import I8, I16, I32, PTR, Emitter, Value, constant_vector, scalar, vec
from qglow.kernels.isa import Isa
from qglow.kernels.kernel import Kernel, Part, Pool, Site, Slice, kernel
from qglow.kernels.operand import Memory
from qglow.kernels.pool import WORD_TAPS, add_words, averagepool_candidates, emit_means, split_words
from qglow.kernels.tile_output import PACKED, store_part

MOST_VECTORS = 8
"""Vectors of channels of the widest tile."""


@kernel
@dataclass(frozen=True)
class PoolInEpilogue(Kernel):
    """A global average pool without a loop: the first of its stack adds up for it."""

    name: ClassVar[str] = "poolepilogue"

    def constants(self, instruction: Instruction, isa: Isa) -> dict[str, Array]:
        """None."""
        return {}

    def compared(self, operation: Operation, memory: Memory) -> Memory:
        """All of it."""
        return memory

    def cost(self, instruction: Instruction, isa: Isa) -> float:
        """As in a loop of its own."""
        return averagepool_candidates(instruction, isa)[0].cost(instruction, isa)

    def emit(self, site: Site) -> None:
        """Nothing is emitted for it alone."""
        raise InternalError(f"{site.instruction.name} has no loop of its own")


@dataclass(frozen=True)
class GlobalAverage(Pool):
    """Sums at `room`: of words as `add_words` leaves them, or split into int32 where words do not suffice."""

    src: Memory
    dest: Memory
    room: Value

    @staticmethod
    def of(e: Emitter, src: Memory, dest: Memory) -> GlobalAverage:
        """The pool of `src`, which is nowhere. Reserves room, so `e` is at the start of a function."""
        room = e.b.alloca(ir.ArrayType(I8, MOST_VECTORS * e.isa.vector_bits // 8))
        room.align = e.isa.vector_bits // 8
        # llvmlite makes a typed pointer of it, which fits no opaque one.
        room.type = PTR
        return GlobalAverage(src.shape[0], dest.pointer, dest.strides[0], src, dest, room)

    @property
    def taps(self) -> int:
        """Positions of an image."""
        return math.prod(self.src.shape[1:3])

    def start(self, e: Emitter, channels: Slice) -> None:
        """Zeros."""
        for first in range(0, channels.vectors, PACKED):
            for place, kind in self._places(e, first, channels.lanes):
                e.store(scalar(kind, 0), place, align=4 * channels.lanes)

    def add(self, e: Emitter, tile: Sequence[tuple[Value, Sequence[Part]]]) -> None:
        """In words, which hold all positions of a tile, if not all of an image."""
        vectors: dict[int, list[Value]] = {}
        for results, parts in tile:
            vectors.setdefault(parts[0].channel, []).append(_without_repeats(e, results, parts))
        for channel, found in vectors.items():
            assert len(found) <= WORD_TAPS
            lanes = found[0].type.count // PACKED
            places = self._places(e, channel // lanes, lanes)
            before = [e.load(place, kind, align=4 * lanes) for place, kind in places]
            words = before if self._in_words else [scalar(vec(I16, 2 * lanes), 0)] * 2
            for results in found:
                words = add_words(e, words, results)
            after = words
            if not self._in_words:
                after = [e.b.add(*pair) for pair in zip(before, split_words(e, words), strict=True)]
            for (place, _), value in zip(places, after, strict=True):
                e.store(value, place, align=4 * lanes)

    def finish(self, e: Emitter, channels: Slice, pointer: Value) -> None:
        """The arithmetic of the pool's own loop on the sums of all positions."""
        lanes = channels.lanes
        for first in range(0, channels.vectors, PACKED):
            vectors = min(PACKED, channels.vectors - first)
            found = [e.load(place, kind, align=4 * lanes) for place, kind in self._places(e, first, lanes)]
            sums = split_words(e, found) if self._in_words else found
            sums = _folded(e, sums, PACKED // vectors * channels.joined)
            means = emit_means(e, sums, self.src, self.dest, self.taps, self.taps)
            room = min(vectors * lanes, channels.channels - first * lanes)
            store_part(e, means, 0, room, e.offset(pointer, first * lanes))

    @property
    def _in_words(self) -> bool:
        """Whether words hold the sums of all positions."""
        return self.taps <= WORD_TAPS

    def _places(self, e: Emitter, vector: int, lanes: int) -> list[tuple[Value, Any]]:
        """Where the sums of up to four vectors of channels are, and their types."""
        kinds = [vec(I16, 2 * lanes)] * 2 if self._in_words else [vec(I32, lanes)] * PACKED
        return [(e.offset(self.room, (vector + i) * lanes * 4), kind) for i, kind in enumerate(kinds)]


def _without_repeats(e: Emitter, results: Value, parts: Sequence[Part]) -> Value:
    """A vector of bytes with 0 outside of its parts, where something is repeated that fills it."""
    counted = {part.lane + lane for part in parts for lane in range(part.count)}
    lanes = range(results.type.count)
    if len(counted) == len(lanes):
        return results
    return e.b.and_(results, constant_vector(I8, [-(lane in counted) for lane in lanes]))


def _folded(e: Emitter, sums: list[Value], copies: int) -> list[Value]:
    """For every byte the sum over those at its place in so many equal stretches of the bytes."""
    lanes = distance = sums[0].type.count
    while copies > 1 and distance > 1:
        distance, copies = distance // 2, copies // 2
        order = [(lane + distance) % lanes for lane in range(lanes)]
        sums = [e.b.add(total, e.shuffle(total, None, order)) for total in sums]
    if copies > 1:  # of two channels, which every second vector has
        sums = [e.b.add(total, sums[(part + 2) % PACKED]) for part, total in enumerate(sums)]
    return sums

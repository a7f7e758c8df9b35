"""A global average pool at the end of an epilogue: results are added up and never stored.

Sums are exact, as in the kernel with a loop of its own, so no bit depends on where they are added up. They
lie on the stack at constant offsets, so that LLVM can keep them in registers where there are any left.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from qglow.core.errors import InternalError
from qglow.core.types import Array
from qglow.instructions.operation import Operation
from qglow.instructions.program import Instruction
from qglow.kernels.emit.builder import I8, I16, I32, Value, constant_vector, scalar, vec
from qglow.kernels.emit.emitter import Emitter
from qglow.kernels.emit.kernel import ChannelSlice, Kernel, MeanSink, Part, Site, kernel
from qglow.kernels.emit.operand import Memory
from qglow.kernels.emit.target import VectorTarget
from qglow.kernels.pooling.means import WORD_TAPS, add_words, emit_means, split_words
from qglow.kernels.pooling.pool import averagepool_candidates
from qglow.kernels.tiles.interleaved import unsigned_bytes
from qglow.kernels.tiles.output import PACKED, store_part

MOST_VECTORS = 8
"""Number of vectors of channels in the widest tile."""


@kernel
@dataclass(frozen=True)
class MeanInEpilogue(Kernel):
    """A global average pool without a loop of its own: the first kernel of its stack adds up the sums."""

    name: ClassVar[str] = "poolepilogue"

    def constants(self, instruction: Instruction, target: VectorTarget) -> dict[str, Array]:
        """Return none."""
        return {}

    def compared(self, operation: Operation, memory: Memory) -> Memory:
        """Return the operand unchanged."""
        return memory

    def cost(self, instruction: Instruction, target: VectorTarget) -> float:
        """Cost of the kernel with a loop of its own."""
        return averagepool_candidates(instruction, target)[0].cost(instruction, target)

    def emit(self, site: Site) -> None:
        """Raise InternalError: the first kernel of the stack emits its code."""
        raise InternalError(f"{site.instruction.name} has no loop of its own")


@dataclass(frozen=True)
class GlobalMean(MeanSink):
    """Sums in memory at `room`: 16-bit as `add_words` leaves them, or int32 where 16 bits could overflow."""

    src: Memory
    dest: Memory
    room: Value

    @staticmethod
    def of(e: Emitter, src: Memory, dest: Memory) -> GlobalMean:
        """Make the sink for the means of `src`, which is never stored, with stack memory for its sums."""
        room = e.room("sums of means", MOST_VECTORS * e.target.byte_lanes, e.target.byte_lanes)
        return GlobalMean(src.shape[0], dest.pointer, dest.strides[0], src, dest, room)

    @property
    def taps(self) -> int:
        """Number of positions of an image."""
        return math.prod(self.src.shape[1:3])

    def start(self, e: Emitter, channels: ChannelSlice) -> None:
        """Set the sums to zero."""
        for first in range(0, channels.vectors, PACKED):
            for place, kind in self._places(e, first, channels.lanes):
                e.store(scalar(kind, 0), place, align=4 * channels.lanes)

    def add(self, e: Emitter, tile: Sequence[tuple[Value, Sequence[Part]]]) -> None:
        """Add up a tile in 16-bit words, which suffice for a tile's positions, if not for an image's.

        For larger images the words of each tile are then added to int32 sums.
        """
        vectors: dict[int, list[Value]] = {}
        for results, parts in tile:
            counted = _without_repeats(e, unsigned_bytes(e, results), parts)
            vectors.setdefault(parts[0].channel, []).append(counted)
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

    def finish(self, e: Emitter, channels: ChannelSlice, pointer: Value) -> None:
        """Compute the means from the sums of all positions, as the kernel with a loop of its own does."""
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
        """Whether 16-bit words hold the sums of all positions of an image."""
        return self.taps <= WORD_TAPS

    def _places(self, e: Emitter, vector: int, lanes: int) -> list[tuple[Value, Any]]:
        """Addresses of the sums of up to four vectors of channels, and their types."""
        kinds = [vec(I16, 2 * lanes)] * 2 if self._in_words else [vec(I32, lanes)] * PACKED
        return [(e.offset(self.room, (vector + i) * lanes * 4), kind) for i, kind in enumerate(kinds)]


def _without_repeats(e: Emitter, results: Value, parts: Sequence[Part]) -> Value:
    """Set the lanes outside of `parts` to 0: they only repeat other results to fill the vector."""
    counted = {part.lane + lane for part in parts for lane in range(part.count)}
    lanes = range(results.type.count)
    if len(counted) == len(lanes):
        return results
    return e.b.and_(results, constant_vector(I8, [-(lane in counted) for lane in lanes]))


def _folded(e: Emitter, sums: list[Value], copies: int) -> list[Value]:
    """Add up `copies` equal segments of the lanes; each lane then holds the sum over its place in all."""
    lanes = distance = sums[0].type.count
    while copies > 1 and distance > 1:
        distance, copies = distance // 2, copies // 2
        order = [(lane + distance) % lanes for lane in range(lanes)]
        sums = [e.b.add(total, e.shuffle(total, None, order)) for total in sums]
    if copies > 1:  # of two channels, which every second vector has
        sums = [e.b.add(total, sums[(part + 2) % PACKED]) for part, total in enumerate(sums)]
    return sums

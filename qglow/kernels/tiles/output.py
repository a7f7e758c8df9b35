"""Output of a tile: sums are rescaled (rule 5), clamped and stored as int8 or float32, or stored as they are.

int8 results of up to four vectors are narrowed together by saturating packs. The saturation of the last one
is the clamp to the range of int8. Targets without packs clamp and truncate every vector by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from qglow.core.types import ElementType
from qglow.kernels.arithmetic.fixed_point import multiply_fixed
from qglow.kernels.arithmetic.requantize import IntegerRange, clamp_float, emit_requantize
from qglow.kernels.emit.builder import F32, I8, I32, Number, Value, scalar, vec
from qglow.kernels.emit.emitter import Emitter
from qglow.kernels.emit.kernel import Epilogue, MeanSink, Part, Site
from qglow.kernels.emit.prefetch import fetch_early

PACKED = 4
"""Vectors of 32-bit results that become one vector of bytes."""

Finished = tuple[Value, Sequence[Part]]
"""Vector of results, and the parts of memory that its lanes belong to."""


@dataclass(frozen=True)
class OutputStage:
    """Emitter of the steps from a sum to a stored result.

    lanes: sums in a vector.
    is_result: whether the sum is the result and is only clamped: a float sum, or an int32 sum that is kept.
    to_bytes: whether results are int8; else they are elements of four bytes.
    lo, hi, zero_point: bounds and zero point; of an int8 result with the activation bias added.
    clamp_first: whether rescaled sums are clamped before they are rounded, because they may exceed int32.
    epilogue: further work on results in registers before they are stored.
    fixed_point: whether int8 results are rescaled by rule 10 in place of rule 5.
    """

    lanes: int
    is_result: bool
    to_bytes: bool
    lo: float
    hi: float
    zero_point: Number = 0
    clamp_first: bool = False
    epilogue: Epilogue | None = None
    fixed_point: bool = False

    @staticmethod
    def of(site: Site, lanes: int, clamp_first: bool) -> OutputStage:
        """Output stage of an instruction with operands `src` and `dest`, whose operation has the bounds."""
        operation, dest = site.operation, site["dest"].type
        if dest.element is ElementType.INT32:
            return OutputStage(lanes, True, False, float("-inf"), float("inf"))
        from_float = site["src"].is_float
        bounds = {name: getattr(operation, name) for name in ("lo", "hi", "q_lo", "q_hi")}
        if dest.is_float:
            low, high = bounds["lo"], bounds["hi"]
            return OutputStage(lanes, from_float, False, low, high, epilogue=site.epilogue)
        bias = site.target.activation_bias
        low, high = bounds["q_lo"] + bias, bounds["q_hi"] + bias
        zero_point = site["dest"].zero_point
        is_fixed = site["dest"].in_fixed_point
        return OutputStage(lanes, False, True, low, high, zero_point, clamp_first, site.epilogue, is_fixed)

    @property
    def mean_sink(self) -> MeanSink | None:
        """The sink that adds up results for a mean instead of storing them, or None."""
        return None if self.epilogue is None else self.epilogue.mean_sink

    @property
    def element_bytes(self) -> int:
        """Bytes of one stored result."""
        if self.epilogue is not None:
            return self.epilogue.element_bytes
        return 1 if self.to_bytes else 4

    def fetch(self, e: Emitter, pointer: Value, channels: int) -> None:
        """Emit prefetches of what storing the results of a pixel will touch."""
        lines = -(-channels * self.element_bytes // e.target.model.line_bytes)
        fetch_early(e, pointer, 0, lines, first_level=True)
        if self.epilogue is not None:
            self.epilogue.fetch(e, pointer, channels)

    def emit(
        self,
        e: Emitter,
        pixels: Sequence[Sequence[Value]],
        multipliers: Sequence[Value],
        pointers: Sequence[Value],
        channels: int,
        scales: Sequence[Value] = (),
        addends: Sequence[Value] = (),
    ) -> None:
        """Store `channels` results of every pixel: sums are [pixel][vector], addresses [pixel].

        scales: those of pixels that have their own, whose results are floats: rule 11 of the numeric
        contract. addends: what their scaled sums are added to, if anything.
        """
        if not self.to_bytes:
            words: list[Value] = []
            parts: list[Part] = []
            for number, (sums, pointer) in enumerate(zip(pixels, pointers, strict=True)):
                factors = [e.b.fmul(e.splat(scales[number], self.lanes), m) for m in multipliers if scales]
                parts.append(Part(len(words) * self.lanes, channels, pointer))
                words += [
                    self._word(e, total, factors or multipliers, i, addends) for i, total in enumerate(sums)
                ]
            if self.epilogue is None:
                self._store_words(e, words, pointers, channels)
            else:
                # In one vector, so that operations on its registers take turns.
                self._finish(e, [(e.concat(words), parts)])
            return
        narrowed = self._bytes if e.target.interleaves else self._separate_bytes
        self._finish(e, narrowed(e, pixels, multipliers, pointers, channels))

    def emit_interleaved(
        self, e: Emitter, sums: Sequence[Value], multipliers: Sequence[Value], pointer: Value, channels: int
    ) -> None:
        """Store `channels` results of one pixel from four vectors of sums, in the order of channels.

        The lanes of the sums are in the order that the packs undo: each 128 bits of the packed bytes take
        four channels of the first vector, four of the second, and so on.
        """
        if self.to_bytes:
            rounded = [self._rounded(e, t, m) for t, m in zip(sums, multipliers, strict=True)]
            self._finish(e, [(self._pack(e, rounded), [Part(0, channels, pointer)])])
            return
        joined = e.concat([self._word(e, total, multipliers, i) for i, total in enumerate(sums)])
        for part in range(self.lanes // 4):
            lanes = [vector * self.lanes + 4 * part + lane for vector in range(PACKED) for lane in range(4)]
            room = min(4 * PACKED, channels - part * 4 * PACKED)
            if room > 0:
                ordered = e.shuffle(joined, None, lanes)
                store_part(e, ordered, 0, room, e.offset(pointer, part * 16 * PACKED))

    def _store_words(
        self, e: Emitter, words: Sequence[Value], pointers: Sequence[Value], channels: int
    ) -> None:
        vectors = len(words) // len(pointers)
        for number, (pointer, index) in enumerate(product(pointers, range(vectors))):
            count = min(self.lanes, channels - index * self.lanes)
            store_part(e, words[number], 0, count, e.offset(pointer, index * self.lanes * 4))

    def _word(
        self,
        e: Emitter,
        total: Value,
        multipliers: Sequence[Value],
        index: int,
        addends: Sequence[Value] = (),
    ) -> Value:
        """Compute a vector of four-byte results: rescaled unless sums are results, then clamped."""
        value = total if self.is_result else self._scaled(e, total, multipliers[index])
        value = e.b.fadd(value, addends[index]) if addends else value
        return clamp_float(e, value, self.lo, self.hi)

    def _bytes(
        self,
        e: Emitter,
        pixels: Sequence[Sequence[Value]],
        multipliers: Sequence[Value],
        pointers: Sequence[Value],
        channels: int,
    ) -> Iterator[Finished]:
        """Pack sums to vectors of bytes in the order of channels, each with the places of its lanes."""
        count = len(pixels[0])
        # Packs make bytes of four vectors: neighbouring pixels of one or two vectors share them.
        together = max(1, PACKED // count)
        for pixel, first in product(range(0, len(pixels), together), range(0, count, PACKED)):
            vectors = range(first, min(first + PACKED, count))
            group = slice(pixel, pixel + together)
            rounded = [self._rounded(e, sums[v], multipliers[v]) for sums in pixels[group] for v in vectors]
            channel, step = first * self.lanes, len(vectors) * self.lanes
            room = min(step, channels - channel)
            places = [e.offset(pointer, channel) for pointer in pointers[group]]
            parts = [Part(index * step, room, place, channel) for index, place in enumerate(places)]
            yield self._in_order(e, self._pack(e, rounded)), parts

    def _separate_bytes(
        self,
        e: Emitter,
        pixels: Sequence[Sequence[Value]],
        multipliers: Sequence[Value],
        pointers: Sequence[Value],
        channels: int,
    ) -> Iterator[Finished]:
        """Narrow every vector of sums by itself, to as many bytes, each with the places of its lanes."""
        result = IntegerRange(self.zero_point, int(self.lo), int(self.hi), fixed_point=self.fixed_point)
        for sums, pointer in zip(pixels, pointers, strict=True):
            for index, (total, multiplier) in enumerate(zip(sums, multipliers, strict=True)):
                channel = index * self.lanes
                place, room = e.offset(pointer, channel), min(self.lanes, channels - channel)
                narrow = emit_requantize(e, total, multiplier, result, proven=not self.clamp_first)
                yield narrow, [Part(0, room, place, channel)]

    def _finish(self, e: Emitter, tile: Iterable[Finished]) -> None:
        """Pass results through the epilogue, and store them or add them up for a mean."""
        summed: list[Finished] = []
        for results, parts in tile:
            if self.epilogue is not None:
                results = self.epilogue.apply(e, results, parts)
            if self.mean_sink is not None:
                summed.append((results, parts))
                continue
            for part in parts:
                store_part(e, results, part.lane, part.count, part.pointer)
        if self.mean_sink is not None:
            self.mean_sink.add(e, summed)

    def _scaled(self, e: Emitter, total: Value, multiplier: Value) -> Value:
        value = e.b.sitofp(total, vec(F32, self.lanes))
        return e.b.fmul(value, multiplier)

    def _rounded(self, e: Emitter, total: Value, multiplier: Value) -> Value:
        """Compute float32(sum) * multiplier, rounded half to even to int32, or the product of rule 10."""
        if self.fixed_point:
            return multiply_fixed(e, total, multiplier, proven=not self.clamp_first)
        value = self._scaled(e, total, multiplier)
        if self.clamp_first:
            value = clamp_float(e, value, self.lo - self.zero_point, self.hi - self.zero_point)
        return e.target.round_to_words(e, value)

    def _pack(self, e: Emitter, rounded: list[Value]) -> Value:
        """Add the zero point to up to four int32 vectors, clamp, and pack them to bytes in their order."""
        # Between the packs, in 16 bits, the zero point takes half as many additions as in 32 bits. Where that
        # addition or the first pack saturates, the exact result is beyond any byte on the same side, and the
        # last pack saturates it to the same bound.
        full = [rounded[min(i, len(rounded) - 1)] for i in range(PACKED)]
        halves = []
        for pair in (full[:2], full[2:]):
            half = e.target.narrow_words(e, *pair)
            moved = e.intrinsic("llvm.sadd.sat", half, scalar(half.type, self.zero_point))
            halves.append(bounded_words(e, moved, int(self.lo), int(self.hi)))
        return e.target.narrow_bytes(e, *halves)

    def _in_order(self, e: Emitter, packed: Value) -> Value:
        """Bring packed bytes into order, in groups of four: packs within 128 bits mix their vectors."""
        parts = self.lanes // 4
        if parts == 1:
            return packed
        groups = vec(I32, self.lanes)
        order = [PACKED * (i % parts) + i // parts for i in range(self.lanes)]
        value = e.b.bitcast(packed, groups)
        value = e.shuffle(value, None, order)
        return e.b.bitcast(value, packed.type)


def bounded_words(e: Emitter, half: Value, low: int, high: int) -> Value:
    """Clamp int16 that become bytes of activations to bounds; both have the activation bias.

    A bound that is the end of the range of int8 costs no instruction: the pack to bytes saturates there.
    Bytes are not clamped themselves: for AVX-512 VBMI, LLVM 22 does not terminate on a clamp of bytes in
    front of a shuffle whose result is stored in parts of eight.
    """
    target = e.target
    for name, bound, neutral in (("max", low, target.smallest_byte), ("min", high, target.largest_byte)):
        if bound != neutral:
            half = e.intrinsic(f"llvm.s{name}", half, scalar(half.type, bound))
    return half


def store_part(e: Emitter, vector: Value, start: int, count: int, pointer: Value) -> None:
    """Store `count` elements of a vector from number `start` on, in the fewest pieces of powers of two."""
    size = 1 if vector.type.element == I8 else 4
    done = 0
    while done < count:
        piece = 1 << ((count - done).bit_length() - 1)
        part = vector
        if piece == 1:
            # LLVM 22 fails an assertion for some vectors of one lane.
            part = e.extract(vector, start + done)
        elif piece != vector.type.count:
            part = e.shuffle(vector, None, [start + done + i for i in range(piece)])
        e.store(part, e.offset(pointer, done * size), align=1)
        done += piece

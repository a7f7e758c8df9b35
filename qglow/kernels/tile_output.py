"""The end of a tile: int32 sums or float chains to int8 or float32 in memory (rule 5), or sums as they are.

Int8 results of up to four vectors are narrowed together by saturating packs, whose last step
is the clamp to 0..255 of activations that are held as unsigned bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from qglow.core.types import ElementType
from qglow.kernels.builder import F32, I8, I16, I32, Emitter, Value, scalar, vec
from qglow.kernels.kernel import Epilogue, Part, Pool, Site
from qglow.kernels.requantize import clamp_float

PACKED = 4
"""Vectors of 32-bit results that become one vector of bytes."""

Finished = tuple[Value, Sequence[Part]]
"""A vector of bytes, and where its lanes belong."""

PACKS = {
    16: ("llvm.x86.avx512.packssdw.512", "llvm.x86.avx512.packuswb.512"),
    8: ("llvm.x86.avx2.packssdw", "llvm.x86.avx2.packuswb"),
    4: ("llvm.x86.sse2.packssdw.128", "llvm.x86.sse2.packuswb.128"),
}


@dataclass(frozen=True)
class OutputStage:
    """What happens to a sum: kind of result, bounds and zero point.

    `is_result`: it is the result, but for bounds: a float chain, or an int32 sum that is kept.
    `to_bytes`: results are int8, else of four bytes.
    For an int8 result zero point and bounds are physical (0..255). `clamp_first` puts the
    clamp before the rounding, where sums may be too large to be rounded to int32. An `epilogue`
    goes on with int8 results before they are stored.
    """

    lanes: int
    is_result: bool
    to_bytes: bool
    lo: float
    hi: float
    zero_point: int = 0
    clamp_first: bool = False
    epilogue: Epilogue | None = None

    @staticmethod
    def of(site: Site, lanes: int, clamp_first: bool) -> OutputStage:
        """The stage at the site of an instruction with operands `src` and `dest` and bounds."""
        operation, dest = site.operation, site["dest"].type
        if dest.element is ElementType.INT32:
            return OutputStage(lanes, True, False, float("-inf"), float("inf"))
        from_float = site["src"].is_float
        bounds = {name: getattr(operation, name) for name in ("lo", "hi", "q_lo", "q_hi")}
        if dest.is_float:
            return OutputStage(lanes, from_float, False, bounds["lo"], bounds["hi"])
        assert dest.quantization is not None
        bias = site.isa.activation_bias
        low, high = bounds["q_lo"] + bias, bounds["q_hi"] + bias
        zero_point = dest.quantization.zero_point + bias
        return OutputStage(lanes, False, True, low, high, zero_point, clamp_first, site.epilogue)

    @property
    def pool(self) -> Pool | None:
        """What adds up results that are not stored."""
        return None if self.epilogue is None else self.epilogue.pool

    @property
    def element_bytes(self) -> int:
        """Bytes of one result."""
        return 1 if self.to_bytes else 4

    def emit(
        self,
        e: Emitter,
        pixels: Sequence[Sequence[Value]],
        multipliers: Sequence[Value],
        pointers: Sequence[Value],
        channels: int,
    ) -> None:
        """Store `channels` results of every pixel: sums [pixel][vector], addresses by pixel."""
        if not self.to_bytes:
            for sums, pointer in zip(pixels, pointers, strict=True):
                self._store_words(e, sums, multipliers, pointer, channels)
            return
        self._finish(e, self._bytes(e, pixels, multipliers, pointers, channels))

    def emit_interleaved(
        self, e: Emitter, sums: Sequence[Value], multipliers: Sequence[Value], pointer: Value, channels: int
    ) -> None:
        """Store one result of four vectors whose channels are in the order that packs undo.

        That is, within each 128 bits of bytes, four channels of each vector in turn.
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
        self,
        e: Emitter,
        sums: Sequence[Value],
        multipliers: Sequence[Value],
        pointer: Value,
        channels: int,
    ) -> None:
        for index, total in enumerate(sums):
            value = self._word(e, total, multipliers, index)
            count = min(self.lanes, channels - index * self.lanes)
            store_part(e, value, 0, count, e.offset(pointer, index * self.lanes * 4))

    def _word(self, e: Emitter, total: Value, multipliers: Sequence[Value], index: int) -> Value:
        """A result of four bytes; without multipliers where sums are results."""
        value = total if self.is_result else self._scaled(e, total, multipliers[index])
        return clamp_float(e, value, self.lo, self.hi)

    def _bytes(
        self,
        e: Emitter,
        pixels: Sequence[Sequence[Value]],
        multipliers: Sequence[Value],
        pointers: Sequence[Value],
        channels: int,
    ) -> Iterator[Finished]:
        """Bytes in order, with their parts: of pixels of few vectors, or of four vectors of one pixel."""
        count = len(pixels[0])
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

    def _finish(self, e: Emitter, tile: Iterable[Finished]) -> None:
        """Bound bytes that are in order, pass them through the epilogue, and store them or add them up."""
        summed: list[Finished] = []
        for packed, parts in tile:
            results = self._bounded(e, packed)
            if self.epilogue is not None:
                results = self.epilogue.apply(e, results, parts)
            if self.pool is not None:
                summed.append((results, parts))
                continue
            for part in parts:
                store_part(e, results, part.lane, part.count, part.pointer)
        if self.pool is not None:
            self.pool.add(e, summed)

    def _scaled(self, e: Emitter, total: Value, multiplier: Value) -> Value:
        value = e.b.sitofp(total, vec(F32, self.lanes))
        return e.b.fmul(value, multiplier)

    def _rounded(self, e: Emitter, total: Value, multiplier: Value) -> Value:
        """float32(sum) * multiplier, rounded half to even, as int32."""
        value = self._scaled(e, total, multiplier)
        if self.clamp_first:
            value = clamp_float(e, value, self.lo - self.zero_point, self.hi - self.zero_point)
        name = f"llvm.lrint.v{self.lanes}i32.v{self.lanes}f32"
        return e.call(name, vec(I32, self.lanes), [value])

    def _pack(self, e: Emitter, rounded: list[Value]) -> Value:
        """Up to four int32 vectors to bytes in their order; zero point added."""
        words, bytes_ = vec(I16, 2 * self.lanes), vec(I8, 4 * self.lanes)
        to_words, to_bytes = PACKS[self.lanes]
        full = [rounded[min(i, len(rounded) - 1)] for i in range(PACKED)]
        halves = []
        for pair in (full[:2], full[2:]):
            half = e.call(to_words, words, pair)
            halves.append(e.intrinsic("llvm.sadd.sat", half, scalar(words, self.zero_point)))
        return e.call(to_bytes, bytes_, halves)

    def _bounded(self, e: Emitter, packed: Value) -> Value:
        """Bytes within the bounds; saturation has kept them within 0..255.

        Done on bytes that are in order already: LLVM 22 does not come to an end over bounds in
        front of a shuffle whose result is stored in parts of eight bytes.
        """
        for name, bound, neutral in (("umax", int(self.lo), 0), ("umin", int(self.hi), 255)):
            if bound != neutral:
                packed = e.intrinsic(f"llvm.{name}", packed, scalar(packed.type, bound))
        return packed

    def _in_order(self, e: Emitter, packed: Value) -> Value:
        """Packs work within 128 bits: bring the groups of four bytes back into order."""
        parts = self.lanes // 4
        if parts == 1:
            return packed
        groups = vec(I32, self.lanes)
        order = [PACKED * (i % parts) + i // parts for i in range(self.lanes)]
        value = e.b.bitcast(packed, groups)
        value = e.shuffle(value, None, order)
        return e.b.bitcast(value, packed.type)


def store_part(e: Emitter, vector: Value, start: int, count: int, pointer: Value) -> None:
    """Store `count` elements from element `start` in as few stores of powers of two as fit."""
    size = 1 if vector.type.element == I8 else 4
    done = 0
    while done < count:
        piece = 1 << ((count - done).bit_length() - 1)
        part = vector
        if piece != vector.type.count:
            part = e.shuffle(vector, None, [start + done + i for i in range(piece)])
        e.store(part, e.offset(pointer, done * size), align=1)
        done += piece

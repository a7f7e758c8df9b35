"""Pooling over NHWC images: vectors of channels, windows cut at the image's edges at compile time.

Positions whose windows reach over the same taps form one segment of an axis and share one loop,
so no padding is ever read and no index is checked.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from qglow.instructions.ops.pool import AveragePool, MaxPool
from qglow.instructions.program import Instruction
from qglow.kernels.builder import F32, I8, I16, I32, Emitter, Index, Value, scalar, vec
from qglow.kernels.isa import Isa
from qglow.kernels.kernel import Kernel, Site, candidates_for, kernel
from qglow.kernels.operand import Memory, is_biased
from qglow.kernels.requantize import emit_requantize, fits_rounding, integer_range, steps_limit, widen_centred
from qglow.numerics.pool import average_multiplier
from qglow.numerics.reductions import PARTIAL_SUMS

MANY_TAPS = 64
"""Windows of more taps than this are loops."""
WORD_TAPS = 257
"""So many bytes add up to no more than 16 bits hold."""
MOST_TAPS = 1024
"""Where all windows together have more taps than this, every window is loops."""


@dataclass(frozen=True, slots=True)
class Segment:
    """Positions start..stop of one axis whose windows cover taps first..last (exclusive) of the image.

    `padded` is how many taps lie in the image or in its padding.
    """

    start: int
    stop: int
    first: int
    last: int
    padded: int


def segments(
    extent: int, size: int, kernel: int, stride: int, pads: tuple[int, int], dilation: int = 1
) -> list[Segment]:
    """The positions of an axis of `size` elements, grouped by the taps inside the image.

    `pads` are those before and after the image.
    """
    found: list[Segment] = []
    for position in range(extent):
        origin = position * stride - pads[0]
        # The first tap at or beyond each end: the padding's, the image's, the image's, the padding's.
        ends = (origin + pads[0], origin, origin - size, origin - size - pads[1])
        before, first, last, beyond = (min(max(0, -(end // dilation)), kernel) for end in ends)
        taps = (first, last, beyond - before)
        if found and (found[-1].first, found[-1].last, found[-1].padded) == taps:
            found[-1] = Segment(found[-1].start, position + 1, *taps)
        else:
            found.append(Segment(position, position + 1, *taps))
    return found


@dataclass(frozen=True)
class Window:
    """The taps of one segment pair, for one vector of channels at `origin` (tap 0, 0)."""

    e: Emitter
    src: Memory
    origin: Value
    rows: Segment
    columns: Segment
    kernel_width: int
    dilations: tuple[int, int]
    lanes: int
    count: int | None
    most_taps: int

    @property
    def taps(self) -> int:
        """Taps inside the image."""
        return (self.rows.last - self.rows.first) * (self.columns.last - self.columns.first)

    def tap(self, row: Index, column: int) -> Value:
        """The vector at a tap."""
        pairs = zip(self.src.strides[1:3], self.dilations, strict=True)
        steps = [stride * dilation * self.src.element_bytes for stride, dilation in pairs]
        pointer = self.e.offset(self.origin, self.e.scaled(row, steps[0]))
        pointer = self.e.offset(pointer, column * steps[1])
        return self.e.load_lanes(pointer, self.src.element, self.lanes, self.count)

    def fold(
        self, initial: list[Value], step: Callable[[list[Value], int, Value], list[Value]], period: int = 1
    ) -> list[Value]:
        """`values = step(values, index mod period, tap)` over all taps in ascending order.

        `index` is `row * kernel width + column`. More than `most_taps` become a loop over as many rows as
        bring the index back to 0 modulo `period`.
        """
        values, e = list(initial), self.e
        first, last = self.rows.first, self.rows.last
        group = period // math.gcd(period, self.kernel_width)
        looped = (last - first) // group * group if self.taps > self.most_taps else 0
        if looped > group:
            with e.carrying_loop(first, first + looped, values, group, "row") as carry:
                inside = list(carry.values)
                for row in range(group):
                    number = first + row
                    inside = self._row(inside, step, period, e.plus(carry.index, row), number)
                carry.next(inside)
            values, first = carry.values, first + looped
        for row in range(first, last):
            values = self._row(values, step, period, row, row)
        return values

    def _row(
        self,
        values: list[Value],
        step: Callable[[list[Value], int, Value], list[Value]],
        period: int,
        row: Index,
        number: int,
    ) -> list[Value]:
        for column in range(self.columns.first, self.columns.last):
            index = (number * self.kernel_width + column) % period
            values = step(values, index, self.tap(row, column))
        return values


@dataclass(frozen=True)
class _PoolKernel(Kernel):
    """Loops over positions and channels around `result`, which subclasses emit."""

    lanes: int

    def cost(self, instruction: Instruction, isa: Isa) -> float:
        """One load and operation a tap and vector."""
        taps = int(math.prod(instruction.operation.kernel))  # type: ignore[attr-defined]
        return taps * instruction.operand("dest").type.size / self.lanes * 1.5

    def result(self, site: Site, window: Window) -> Value:
        """The vector of dest's elements."""
        raise NotImplementedError

    def emit(self, site: Site) -> None:
        """Images, then the segments of rows and columns, then channels.

        Threads share images or rows, of whichever there are more.
        """
        e, dest = site.e, site["dest"]
        images, height = dest.shape[:2]
        by_image = images > height
        share = e.share(height, not by_image)
        with e.loop(*e.share(images, by_image), name="image") as image:
            pairs = list(_segment_pairs(site))
            total = sum((r.last - r.first) * (c.last - c.first) for r, c in pairs)
            most_taps = MANY_TAPS if total <= MOST_TAPS else 0
            for rows, columns in pairs:
                with (
                    e.shared_loop(share, rows.start, rows.stop - rows.start, name="y") as row,
                    e.loop(columns.start, columns.stop, name="x") as x,
                ):
                    self._channels(site, image, e.plus(row, rows.start), x, (rows, columns), most_taps)

    def _channels(
        self, site: Site, image: Index, y: Index, x: Index, taps: tuple[Segment, Segment], most_taps: int
    ) -> None:
        e, dest, src, operation = site.e, site["dest"], site["src"], site.operation
        row = e.plus(e.scaled(y, operation.strides[0]), -operation.pads[0])
        column = e.plus(e.scaled(x, operation.strides[1]), -operation.pads[1])
        origin, place = src.at(e, image, row, column, 0), dest.at(e, image, y, x, 0)

        def vector(channel: Index, count: int | None) -> None:
            start = e.offset(origin, e.scaled(channel, src.element_bytes))
            width, dilations = operation.kernel[1], operation.dilations
            window = Window(e, src, start, *taps, width, dilations, self.lanes, count, most_taps)
            value = self.result(site, window)
            e.store_lanes(value, e.offset(place, e.scaled(channel, dest.element_bytes)), count)

        channels = dest.shape[3]
        whole = channels // self.lanes * self.lanes
        if whole:
            with e.loop(0, whole, self.lanes, "channel") as channel:
                vector(channel, None)
        if channels > whole:
            vector(whole, channels - whole)


def _segment_pairs(site: Site) -> Iterator[tuple[Segment, Segment]]:
    operation, src, dest = site.operation, site["src"].shape, site["dest"].shape
    rows, columns = (
        segments(
            dest[1 + i],
            src[1 + i],
            operation.kernel[i],
            operation.strides[i],
            (operation.pads[i], operation.pads[i + 2]),
            operation.dilations[i],
        )
        for i in (0, 1)
    )
    for row in rows:
        for column in columns:
            yield row, column


@kernel
@dataclass(frozen=True)
class MaxPooling(_PoolKernel):
    """The largest element; of bytes with the bias added, which keeps their order, or of signed int16."""

    name: ClassVar[str] = "maxpool"
    uses_scales: ClassVar[bool] = False

    def result(self, site: Site, window: Window) -> Value:
        """NaN wins over everything in floats."""
        e, is_float = site.e, site["src"].is_float
        kind = vec(site["src"].element, self.lanes)
        name, least = ("llvm.umax", 0) if kind.element == I8 else ("llvm.smax", -(1 << 15))
        lowest = scalar(kind, float("-inf") if is_float else least)

        def step(values: list[Value], _: int, tap: Value) -> list[Value]:
            return [_float_max(e, values[0], tap) if is_float else e.intrinsic(name, values[0], tap)]

        return window.fold([lowest], step)[0]


def _float_max(e: Emitter, a: Value, b: Value) -> Value:
    larger = e.b.select(e.b.fcmp_ordered(">", a, b), a, b)
    return e.b.select(e.b.fcmp_unordered("uno", a, a), a, larger)


@kernel
@dataclass(frozen=True)
class AveragePooling(_PoolKernel):
    """Exact integer sums, or floats in the 16 partial sums of the numeric contract."""

    name: ClassVar[str] = "averagepool"

    def result(self, site: Site, window: Window) -> Value:
        """The mean over the taps that count."""
        padded = window.rows.padded * window.columns.padded
        count = padded if site.operation.count_include_pad else window.taps
        if site["src"].is_float:
            return self._float_mean(window, count)
        return self._int8_mean(site, window, count)

    def _float_mean(self, window: Window, count: int) -> Value:
        e, kind = window.e, vec(F32, self.lanes)
        partial = window.fold([scalar(kind, 0.0)] * PARTIAL_SUMS, _add_to_partial(e), PARTIAL_SUMS)
        while len(partial) > 1:
            half = len(partial) // 2
            partial = [e.b.fadd(partial[i], partial[half + i]) for i in range(half)]
        return e.b.fdiv(partial[0], scalar(kind, count))

    def _int8_mean(self, site: Site, window: Window, count: int) -> Value:
        in_words = self.lanes > site.isa.float_lanes and window.taps <= WORD_TAPS
        sums = self._word_sums(window) if in_words else [self._sum(window)]
        return emit_means(window.e, sums, site["src"], site["dest"], window.taps, count)

    def _sum(self, window: Window) -> Value:
        """The sum of all taps, byte by byte."""
        e = window.e

        def step(values: list[Value], _: int, tap: Value) -> list[Value]:
            return [e.b.add(values[0], widen_centred(e, tap, 0))]

        return window.fold([scalar(vec(I32, self.lanes), 0)], step)[0]

    def _word_sums(self, window: Window) -> list[Value]:
        """The sums of every fourth byte from the first, second, third and fourth on, added up in words."""
        e, words = window.e, vec(I16, self.lanes // 2)

        def step(values: list[Value], _: int, tap: Value) -> list[Value]:
            return add_words(e, values, tap)

        return split_words(e, window.fold([scalar(words, 0)] * 2, step))


def add_words(e: Emitter, sums: list[Value], results: Value) -> list[Value]:
    """Sums of a word each of the first and of the second byte of every pair, and those of one more vector."""
    words = sums[0].type
    pairs = e.b.bitcast(results, words)
    low, high = e.b.and_(pairs, scalar(words, 0xFF)), e.b.lshr(pairs, scalar(words, 8))
    return [e.b.add(sums[0], low), e.b.add(sums[1], high)]


def split_words(e: Emitter, sums: list[Value]) -> list[Value]:
    """int32 sums of every fourth byte from the first, second, third and fourth on, of `add_words`."""
    kind = vec(I32, sums[0].type.count // 2)
    found = [e.b.bitcast(value, kind) for value in sums]
    lows = [e.b.and_(value, scalar(kind, 0xFFFF)) for value in found]
    return [*lows, *(e.b.lshr(value, scalar(kind, 16)) for value in found)]


def emit_means(e: Emitter, sums: Sequence[Value], src: Memory, dest: Memory, taps: int, count: int) -> Value:
    """Rule 6, averages: bytes of dest from int32 sums of `taps` bytes of src, divided by `count`.

    Sums are of every fourth channel in turn where they are four vectors.
    """
    assert src.type.quantization is not None and dest.type.quantization is not None
    factor = float(average_multiplier(src.type.quantization, dest.type.quantization, np.array(count)))
    proven = fits_rounding(steps_limit(src.type.quantization, taps * factor))
    result, lanes = integer_range(dest.type, dest.bias), sums[0].type.count
    means = []
    for total in sums:
        centred = e.b.sub(total, scalar(vec(I32, lanes), src.zero_point * taps))
        means.append(emit_requantize(e, centred, scalar(vec(F32, lanes), factor), result, proven))
    order = [part * lanes + lane for lane in range(lanes) for part in range(len(sums))]
    return means[0] if len(means) == 1 else e.shuffle(e.concat(means), None, order)


def _add_to_partial(e: Emitter) -> Callable[[list[Value], int, Value], list[Value]]:
    def step(values: list[Value], index: int, tap: Value) -> list[Value]:
        return [e.b.fadd(v, tap) if i == index else v for i, v in enumerate(values)]

    return step


@candidates_for(MaxPool)
def maxpool_candidates(instruction: Instruction, isa: Isa) -> list[Kernel]:
    """Whole registers, halved while the channels do not fill one."""
    kind = instruction.operand("dest").type
    lanes = isa.byte_lanes // kind.element.size
    while lanes > 16 and lanes // 2 >= kind.shape[3]:
        lanes //= 2
    return [MaxPooling(lanes)]


@candidates_for(AveragePool)
def averagepool_candidates(instruction: Instruction, isa: Isa) -> list[Kernel]:
    """One register of bytes where channels fill it, else of float32 or of int32 sums."""
    src = instruction.operand("src").type
    fills = is_biased(src) and src.shape[3] >= isa.byte_lanes
    return [AveragePooling(isa.byte_lanes if fills else isa.float_lanes)]

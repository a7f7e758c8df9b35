"""Pooling over NHWC images: loops over positions and vectors of channels, and the result of a window.

`window` combines the taps of a window, `means` computes the integer means.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from qglow.instructions.ops.pool import AveragePool, MaxPool
from qglow.instructions.program import Instruction
from qglow.kernels.arithmetic.requantize import (
    widen_centred,
)
from qglow.kernels.emit.builder import F32, I8, I16, I32, Index, Value, scalar, vec
from qglow.kernels.emit.emitter import Emitter
from qglow.kernels.emit.kernel import Kernel, Site, candidates_for, kernel
from qglow.kernels.emit.operand import is_int8_activation
from qglow.kernels.emit.target import VectorTarget
from qglow.kernels.pooling.means import WORD_TAPS, add_words, centred_means, emit_means, split_words
from qglow.kernels.pooling.window import Segment, Window, segment_pairs
from qglow.kernels.tiles.interleaved import unsigned_bytes
from qglow.numerics.reductions import PARTIAL_SUMS

MANY_TAPS = 64
"""Most taps of a window that are unrolled; larger windows are loops."""
MOST_TAPS = 1024
"""Most unrolled taps over all pairs of segments together; beyond it every window is a loop."""


@dataclass(frozen=True)
class _PoolKernel(Kernel):
    """Loops over positions and channels around `result`, which subclasses emit."""

    limits_live: ClassVar[bool] = True

    lanes: int

    def cost(self, instruction: Instruction, target: VectorTarget) -> float:
        """Cost of one load and one operation for each tap and vector."""
        taps = int(math.prod(instruction.operation.kernel))  # type: ignore[attr-defined]
        return taps * instruction.operand("dest").type.size / self.lanes * target.model.loops.pooled_vector

    def result(self, site: Site, window: Window) -> Value:
        """Emit the vector of dest's elements for one window."""
        raise NotImplementedError

    def emit(self, site: Site) -> None:
        """Emit loops over images, over positions by segments of rows and columns, and over channels.

        All positions of a pair of segments have the same taps inside the image, so one loop serves them
        without checks. Threads share images or rows, of whichever there are more.
        """
        e, dest = site.e, site["dest"]
        images, height = dest.shape[:2]
        by_image = images > height
        share = e.share(height, not by_image)
        first, end = e.share(images, by_image)
        with e.loop(first, e.minimum(end, e.live_images(dest.type)), name="image") as image:
            pairs = list(segment_pairs(site))
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


@kernel
@dataclass(frozen=True)
class MaxPooling(_PoolKernel):
    """Maximum of a window: of floats, of bytes in the order in which they are held, or of signed int16."""

    name: ClassVar[str] = "maxpool"
    uses_scales: ClassVar[bool] = False

    def result(self, site: Site, window: Window) -> Value:
        """Emit the maximum; of floats NaN wins over everything."""
        e, is_float = site.e, site["src"].is_float
        kind = vec(site["src"].element, self.lanes)
        name, least = "llvm.smax", -(1 << 15)
        if kind.element == I8:
            name, least = f"llvm.{e.target.byte_sort}max", e.target.smallest_byte
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
    """Mean of a window, from exact integer sums or the 16 partial float sums of the numeric contract."""

    name: ClassVar[str] = "averagepool"

    def result(self, site: Site, window: Window) -> Value:
        """Emit the mean of the taps inside the image; the divisor may count padded taps too."""
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
        in_words = self.lanes > site.target.float_lanes and window.taps <= WORD_TAPS
        e, src, dest, taps = window.e, site["src"], site["dest"], window.taps
        if in_words:
            return emit_means(e, self._word_sums(window), src, dest, taps, count)
        return centred_means(e, [self._sum(window)], src, dest, src.zero_point * taps, taps, count)

    def _sum(self, window: Window) -> Value:
        """Sum up all taps in int32, a lane for each channel."""
        e = window.e

        def step(values: list[Value], _: int, tap: Value) -> list[Value]:
            return [e.b.add(values[0], widen_centred(e, tap, 0))]

        return window.fold([scalar(vec(I32, self.lanes), 0)], step)[0]

    def _word_sums(self, window: Window) -> list[Value]:
        """Sum up all taps in 16 bits; returns int32 sums of bytes 0, 4, 8 ..., of 1, 5, 9 ..., and so on."""
        e, words = window.e, vec(I16, self.lanes // 2)

        def step(values: list[Value], _: int, tap: Value) -> list[Value]:
            return add_words(e, values, unsigned_bytes(e, tap))

        return split_words(e, window.fold([scalar(words, 0)] * 2, step))


def _add_to_partial(e: Emitter) -> Callable[[list[Value], int, Value], list[Value]]:
    def step(values: list[Value], index: int, tap: Value) -> list[Value]:
        return [e.b.fadd(v, tap) if i == index else v for i, v in enumerate(values)]

    return step


@candidates_for(MaxPool)
def maxpool_candidates(instruction: Instruction, target: VectorTarget) -> list[Kernel]:
    """Return the kernel for vectors of a whole register, halved while all channels fit into half of it."""
    kind = instruction.operand("dest").type
    lanes = target.byte_lanes // kind.element.size
    while lanes > 16 and lanes // 2 >= kind.shape[3]:
        lanes //= 2
    return [MaxPooling(lanes)]


@candidates_for(AveragePool)
def averagepool_candidates(instruction: Instruction, target: VectorTarget) -> list[Kernel]:
    """Return the kernel for a register of bytes where channels fill it, else of float32 or of int32 sums."""
    src = instruction.operand("src").type
    fills = target.interleaves and is_int8_activation(src) and src.shape[3] >= target.byte_lanes
    return [AveragePooling(target.byte_lanes if fills else target.float_lanes)]

"""Statistics of a float value: histogram and finite range, and for every channel finite range and sum.

The order of the float64 additions depends on shapes only: for channels on the last axis one
sum a channel, for others 16 interleaved partial sums and then a pairwise tree, over the other
axes in the order of memory. So neither the ISA nor the batch changes a bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

from qglow.instructions.ops.profile import RecordProfile
from qglow.instructions.program import Instruction
from qglow.kernels.emit.builder import F32, F64, I32, I64, Index, Value, constant_vector, scalar, vec
from qglow.kernels.emit.emitter import Emitter
from qglow.kernels.emit.kernel import Kernel, Site, candidates_for, kernel
from qglow.kernels.emit.operand import Memory, contiguous_runs
from qglow.kernels.emit.target import VectorTarget
from qglow.kernels.reduction.softmax import keep, reduce_lanes
from qglow.numerics.histogram import NAN_BIN, POSITIVE_INFINITY_BIN, POSITIVE_ZERO_BIN
from qglow.numerics.reductions import PARTIAL_SUMS

LANES = PARTIAL_SUMS
BIN_SHIFT = 16
INFINITY_BITS = 0x7F800000
MAGNITUDE_BITS = 0x7FFFFFFF
ZEROS_OF_LANES = POSITIVE_INFINITY_BIN + 1
"""Bins of patterns that are NaN, which are all counted in `NAN_BIN`: free for use while counting."""

Values = list[Value]


@kernel
@dataclass(frozen=True)
class Statistics(Kernel):
    """Statistics in one pass for counts and range, and another for channels."""

    name: ClassVar[str] = "statistics"

    def cost(self, instruction: Instruction, target: VectorTarget) -> float:
        """Cost of incrementing a counter for each element."""
        return instruction.operand("src").type.size * target.model.loops.counted_element

    def emit(self, site: Site) -> None:
        """Emit counts and range, and the statistics of channels if there is an axis of them."""
        e, src = site.e, site["src"]
        found = _count(site)
        for place, value, better in zip((0, 4), found, (_lower, _higher), strict=True):
            pointer = e.offset(site["range"].pointer, place)
            e.store(better(e, e.load(pointer, F32), value), pointer)
        axis = site.operation.channel_axis
        if axis is None:
            return
        if src.strides[axis] == 1 and axis == len(src.shape) - 1:
            _channels_last(site)
        else:
            _channels_apart(site, axis)


def _fold(
    e: Emitter,
    memory: Memory,
    initial: Values,
    step: Callable[[Values, Value, int | None], Values],
) -> Values:
    """`values = step(values, vector, count)` over all elements in the order of memory."""
    runs = contiguous_runs(memory.shape, [memory.strides], [4])

    def nest(level: int, pointer: Value, values: Values) -> Values:
        if level < len(runs.outer):
            extent, (stride,) = runs.outer[level]
            with e.carrying_loop(0, extent, values, name="outer") as carry:
                inner = e.offset(pointer, e.scaled(carry.index, stride))
                carry.next(nest(level + 1, inner, list(carry.values)))
            return carry.values
        whole = runs.length // LANES * LANES
        if whole:
            with e.carrying_loop(0, whole, values, LANES, "vector") as carry:
                place = e.offset(pointer, e.scaled(carry.index, 4))
                carry.next(step(list(carry.values), e.load_lanes(place, F32, LANES), None))
            values = carry.values
        if runs.length > whole:
            rest = runs.length - whole
            vector = e.load_lanes(e.offset(pointer, whole * 4), F32, LANES, rest)
            values = step(list(values), vector, rest)
        return values

    return nest(0, memory.pointer, initial)


def _count(site: Site) -> tuple[Value, Value]:
    """Count every element in its bin; returns the smallest and the largest finite element."""
    e, kind = site.e, vec(F32, LANES)
    counts = site["counts"].pointer

    def step(values: Values, x: Value, count: int | None) -> Values:
        bins = _zeros_apart(e, _bins(e, x))
        # One lane after the other: several may have one bin, and a scatter would count them once.
        for lane in range(LANES if count is None else count):
            index = e.b.zext(e.extract(bins, lane), I64)
            counter = e.offset(counts, e.scaled(index, 8))
            e.store(e.b.add(e.load(counter, I64), e.index(1)), counter)
        return _narrow(e, values, x, _finite(e, x), count)

    low, high = _fold(e, site["src"], [scalar(kind, math.inf), scalar(kind, -math.inf)], step)
    _join_zeros(e, counts)
    return (
        reduce_lanes(e, low, lambda a, b: _lower(e, a, b)),
        reduce_lanes(e, high, lambda a, b: _higher(e, a, b)),
    )


def _bins(e: Emitter, x: Value) -> Value:
    kind = vec(I32, LANES)
    bins = e.b.lshr(e.b.bitcast(x, kind), scalar(kind, BIN_SHIFT))
    return e.b.select(e.b.fcmp_unordered("uno", x, x), scalar(kind, NAN_BIN), bins)


def _zeros_apart(e: Emitter, bins: Value) -> Value:
    """Replace the bin of zero by a separate one for each lane.

    Half of what a ReLU gives is zero, and repeated increments of one counter wait for memory.
    """
    kind = vec(I32, LANES)
    of_lanes = constant_vector(I32, [ZEROS_OF_LANES + lane for lane in range(LANES)])
    return e.b.select(e.b.icmp_unsigned("==", bins, scalar(kind, POSITIVE_ZERO_BIN)), of_lanes, bins)


def _join_zeros(e: Emitter, counts: Value) -> None:
    """Add the counts of the lanes' bins to the bin of zero, and reset the lanes' bins to 0."""
    kind = vec(I64, LANES)
    of_lanes = e.offset(counts, 8 * ZEROS_OF_LANES)
    zeros = e.offset(counts, 8 * POSITIVE_ZERO_BIN)
    found = reduce_lanes(e, e.load(of_lanes, kind), e.b.add)
    e.store(e.b.add(e.load(zeros, I64), found), zeros)
    e.store(scalar(kind, 0), of_lanes)


def _finite(e: Emitter, x: Value) -> Value:
    """A mask of the lanes that are neither infinite nor NaN."""
    kind = vec(I32, LANES)
    magnitude = e.b.and_(e.b.bitcast(x, kind), scalar(kind, MAGNITUDE_BITS))
    return e.b.icmp_signed("<", magnitude, scalar(kind, INFINITY_BITS))


def _narrow(e: Emitter, values: Values, x: Value, finite: Value, count: int | None) -> Values:
    """Update (low, high) with the finite lanes of x; -0.0 counts as 0.0, so that order does not matter."""
    low, high = values
    x = e.b.fadd(x, scalar(x.type, 0.0))
    for_low = keep(e, e.b.select(finite, x, scalar(x.type, math.inf)), count, math.inf)
    for_high = keep(e, e.b.select(finite, x, scalar(x.type, -math.inf)), count, -math.inf)
    return [_lower(e, low, for_low), _higher(e, high, for_high)]


def _lower(e: Emitter, old: Value, new: Value) -> Value:
    return e.b.select(e.b.fcmp_ordered("<", new, old), new, old)


def _higher(e: Emitter, old: Value, new: Value) -> Value:
    return e.b.select(e.b.fcmp_ordered(">", new, old), new, old)


def _wide(e: Emitter, x: Value, finite: Value) -> Value:
    """Convert the finite lanes to float64, the others to 0."""
    return e.b.fpext(e.b.select(finite, x, scalar(x.type, 0.0)), vec(F64, LANES))


def _channels_last(site: Site) -> None:
    """Emit statistics of channels on the last axis: vectors of channels, down all positions of a sample."""
    e, src = site.e, site["src"]
    batch, channels = src.shape[0], src.shape[-1]
    whole = channels // LANES * LANES
    with e.loop(0, batch, name="sample") as sample:
        for first, last, count in ((0, whole, None), (whole, channels, channels - whole)):
            if first == last:
                continue
            with e.loop(first, last, LANES, "channel") as channel:
                start = e.offset(src.pointer, e.scaled(sample, src.strides[0] * 4))
                _sample_channels(site, e.offset(start, e.scaled(channel, 4)), sample, channel, count)


def _sample_channels(site: Site, start: Value, sample: Index, channel: Index, count: int | None) -> None:
    e, src = site.e, site["src"]
    channels = src.shape[-1]

    def step(values: Values, pointer: Value) -> Values:
        x = e.load_lanes(pointer, F32, LANES, count)
        finite = _finite(e, x)
        return [*_narrow(e, values[:2], x, finite, None), e.b.fadd(values[2], _wide(e, x, finite))]

    positions = contiguous_runs(src.shape[1:-1] + (1,), [(*src.strides[1:-1], 0)], [4]).outer

    def nest(level: int, pointer: Value, values: Values) -> Values:
        if level == len(positions):
            return step(values, pointer)
        extent, (stride,) = positions[level]
        with e.carrying_loop(0, extent, values, name="position") as carry:
            inner = e.offset(pointer, e.scaled(carry.index, stride))
            carry.next(nest(level + 1, inner, list(carry.values)))
        return carry.values

    kind = vec(F32, LANES)
    initial = [scalar(kind, math.inf), scalar(kind, -math.inf), scalar(vec(F64, LANES), 0.0)]
    low, high, total = nest(0, start, initial)
    ranges = e.offset(site["channel_range"].pointer, e.scaled(channel, 4))
    for row, value, better in ((0, low, _lower), (1, high, _higher)):
        pointer = e.offset(ranges, row * channels * 4)
        e.store_lanes(better(e, e.load_lanes(pointer, F32, LANES, count), value), pointer, count)
    sums = e.offset(site["channel_sums"].pointer, e.scaled(sample, channels * 8))
    e.store_lanes(total, e.offset(sums, e.scaled(channel, 8)), count)


def _channels_apart(site: Site, axis: int) -> None:
    """Emit statistics of each channel of each sample on its own, with vectors along the other axes."""
    e, src = site.e, site["src"]
    batch, channels = src.shape[0], src.shape[axis]
    rest = [a for a in range(1, len(src.shape)) if a != axis]
    shape = tuple(src.shape[a] for a in rest) or (1,)
    strides = tuple(src.strides[a] for a in rest) or (1,)
    outer = ((batch, (src.strides[0] * 4,)), (channels, (src.strides[axis] * 4,)))
    with e.loop(0, batch, name="sample") as sample, e.loop(0, channels, name="channel") as channel:
        pointer = src.pointer
        for index, (_, (stride,)) in zip((sample, channel), outer, strict=True):
            pointer = e.offset(pointer, e.scaled(index, stride))
        part = replace(src, pointer=pointer, type=src.type.with_shape(shape), strides=strides)
        low, high, total = _statistics(e, part)
        for row, value, better in ((0, low, _lower), (1, high, _higher)):
            place = e.offset(site["channel_range"].pointer, e.scaled(e.plus(channel, row * channels), 4))
            e.store(better(e, e.load(place, F32), value), place)
        index = e.plus(e.scaled(sample, channels), channel)
        e.store(total, e.offset(site["channel_sums"].pointer, e.scaled(index, 8)))


def _statistics(e: Emitter, part: Memory) -> tuple[Value, Value, Value]:
    """Smallest, largest and sum of a memory's finite elements, scalars."""
    kind = vec(F32, LANES)

    def step(values: Values, x: Value, count: int | None) -> Values:
        finite = _finite(e, x)
        wide = keep(e, _wide(e, x, finite), count, 0.0)
        return [*_narrow(e, values[:2], x, finite, count), e.b.fadd(values[2], wide)]

    initial = [scalar(kind, math.inf), scalar(kind, -math.inf), scalar(vec(F64, LANES), 0.0)]
    low, high, total = _fold(e, part, initial, step)
    return (
        reduce_lanes(e, low, lambda a, b: _lower(e, a, b)),
        reduce_lanes(e, high, lambda a, b: _higher(e, a, b)),
        reduce_lanes(e, total, e.b.fadd),
    )


@candidates_for(RecordProfile)
def profile_candidates(instruction: Instruction, target: VectorTarget) -> list[Kernel]:
    """Return the one kernel."""
    return [Statistics()]

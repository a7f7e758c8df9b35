"""Means of int8 from integer sums (rule 6 of the numeric contract), and sums of bytes in 16-bit words."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from qglow.kernels.arithmetic.requantize import emit_requantize, fits_rounding, integer_range, steps_limit
from qglow.kernels.emit.builder import F32, I32, Value, scalar, vec
from qglow.kernels.emit.emitter import Emitter
from qglow.kernels.emit.operand import Memory
from qglow.kernels.tiles.interleaved import unsigned_zero_point
from qglow.numerics.pool import average_multiplier

WORD_TAPS = 257
"""Most unsigned bytes whose sum always fits into 16 bits: 257 * 255 = 65535."""


def add_words(e: Emitter, sums: list[Value], results: Value) -> list[Value]:
    """Add unsigned bytes to two vectors of 16-bit sums: of even bytes, and of odd ones."""
    # A mask and a shift take even and odd bytes apart where they lie; widening neighbours would move them
    # into other registers. Lanes are brought into order once, when the sums are complete.
    words = sums[0].type
    pairs = e.b.bitcast(results, words)
    low, high = e.b.and_(pairs, scalar(words, 0xFF)), e.b.lshr(pairs, scalar(words, 8))
    return [e.b.add(sums[0], low), e.b.add(sums[1], high)]


def split_words(e: Emitter, sums: list[Value]) -> list[Value]:
    """Widen the sums of `add_words` to four vectors of int32: of bytes 0, 4, 8 ..., of 1, 5, 9 ..., ..."""
    kind = vec(I32, sums[0].type.count // 2)
    found = [e.b.bitcast(value, kind) for value in sums]
    lows = [e.b.and_(value, scalar(kind, 0xFFFF)) for value in found]
    return [*lows, *(e.b.lshr(value, scalar(kind, 16)) for value in found)]


def emit_means(e: Emitter, sums: Sequence[Value], src: Memory, dest: Memory, taps: int, count: int) -> Value:
    """Rule 6, averages: bytes of dest from int32 sums of `taps` unsigned bytes of src, divided by `count`.

    Four vectors of sums are those of `split_words`, each of every fourth channel.
    """
    return centred_means(e, sums, src, dest, unsigned_zero_point(e, src.zero_point) * taps, taps, count)


def centred_means(
    e: Emitter, sums: Sequence[Value], src: Memory, dest: Memory, zero: int, taps: int, count: int
) -> Value:
    """Compute means as `emit_means` does, from sums of `taps` elements whose zero points add up to `zero`."""
    assert src.type.quantization is not None and dest.type.quantization is not None
    factor = float(average_multiplier(src.type.quantization, dest.type.quantization, np.array(count)))
    proven = fits_rounding(steps_limit(src.type.quantization, taps * factor))
    result, lanes = integer_range(dest.type, dest.bias), sums[0].type.count
    means = []
    for total in sums:
        centred = e.b.sub(total, scalar(vec(I32, lanes), zero))
        means.append(emit_requantize(e, centred, scalar(vec(F32, lanes), factor), result, proven))
    order = [part * lanes + lane for lane in range(lanes) for part in range(len(sums))]
    return means[0] if len(means) == 1 else e.shuffle(e.concat(means), None, order)

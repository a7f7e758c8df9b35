"""Conversion of whole registers of bytes to floats and back, by interleaving instead of widening.

Widening neighbouring bytes moves them across a register. Interleaving bytes with zeros stays within 128 bits
and takes fewer instructions, but changes the order of lanes. The packs at the end work within 128 bits too
and restore the order. In between, all vectors have the same changed order, so arithmetic may combine operands
that were interleaved alike, and constants whose lanes are equal.
"""

from __future__ import annotations

from collections.abc import Sequence

from qglow.kernels.arithmetic.requantize import IntegerRange, clamp_float
from qglow.kernels.emit.builder import F32, I16, Number, Value, scalar, vec
from qglow.kernels.emit.emitter import Emitter
from qglow.kernels.tiles.output import PACKED, bounded_words

MAGIC_WORD = 0x4B00
"""Upper 16 bits of a float32 whose value is exactly 2^23 + n if its lower 16 bits are n."""
MAGIC = float(1 << 23)
SIGN = 0x80


def fills_registers(e: Emitter, lanes: int) -> bool:
    """Whether a vector of `lanes` bytes fills whole registers, and the target interleaves them cheaply."""
    return e.target.interleaves and lanes % e.target.byte_lanes == 0


def unpack(e: Emitter, low: Value, high: Value, upper: bool) -> Value:
    """Interleave the elements of two vectors, from the lower (or `upper`) half of each 128 bits of both."""
    count = low.type.count
    half = 128 // low.type.element.width // 2
    lanes = []
    for part in range(0, count, 2 * half):
        first = part + half if upper else part
        for lane in range(first, first + half):
            lanes += [lane, lane + count]
    return e.shuffle(low, high, lanes)


def unsigned_bytes(e: Emitter, q: Value) -> Value:
    """Convert int8 activations to unsigned bytes `q + 128`; with a bias of 128 they are that already."""
    return q if e.target.activation_bias else e.b.xor(q, scalar(q.type, SIGN))


def unsigned_zero_point(e: Emitter, zero_point: Number) -> Number:
    """Convert a zero point with the target's activation bias to that of `unsigned_bytes`."""
    return zero_point + (SIGN - e.target.activation_bias)


def centred_floats(e: Emitter, q: Value, zero_point: Number) -> list[Value]:
    """Convert bytes to `float32(q - zp)`: four registers of interleaved floats for each register of bytes."""
    width = e.target.byte_lanes
    words, floats = vec(I16, width // 2), vec(F32, width // 4)
    result = []
    for first in range(0, q.type.count, width):
        part = unsigned_bytes(e, e.shuffle(q, None, range(first, first + width)))
        for upper in (False, True):
            zeros = scalar(part.type, 0)
            wide = e.b.bitcast(unpack(e, part, zeros, upper), words)
            for half in (False, True):
                # A word n with 0x4B00 above it is the float 2^23 + n, without a conversion instruction. One
                # subtraction removes 2^23 and the zero point, exactly, as all are integers below 2^24.
                joined = unpack(e, wide, scalar(words, MAGIC_WORD), half)
                value = e.b.bitcast(joined, floats)
                result.append(e.b.fsub(value, scalar(floats, MAGIC + unsigned_zero_point(e, zero_point))))
    return result


def round_interleaved(e: Emitter, values: Sequence[Value], result: IntegerRange, proven: bool) -> Value:
    """Round interleaved floats, in units of the result's scale, half to even; add zero point, clamp, pack.

    `values`: registers from `centred_floats`, or computed from them; the result is bytes in their order in
    memory. `proven`: no magnitude reaches 2^30. Otherwise floats are clamped first, and NaN becomes the zero
    point.
    """
    bytes_ = [
        _round_register(e, values[first : first + PACKED], result, proven)
        for first in range(0, len(values), PACKED)
    ]
    return e.concat(bytes_)


def _round_register(e: Emitter, values: Sequence[Value], result: IntegerRange, proven: bool) -> Value:
    if not proven:
        low, high = result.low - result.zero_point, result.high - result.zero_point
        values = [_without_nan(e, clamp_float(e, value, low, high)) for value in values]
    rounded = [e.target.round_to_words(e, value) for value in values]
    halves = []
    for first in (0, 2):
        half = e.target.narrow_words(e, *rounded[first : first + 2])
        moved = e.intrinsic("llvm.sadd.sat", half, scalar(half.type, result.zero_point))
        halves.append(bounded_words(e, moved, result.low, result.high))
    return e.target.narrow_bytes(e, *halves)


def _without_nan(e: Emitter, value: Value) -> Value:
    return e.b.select(e.b.fcmp_unordered("uno", value, value), scalar(value.type, 0.0), value)

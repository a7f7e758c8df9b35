"""Whole registers of bytes to floats and back with fewer instructions than widening neighbours takes.

Bytes are interleaved within 128 bits and the packs at the end work within 128 bits, so that the
orders cancel. In between, every vector has its lanes in one order: fit for arithmetic of operands that
went the same way, or of constants that are alike in all lanes.
"""

from __future__ import annotations

from collections.abc import Sequence

from qglow.kernels.builder import F32, I8, I16, I32, Emitter, Value, scalar, suffix, vec
from qglow.kernels.requantize import IntegerRange, clamp_float
from qglow.kernels.tile_output import PACKED, PACKS

MAGIC_WORD = 0x4B00
"""As the upper half of a float32 it makes 2^23 + n of a lower half n below 2^16, exactly."""
MAGIC = float(1 << 23)


def fills_registers(e: Emitter, lanes: int) -> bool:
    """Whether this many bytes are whole registers, as the functions here need them."""
    return lanes % e.isa.byte_lanes == 0


def unpack(e: Emitter, low: Value, high: Value, upper: bool) -> Value:
    """Elements of the lower (or upper) halves of each 128 bits of two vectors, in turns."""
    count = low.type.count
    half = 128 // low.type.element.width // 2
    lanes = []
    for part in range(0, count, 2 * half):
        first = part + half if upper else part
        for lane in range(first, first + half):
            lanes += [lane, lane + count]
    return e.shuffle(low, high, lanes)


def centred_floats(e: Emitter, q: Value, zero_point: int) -> list[Value]:
    """`float32(q - zp)` of bytes: registers of floats, four for each register of bytes, interleaved."""
    width = e.isa.byte_lanes
    words, floats = vec(I16, width // 2), vec(F32, width // 4)
    result = []
    for first in range(0, q.type.count, width):
        part = e.shuffle(q, None, range(first, first + width))
        for upper in (False, True):
            zeros = scalar(part.type, 0)
            wide = e.b.bitcast(unpack(e, part, zeros, upper), words)
            for half in (False, True):
                joined = unpack(e, wide, scalar(words, MAGIC_WORD), half)
                value = e.b.bitcast(joined, floats)
                result.append(e.b.fsub(value, scalar(floats, MAGIC + zero_point)))
    return result


def round_interleaved(e: Emitter, values: Sequence[Value], result: IntegerRange, proven: bool) -> Value:
    """Clamp, round half to even, add the zero point: interleaved float32 steps to bytes in order.

    `proven` says that no magnitude reaches 2^30. Otherwise floats are clamped first, and NaN becomes the
    zero point.
    """
    bytes_ = [
        _round_register(e, values[first : first + PACKED], result, proven)
        for first in range(0, len(values), PACKED)
    ]
    return e.concat(bytes_)


def _round_register(e: Emitter, values: Sequence[Value], result: IntegerRange, proven: bool) -> Value:
    lanes = values[0].type.count
    whole, words, bytes_ = vec(I32, lanes), vec(I16, 2 * lanes), vec(I8, 4 * lanes)
    to_words, to_bytes = PACKS[lanes]
    if not proven:
        low, high = result.low - result.zero_point, result.high - result.zero_point
        values = [_without_nan(e, clamp_float(e, value, low, high)) for value in values]
    rounding = f"llvm.lrint.{suffix(whole)}.{suffix(values[0].type)}"
    rounded = [e.call(rounding, whole, [value]) for value in values]
    halves = []
    for first in (0, 2):
        half = e.call(to_words, words, rounded[first : first + 2])
        halves.append(e.intrinsic("llvm.sadd.sat", half, scalar(words, result.zero_point)))
    packed = e.call(to_bytes, bytes_, halves)
    for name, bound, neutral in (("umax", result.low, 0), ("umin", result.high, 255)):
        if bound != neutral:
            packed = e.intrinsic(f"llvm.{name}", packed, scalar(bytes_, bound))
    return packed


def _without_nan(e: Emitter, value: Value) -> Value:
    return e.b.select(e.b.fcmp_unordered("uno", value, value), scalar(value.type, 0.0), value)

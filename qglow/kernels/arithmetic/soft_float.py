"""Rules 1, 2, 5 and 6 of the numeric contract in integers, for processors without a float unit.

Every step of the float arithmetic is computed on bits: the conversion of a sum to float32, its product with a
multiplier, and the rounding to integers, each half to even. So results have the same bits as with floats.
"""

from __future__ import annotations

import math

import numpy as np
from llvmlite import ir

from qglow.kernels.emit.builder import F32, I1, I32, I64, Builder, Number, PerCall, Value, scalar, vec

FRACTION = 23
"""Bits of a float32 below its leading one."""
LEADING = 1 << FRACTION
EXPONENTS = 0xFF
UNITS = 150
"""Exponent field of numbers whose last bit counts units."""
SIGN = -(1 << 31)
INFINITY = EXPONENTS << FRACTION
"""Bits of an infinity; those of NaN are more."""
SMALLEST = 2.0**-100
"""Scales from here to the inverse of it have products with integers of 8 bits that are normal numbers."""
MOST_SHIFT = FRACTION + 3
"""Shift by which any number of 24 bits is rounded to 0."""


def round_in_integers(e: Builder, value: Value) -> Value:
    """Round float32 half to even to int32; of results beyond 2^22 only the sign is right.

    NaN becomes any number.
    """
    kind = vec(I32, value.type.count)
    bits = e.b.bitcast(value, kind)
    exponent = _exponent(e, bits)
    return _signed(e, _rounded(e, _digits(e, bits), e.b.sub(scalar(kind, UNITS), exponent)), bits)


def rescale_in_integers(e: Builder, total: Value, multiplier: Value) -> Value:
    """Compute float32(total) * multiplier, rounded half to even to int32, of int32 and positive float32.

    Of results beyond 2^22 only the sign is right.
    """
    kind = total.type
    bits = e.b.bitcast(multiplier, kind)
    magnitude = _signed(e, total, total)
    zeros = _leading_zeros(e, magnitude)
    # The leading one goes to the top, and 24 bits are kept. For 0 the shift does not matter.
    places = e.b.and_(zeros, scalar(kind, 31))
    kept = _halved_to_even(e, e.b.shl(magnitude, places), scalar(kind, 8))
    wide = vec(I64, kind.count)
    factors = e.b.shl(kept, scalar(kind, 7)), e.b.shl(_digits(e, bits), scalar(kind, 8))
    product = e.b.mul(*(e.b.zext(factor, wide) for factor in factors))
    upper = e.b.trunc(e.b.lshr(product, scalar(wide, 32)), kind)
    rest = e.b.icmp_unsigned("!=", e.b.trunc(product, kind), scalar(kind, 0))
    # The product has 30 or 31 bits here. One more says whether there are others below.
    sticky = e.b.or_(e.b.shl(upper, scalar(kind, 1)), e.b.zext(rest, kind))
    dropped = e.b.add(e.b.lshr(upper, scalar(kind, 30)), scalar(kind, 7))
    digits = _halved_to_even(e, sticky, dropped)
    shift = e.b.sub(e.b.sub(zeros, dropped), _exponent(e, bits))
    return _signed(e, _rounded(e, digits, e.b.add(shift, scalar(kind, 126))), total)


def is_plain(factor: Number) -> bool:
    """Whether a scale or a ratio of scales is known and has neither subnormal nor infinite products."""
    return not isinstance(factor, PerCall) and SMALLEST <= float(factor) <= 1.0 / SMALLEST


def divide_in_integers(e: Builder, value: Value, scale: float) -> Value:
    """Compute value / scale of float32 by a plain scale, rounded half to even to int32.

    Of results beyond 2^22 only the sign is right. NaN becomes any number.
    """
    kind = vec(I32, value.type.count)
    bits = e.b.bitcast(value, kind)
    digits, place = _taken_apart(scale)
    # An estimate of x * 2^31 / digits, of 31 or 32 bits and at most two too low, by the reciprocal.
    reciprocal = min((1 << 55) // digits, (1 << 32) - 1)
    x, wide = _digits(e, bits), vec(I64, kind.count)
    product = e.b.mul(e.b.zext(e.b.shl(x, scalar(kind, 8)), wide), scalar(wide, reciprocal))
    quotient = e.b.trunc(e.b.lshr(product, scalar(wide, 32)), kind)
    rest = e.b.sub(e.b.shl(x, scalar(kind, 31)), e.b.mul(quotient, scalar(kind, digits)))
    for _ in range(2):
        is_low = e.b.icmp_unsigned(">=", rest, scalar(kind, digits))
        quotient = e.b.add(quotient, e.b.zext(is_low, kind))
        rest = e.b.select(is_low, e.b.sub(rest, scalar(kind, digits)), rest)
    sticky = e.b.zext(e.b.icmp_unsigned("!=", rest, scalar(kind, 0)), kind)
    dropped = e.b.add(e.b.lshr(quotient, scalar(kind, 31)), scalar(kind, 7))
    rounded = _halved_to_even(e, e.b.or_(quotient, sticky), dropped)
    shift = e.b.sub(e.b.sub(scalar(kind, 31 + place + UNITS), dropped), _exponent(e, bits))
    return _signed(e, _rounded(e, rounded, shift), bits)


def nan_in_integers(e: Builder, value: Value) -> Value:
    """Whether float32 are NaN."""
    kind = vec(I32, value.type.count)
    twice = e.b.shl(e.b.bitcast(value, kind), scalar(kind, 1))
    return e.b.icmp_unsigned(">", twice, scalar(kind, 2 * INFINITY))


def scale_in_integers(e: Builder, steps: Value, scale: float) -> Value:
    """Compute float32(steps) * scale of int32 within 255 by a plain scale, as float32."""
    kind = steps.type
    digits, place = _taken_apart(scale)
    product = e.b.mul(_signed(e, steps, steps), scalar(kind, digits))
    zeros = e.b.and_(_leading_zeros(e, product), scalar(kind, 31))
    rounded = _halved_to_even(e, e.b.shl(product, zeros), scalar(kind, 8))
    # The leading one of the digits adds one to the exponent, as does a carry.
    exponent = e.b.sub(scalar(kind, place + UNITS + 8 - 1), zeros)
    bits = e.b.add(e.b.shl(exponent, scalar(kind, FRACTION)), rounded)
    bits = e.b.or_(bits, e.b.and_(steps, scalar(kind, SIGN)))
    is_zero = e.b.icmp_unsigned("==", steps, scalar(kind, 0))
    return e.b.bitcast(e.b.select(is_zero, scalar(kind, 0), bits), vec(F32, kind.count))


def sums_in_integers(lhs: Number, rhs: Number) -> bool:
    """Whether `add_in_integers` takes these ratios of scales: a sum of their products fits 63 bits."""
    if not (is_plain(lhs) and is_plain(rhs)):
        return False
    places = [_taken_apart(float(factor))[1] for factor in (lhs, rhs)]
    return abs(places[0] - places[1]) <= 29 and 1 <= -min(places) <= 62


def add_in_integers(e: Builder, lhs: Value, of_lhs: float, rhs: Value, of_rhs: float, sign: int) -> Value:
    """Compute float32(lhs) * of_lhs + sign * (float32(rhs) * of_rhs), rounded half to even to int32.

    lhs and rhs are int32 within 255, the ratios those that `sums_in_integers` takes. Of results beyond 2^22
    only the sign is right.
    """
    kind, wide = lhs.type, vec(I64, lhs.type.count)
    unit = min(_taken_apart(of_lhs)[1], _taken_apart(of_rhs)[1])
    left, right = _product(e, lhs, of_lhs, unit), _product(e, rhs, of_rhs, unit)
    total = e.b.add(left, right) if sign > 0 else e.b.sub(left, right)
    negative = e.b.ashr(total, scalar(wide, 63))
    total = e.b.sub(e.b.xor(total, negative), negative)
    # Rounding to 24 digits first matters only where it meets a half, which then goes to the even side: where
    # the distance of the exact sum from a half is at most half of its last digit.
    places = -unit
    whole = e.b.lshr(total, scalar(wide, places))
    kept = wide if places > 31 else kind
    rest = e.b.and_(total, scalar(wide, (1 << places) - 1))
    rest = rest if kept is wide else e.b.trunc(rest, kind)
    beyond = e.b.sub(rest, scalar(kept, 1 << (places - 1)))
    side = e.b.ashr(beyond, scalar(kept, kept.element.width - 1))
    distance = e.b.sub(e.b.xor(beyond, side), side)
    below = e.b.sub(distance, scalar(kept, 1))
    room = e.b.add(_leading_zeros(e, total), scalar(wide, 25 - 64 + kept.element.width))
    room = room if kept is wide else e.b.trunc(room, kind)
    is_near = e.b.icmp_signed(">=", _leading_zeros(e, below), room)
    is_half = e.b.or_(is_near, e.b.icmp_unsigned("==", distance, scalar(kept, 0)))
    whole = e.intrinsic("llvm.umin", whole, scalar(wide, 1 << 30))
    steps = e.b.trunc(whole, kind)
    up = e.b.zext(e.b.icmp_signed(">", beyond, scalar(kept, 0)), kind)
    steps = e.b.add(steps, e.b.select(is_half, e.b.and_(steps, scalar(kind, 1)), up))
    return _signed(e, steps, e.b.trunc(negative, kind))


def _product(e: Builder, steps: Value, factor: float, unit: int) -> Value:
    """float32(steps) * factor of int32 within 255, an i64 in units of 2^unit."""
    kind, wide = steps.type, vec(I64, steps.type.count)
    digits, place = _taken_apart(factor)
    exact = e.b.mul(_signed(e, steps, steps), scalar(kind, digits))
    product = e.b.zext(exact, wide)
    if digits % 256:
        # 24 of up to 32 bits are kept, where they are.
        dropped = e.intrinsic(
            "llvm.smax", e.b.sub(scalar(kind, 8), _leading_zeros(e, exact)), scalar(kind, 0)
        )
        mask = e.b.sub(e.b.shl(scalar(kind, 1), dropped), scalar(kind, 1))
        odd = e.b.and_(e.b.and_(e.b.lshr(exact, dropped), mask), scalar(kind, 1))
        moved = e.b.add(e.b.lshr(mask, scalar(kind, 1)), odd)
        product = e.b.and_(e.b.add(product, e.b.zext(moved, wide)), e.b.not_(e.b.zext(mask, wide)))
    product = e.b.shl(product, scalar(wide, place - unit))
    sign = e.b.sext(e.b.ashr(steps, scalar(kind, 31)), wide)
    return e.b.sub(e.b.xor(product, sign), sign)


def _taken_apart(factor: float) -> tuple[int, int]:
    """Digits of 24 bits and place of a normal positive float32: `digits * 2^place`."""
    fraction, exponent = math.frexp(float(np.float32(factor)))
    return int(fraction * (2 * LEADING)), exponent - FRACTION - 1


def _leading_zeros(e: Builder, value: Value) -> Value:
    kind = value.type
    name = f"llvm.ctlz.v{kind.count}i{kind.element.width}"
    return e.call(name, kind, [value, ir.Constant(I1, 0)])


def _exponent(e: Builder, bits: Value) -> Value:
    return e.b.and_(e.b.lshr(bits, scalar(bits.type, FRACTION)), scalar(bits.type, EXPONENTS))


def _digits(e: Builder, bits: Value) -> Value:
    """The 24 bits of a normal float32."""
    return e.b.or_(e.b.and_(bits, scalar(bits.type, LEADING - 1)), scalar(bits.type, LEADING))


def _signed(e: Builder, value: Value, like: Value) -> Value:
    """Negate where `like` is negative."""
    sign = e.b.ashr(like, scalar(like.type, 31))
    return e.b.sub(e.b.xor(value, sign), sign)


def _rounded(e: Builder, digits: Value, shift: Value) -> Value:
    """Divide 24 bits by two to the power of any number, half to even."""
    least = e.intrinsic("llvm.smax", shift, scalar(shift.type, 1))
    return _halved_to_even(e, digits, e.intrinsic("llvm.smin", least, scalar(shift.type, MOST_SHIFT)))


def _halved_to_even(e: Builder, value: Value, places: Value) -> Value:
    """Drop bits of an unsigned number, at least one, half to even."""
    kind = value.type
    one = scalar(kind, 1)
    whole = e.b.lshr(value, places)
    unit = e.b.shl(one, places)
    rest = e.b.and_(value, e.b.sub(unit, one))
    # With the half less one, what is beyond the half carries, and the half itself where the unit is odd.
    nearly = e.b.sub(e.b.lshr(unit, one), one)
    carried = e.b.add(e.b.add(rest, e.b.and_(whole, one)), nearly)
    return e.b.add(whole, e.b.lshr(carried, places))

"""Rules 5 and 6 of the numeric contract in integers, for processors without a float unit.

Every step of the float arithmetic is computed on bits: the conversion of a sum to float32, its product with a
multiplier, and the rounding to integers, each half to even. So results have the same bits as with floats.
"""

from __future__ import annotations

from llvmlite import ir

from qglow.kernels.emit.builder import I1, I32, I64, Builder, Value, scalar, vec

FRACTION = 23
"""Bits of a float32 below its leading one."""
LEADING = 1 << FRACTION
EXPONENTS = 0xFF
UNITS = 150
"""Exponent field of numbers whose last bit counts units."""
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
    zeros = e.call(f"llvm.ctlz.v{kind.count}i32", kind, [magnitude, ir.Constant(I1, 0)])
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

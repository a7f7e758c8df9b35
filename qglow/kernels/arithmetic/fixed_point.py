"""Rule 10 of the numeric contract as vector code: products with multipliers in fixed point.

See `numerics.fixed_point`, whose integers these are. Multipliers come as float32, which is taken apart into
digits and exponent; where they are constants LLVM does that.
"""

from __future__ import annotations

from qglow.kernels.emit.builder import I32, I64, Value, scalar, vec
from qglow.kernels.emit.emitter import Emitter
from qglow.numerics.fixed_point import FRACTION

_EXPONENT = 126
"""Exponent field of float32 from one half to one."""
_MANTISSA = (1 << 23) - 1
_DIGITS = 8
"""Bits by which 24 digits with their leading one are moved to the top of 32; one less leaves a sign."""


def multiply_fixed(e: Emitter, total: Value, multiplier: Value, proven: bool) -> Value:
    """Multiply int32 by positive float32, rounded twice. `proven`: max|total| * m < 2^30."""
    kind = vec(I32, total.type.count)
    bits = e.b.bitcast(multiplier, kind)
    exponent = e.b.sub(e.b.lshr(bits, scalar(kind, 23)), scalar(kind, _EXPONENT))
    digits = e.b.or_(e.b.and_(bits, scalar(kind, _MANTISSA)), scalar(kind, _MANTISSA + 1))
    is_tiny = e.b.icmp_signed("<", exponent, scalar(kind, -FRACTION))
    digits = e.b.select(is_tiny, scalar(kind, 0), e.b.shl(digits, scalar(kind, _DIGITS - 1)))
    up = _within(e, exponent)
    # A sum that is moved up is below 2^31 where its product is below 2^30.
    moved = e.b.shl(total, up) if proven else e.intrinsic("llvm.sshl.sat", total, up)
    return _divided(e, _high(e, moved, digits), _within(e, e.b.sub(scalar(kind, 0), exponent)))


def _within(e: Emitter, places: Value) -> Value:
    """Places of a shift, from 0 to 31."""
    least = e.intrinsic("llvm.smax", places, scalar(places.type, 0))
    return e.intrinsic("llvm.smin", least, scalar(places.type, FRACTION))


def _high(e: Emitter, value: Value, digits: Value) -> Value:
    """Upper half of the doubled product, ties upwards; digits are not negative, so it never saturates."""
    wide = vec(I64, value.type.count)
    product = e.b.mul(e.b.sext(value, wide), e.b.sext(digits, wide))
    moved = e.b.add(product, scalar(wide, 1 << (FRACTION - 1)))
    return e.b.trunc(e.b.lshr(moved, scalar(wide, FRACTION)), value.type)


def _divided(e: Emitter, value: Value, places: Value) -> Value:
    """Divide by 2^places, ties away from zero."""
    kind = value.type
    mask = e.b.sub(e.b.shl(scalar(kind, 1), places), scalar(kind, 1))
    threshold = e.b.add(e.b.lshr(mask, scalar(kind, 1)), e.b.lshr(value, scalar(kind, 31)))
    is_up = e.b.icmp_unsigned(">", e.b.and_(value, mask), threshold)
    return e.b.add(e.b.ashr(value, places), e.b.zext(is_up, kind))

"""Arithmetic of plain integers as vector code, with the results of numerics.integers."""

from __future__ import annotations

from qglow.core.types import ElementType
from qglow.kernels.emit.builder import Value, scalar
from qglow.kernels.emit.emitter import Emitter


def emit_quotient(e: Emitter, a: Value, b: Value, element: ElementType) -> Value:
    """Divide towards zero; 0 where `b` is 0. No lane traps: the divisors that would are replaced."""
    zero, one = scalar(b.type, 0), scalar(b.type, 1)
    nothing = e.b.icmp_unsigned("==", b, zero)
    if element.is_unsigned:
        found = e.b.udiv(a, e.b.select(nothing, one, b))
        return e.b.select(nothing, zero, found)
    negates = e.b.icmp_signed("==", b, scalar(b.type, -1))
    found = e.b.sdiv(a, e.b.select(e.b.or_(nothing, negates), one, b))
    return e.b.select(nothing, zero, e.b.select(negates, e.b.sub(zero, a), found))


def emit_operation(e: Emitter, operation: str, a: Value, b: Value, element: ElementType) -> Value:
    """Emit one of numerics.integers.OPERATIONS."""
    if operation in ("and", "or", "xor"):
        combine = {"and": e.b.and_, "or": e.b.or_, "xor": e.b.xor}[operation]
        return combine(a, b)
    if operation in ("left", "right"):
        return _emit_shift(e, operation, a, b, element)
    zero = scalar(a.type, 0)
    rest = e.b.sub(a, e.b.mul(emit_quotient(e, a, b, element), b))
    rest = e.b.select(e.b.icmp_unsigned("==", b, zero), zero, rest)
    if operation == "remainder" or element.is_unsigned:
        return rest
    turned = e.b.icmp_signed("<", e.b.xor(rest, b), zero)
    turned = e.b.and_(turned, e.b.icmp_unsigned("!=", rest, zero))
    return e.b.select(turned, e.b.add(rest, b), rest)


def _emit_shift(e: Emitter, operation: str, a: Value, b: Value, element: ElementType) -> Value:
    """Shift by amounts that are brought within the width first: LLVM leaves others undefined."""
    width, zero = a.type.element.width, scalar(a.type, 0)
    inside = e.b.icmp_unsigned("<", b, scalar(b.type, width))
    places = e.b.select(inside, b, scalar(b.type, width - 1))
    if operation == "left":
        return e.b.select(inside, e.b.shl(a, places), zero)
    if element.is_unsigned:
        return e.b.select(inside, e.b.lshr(a, places), zero)
    return e.b.ashr(a, places)


def emit_power(e: Emitter, a: Value, b: Value, element: ElementType) -> Value:
    """Raise by squaring, one step for every bit of the exponent."""
    kind = a.type
    zero, one = scalar(kind, 0), scalar(kind, 1)
    with e.carrying_loop(0, kind.element.width, [one, a, b], name="bit") as carry:
        result, factor, rest = carry.values
        odd = e.b.icmp_unsigned("!=", e.b.and_(rest, one), zero)
        result = e.b.select(odd, e.b.mul(result, factor), result)
        carry.next([result, e.b.mul(factor, factor), e.b.lshr(rest, one)])
    found = carry.values[0]
    if element.is_unsigned:
        return found
    minus = scalar(kind, -1)
    unit = e.b.or_(e.b.icmp_signed("==", a, one), e.b.icmp_signed("==", a, minus))
    vanishes = e.b.and_(e.b.icmp_signed("<", b, zero), e.b.not_(unit))
    return e.b.select(vanishes, zero, found)

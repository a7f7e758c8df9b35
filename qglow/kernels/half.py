"""Reals of 16 bits as vector code: numerics.half, operation by operation.

In integers, but for float16 where the target has F16C, an instruction each way: LLVM calls a function of
its own runtime for conversions that the target lacks, and compiled code is linked to nothing.
"""

from __future__ import annotations

from llvmlite import ir

from qglow.core.types import HALF_TYPES, ElementType
from qglow.kernels.builder import F32, I16, I32, Emitter, Value, scalar, vec
from qglow.numerics import half as numerics

EXPONENT_OFFSET = 2.0**112
"""What a float16's bits, moved to where a float32 has them, lack: the difference of the exponents' biases."""
NOT_FINITE = 0x7C00
"""Bits of float16 from which on a magnitude is infinity or NaN."""


def emit_round_to(e: Emitter, x: Value, element: str) -> Value:
    """float32 `x` rounded to the nearest number of "float16" or "bfloat16"."""
    if HALF_TYPES[element] is ElementType.FLOAT16 and e.isa.has("f16c"):
        return e.b.fpext(e.b.fptrunc(x, vec(ir.HalfType(), x.type.count)), x.type)
    return _round_bits(e, x, element)


def _round_bits(e: Emitter, x: Value, element: str) -> Value:
    """The same in integers."""
    b, kind, integers = e.b, x.type, vec(I32, x.type.count)

    def bits(value: int) -> Value:
        return scalar(integers, value)

    drop = numerics.dropped_bits(HALF_TYPES[element])
    rest = (1 << drop) - 1
    pattern = b.bitcast(x, integers)
    magnitude = b.and_(pattern, bits(int(numerics.MAGNITUDE)))
    odd = b.and_(b.lshr(magnitude, bits(drop)), bits(1))
    rounded = b.and_(b.add(b.add(magnitude, bits(rest >> 1)), odd), bits(~rest & 0xFFFFFFFF))
    if HALF_TYPES[element] is ElementType.FLOAT16:
        beyond = b.icmp_unsigned(">=", rounded, bits(int(numerics.OVERFLOW)))
        rounded = b.select(beyond, bits(int(numerics.INFINITY)), rounded)
        magic = scalar(kind, float(numerics.SUBNORMAL_MAGIC))
        subnormal = b.fsub(b.fadd(b.bitcast(magnitude, kind), magic), magic)
        small = b.icmp_unsigned("<", magnitude, bits(int(numerics.LEAST_NORMAL)))
        rounded = b.select(small, b.bitcast(subnormal, integers), rounded)
    quiet = b.and_(b.or_(magnitude, bits(int(numerics.QUIET))), bits(~rest & 0xFFFFFFFF))
    is_nan = b.icmp_unsigned(">", magnitude, bits(int(numerics.INFINITY)))
    sign = b.and_(pattern, bits(int(~numerics.MAGNITUDE)))
    return b.bitcast(b.or_(b.select(is_nan, quiet, rounded), sign), kind)


def load_widened(e: Emitter, pointer: Value, element: ElementType, lanes: int) -> Value:
    """`lanes` aligned reals of 16 bits at `pointer` as float32."""
    stored = e.load(pointer, vec(I16, lanes), align=2 * lanes)
    kind, integers = vec(F32, lanes), vec(I32, lanes)
    if element is ElementType.BFLOAT16:
        return e.b.bitcast(e.b.shl(e.b.zext(stored, integers), scalar(integers, 16)), kind)
    if e.isa.has("f16c"):
        return e.b.fpext(e.b.bitcast(stored, vec(ir.HalfType(), lanes)), kind)
    return _widened_float16(e, stored)


def _widened_float16(e: Emitter, stored: Value) -> Value:
    """Exact: a multiplication by a power of two brings exponents, subnormal ones too, to their place."""
    b, integers = e.b, vec(I32, stored.type.count)
    kind = vec(F32, stored.type.count)
    wide = b.zext(stored, integers)
    magnitude = b.and_(wide, scalar(integers, 0x7FFF))
    moved = b.shl(magnitude, scalar(integers, 13))
    scaled = b.fmul(b.bitcast(moved, kind), scalar(kind, EXPONENT_OFFSET))
    special = b.or_(moved, scalar(integers, int(numerics.INFINITY)))
    not_finite = b.icmp_unsigned(">=", magnitude, scalar(integers, NOT_FINITE))
    found = b.select(not_finite, special, b.bitcast(scaled, integers))
    sign = b.shl(b.and_(wide, scalar(integers, 0x8000)), scalar(integers, 16))
    return b.bitcast(b.or_(found, sign), kind)

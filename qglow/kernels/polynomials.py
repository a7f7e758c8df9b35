"""exp, sigmoid and tanh as vector code: numerics.polynomials, operation by operation."""

from __future__ import annotations

import numpy as np

from qglow.kernels.builder import F32, I32, Emitter, Value, scalar, vec
from qglow.numerics import polynomials as numerics


def emit_exp(e: Emitter, x: Value) -> Value:
    """e^x of a float vector."""
    b, kind = e.b, x.type
    integers = vec(I32, kind.count)
    lowest, highest = (_constant(kind, c) for c in (numerics.EXP_LOWEST, numerics.EXP_HIGHEST))
    x = b.select(b.fcmp_ordered("<", x, lowest), lowest, x)
    x = b.select(b.fcmp_ordered(">", x, highest), highest, x)
    magic = _constant(kind, numerics.ROUND_MAGIC)
    shifted = b.fadd(b.fmul(x, _constant(kind, numerics.LOG2_E)), magic)
    whole = b.fsub(shifted, magic)
    n = b.sub(b.bitcast(shifted, integers), _constant(integers, numerics.ROUND_MAGIC_BITS))
    r = b.fsub(x, b.fmul(whole, _constant(kind, numerics.LN2_HIGH)))
    r = b.fsub(r, b.fmul(whole, _constant(kind, numerics.LN2_LOW)))
    y = b.fmul(b.fmul(r, r), emit_horner(e, r, numerics.EXP_COEFFICIENTS))
    y = b.fadd(b.fadd(y, r), _constant(kind, numerics.ONE))
    half = b.ashr(n, scalar(integers, 1))
    y = b.fmul(y, _power_of_two(e, half, kind))
    return b.fmul(y, _power_of_two(e, b.sub(n, half), kind))


def emit_sigmoid(e: Emitter, x: Value) -> Value:
    """1 / (1 + e^-x) of a float vector."""
    b, kind = e.b, x.type
    integers = vec(I32, kind.count)
    negated = b.or_(b.bitcast(x, integers), _constant(integers, numerics.SIGN_BIT))
    power = emit_exp(e, b.bitcast(negated, kind))
    one = _constant(kind, numerics.ONE)
    numerator = b.select(b.fcmp_ordered(">", scalar(kind, 0.0), x), power, one)
    return b.fdiv(numerator, b.fadd(one, power))


def emit_tanh(e: Emitter, x: Value) -> Value:
    """Hyperbolic tangent of a float vector."""
    b, kind = e.b, x.type
    integers = vec(I32, kind.count)
    bits = b.bitcast(x, integers)
    magnitude = b.bitcast(b.and_(bits, _constant(integers, numerics.MAGNITUDE_BITS)), kind)
    square = b.fmul(magnitude, magnitude)
    small = b.fmul(square, emit_horner(e, square, numerics.TANH_COEFFICIENTS))
    small = b.fadd(b.fmul(magnitude, small), magnitude)
    one, two = _constant(kind, numerics.ONE), _constant(kind, numerics.TWO)
    power = emit_exp(e, b.fmul(magnitude, two))
    large = b.fsub(one, b.fdiv(two, b.fadd(power, one)))
    is_small = b.fcmp_ordered("<", magnitude, _constant(kind, numerics.TANH_SMALL))
    y = b.bitcast(b.select(is_small, small, large), integers)
    sign = b.and_(bits, _constant(integers, numerics.SIGN_BIT))
    return b.bitcast(b.or_(y, sign), kind)


def emit_horner(e: Emitter, x: Value, coefficients: tuple[np.float32, ...]) -> Value:
    """The polynomial with these coefficients, highest power first: multiply, then add."""
    y = _constant(x.type, coefficients[0])
    for coefficient in coefficients[1:]:
        y = e.b.fadd(e.b.fmul(y, x), _constant(x.type, coefficient))
    return y


def _power_of_two(e: Emitter, n: Value, kind: Value) -> Value:
    biased = e.b.add(n, _constant(n.type, numerics.EXPONENT_BIAS))
    return e.b.bitcast(e.b.shl(biased, _constant(n.type, numerics.MANTISSA_BITS)), kind)


def _constant(kind: Value, value: np.float32 | np.int32) -> Value:
    return scalar(kind, float(value) if kind.element == F32 else int(value))

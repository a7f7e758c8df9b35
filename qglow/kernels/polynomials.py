"""Transcendental functions as vector code: numerics.polynomials, operation by operation."""

from __future__ import annotations

import math

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
    magnitude = emit_magnitude(e, x)
    square = b.fmul(magnitude, magnitude)
    small = b.fmul(square, emit_horner(e, square, numerics.TANH_COEFFICIENTS))
    small = b.fadd(b.fmul(magnitude, small), magnitude)
    one, two = _constant(kind, numerics.ONE), _constant(kind, numerics.TWO)
    power = emit_exp(e, b.fmul(magnitude, two))
    large = b.fsub(one, b.fdiv(two, b.fadd(power, one)))
    is_small = b.fcmp_ordered("<", magnitude, _constant(kind, numerics.TANH_SMALL))
    return _with_sign_of(e, b.select(is_small, small, large), x)


def emit_expm1(e: Emitter, x: Value) -> Value:
    """e^x - 1 of a float vector."""
    b, kind = e.b, x.type
    small = b.fadd(b.fmul(b.fmul(x, x), emit_horner(e, x, numerics.EXP_COEFFICIENTS)), x)
    large = b.fsub(emit_exp(e, x), _constant(kind, numerics.ONE))
    is_small = b.fcmp_ordered("<", emit_magnitude(e, x), _constant(kind, numerics.EXPM1_SMALL))
    return b.select(is_small, small, large)


def emit_log(e: Emitter, x: Value) -> Value:
    """Natural logarithm of a float vector."""
    b, kind = e.b, x.type
    integers = vec(I32, kind.count)
    shift, zero = _constant(integers, numerics.MANTISSA_BITS), scalar(kind, 0.0)
    tiny = b.fcmp_ordered("<", x, _constant(kind, numerics.SMALLEST_NORMAL))
    scaled = b.select(tiny, b.fmul(x, _constant(kind, numerics.TWO_TO_23)), x)
    bits = b.bitcast(scaled, integers)
    n = b.ashr(b.sub(bits, _constant(integers, numerics.SQRT_HALF_BITS)), shift)
    mantissa = b.bitcast(b.sub(bits, b.shl(n, shift)), kind)
    n = b.sub(n, b.select(tiny, shift, scalar(integers, 0)))
    y = _log_of(e, b.fsub(mantissa, _constant(kind, numerics.ONE)), b.sitofp(n, kind))
    y = b.select(b.fcmp_ordered("<", x, scalar(kind, math.inf)), y, x)
    y = b.select(b.fcmp_ordered("==", x, zero), scalar(kind, -math.inf), y)
    return b.select(b.fcmp_ordered(">", zero, x), scalar(kind, math.nan), y)


def emit_log1p_of_unit(e: Emitter, x: Value) -> Value:
    """ln(1 + x) of a float vector within [0, 1]."""
    b, kind = e.b, x.type
    one = _constant(kind, numerics.ONE)
    upper = b.fcmp_ordered(">", x, _constant(kind, numerics.SQRT_TWO_LESS_ONE))
    f = b.select(upper, b.fmul(b.fsub(x, one), _constant(kind, numerics.HALF)), x)
    return _log_of(e, f, b.select(upper, one, scalar(kind, 0.0)))


def _log_of(e: Emitter, f: Value, n: Value) -> Value:
    b, kind = e.b, f.type
    square = b.fmul(f, f)
    y = b.fmul(b.fmul(f, square), emit_horner(e, f, numerics.LOG_COEFFICIENTS))
    y = b.fadd(y, b.fmul(n, _constant(kind, numerics.LN2_LOW)))
    y = b.fsub(y, b.fmul(_constant(kind, numerics.HALF), square))
    y = b.fadd(y, f)
    return b.fadd(y, b.fmul(n, _constant(kind, numerics.LN2_HIGH)))


def emit_softplus(e: Emitter, x: Value) -> Value:
    """ln(1 + e^x) of a float vector."""
    b, kind = e.b, x.type
    integers = vec(I32, kind.count)
    negated = b.or_(b.bitcast(x, integers), _constant(integers, numerics.SIGN_BIT))
    rest = emit_log1p_of_unit(e, emit_exp(e, b.bitcast(negated, kind)))
    zero = scalar(kind, 0.0)
    return b.fadd(b.select(b.fcmp_ordered(">", zero, x), zero, x), rest)


def emit_erf(e: Emitter, x: Value) -> Value:
    """The error function of a float vector."""
    b, kind = e.b, x.type
    magnitude = emit_magnitude(e, x)
    square = b.fmul(magnitude, magnitude)
    small = b.fmul(magnitude, emit_horner(e, square, numerics.ERF_SMALL_COEFFICIENTS))
    small = b.fadd(small, magnitude)
    top = _constant(kind, numerics.ERF_LARGE)
    held = b.select(b.fcmp_ordered(">", magnitude, top), top, magnitude)
    power = emit_exp(e, emit_horner(e, held, numerics.ERF_LARGE_COEFFICIENTS))
    large = b.fsub(_constant(kind, numerics.ONE), power)
    is_small = b.fcmp_ordered("<", magnitude, _constant(kind, numerics.ERF_SMALL))
    return _with_sign_of(e, b.select(is_small, small, large), x)


def emit_power(e: Emitter, x: Value, y: Value) -> Value:
    """x^y of float vectors."""
    b, kind = e.b, x.type
    integers, zero, one = vec(I32, kind.count), scalar(kind, 0.0), _constant(kind, numerics.ONE)
    result = emit_exp(e, b.fmul(y, emit_log(e, emit_magnitude(e, x))))
    unity = b.or_(b.fcmp_ordered("==", y, zero), b.fcmp_ordered("==", x, one))
    result = b.select(unity, one, result)
    whole, even = _is_whole(e, y), _is_whole(e, b.fmul(y, _constant(kind, numerics.HALF)))
    flipped = b.xor(b.bitcast(result, integers), _constant(integers, numerics.SIGN_BIT))
    signed = b.select(even, result, b.bitcast(flipped, kind))
    negative = b.select(whole, signed, scalar(kind, math.nan))
    return b.select(b.fcmp_ordered(">", zero, x), negative, result)


def _is_whole(e: Emitter, y: Value) -> Value:
    b, magnitude, large = e.b, emit_magnitude(e, y), _constant(y.type, numerics.TWO_TO_23)
    rounded = b.fsub(b.fadd(magnitude, large), large)
    return b.or_(b.fcmp_ordered("==", rounded, magnitude), b.fcmp_ordered(">=", magnitude, large))


def emit_magnitude(e: Emitter, x: Value) -> Value:
    """|x| of a float vector: its bits without the sign."""
    integers = vec(I32, x.type.count)
    bits = e.b.and_(e.b.bitcast(x, integers), _constant(integers, numerics.MAGNITUDE_BITS))
    return e.b.bitcast(bits, x.type)


def _with_sign_of(e: Emitter, magnitude: Value, x: Value) -> Value:
    integers = vec(I32, x.type.count)
    sign = e.b.and_(e.b.bitcast(x, integers), _constant(integers, numerics.SIGN_BIT))
    return e.b.bitcast(e.b.or_(e.b.bitcast(magnitude, integers), sign), x.type)


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

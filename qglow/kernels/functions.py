"""Functions of one variable as vector code: numerics.functions, operation by operation."""

from __future__ import annotations

from collections.abc import Callable

from qglow.instructions.operation import Operation
from qglow.instructions.ops import functions as operations
from qglow.kernels.builder import I32, Emitter, Value, scalar, vec
from qglow.kernels.half import emit_round_to
from qglow.kernels.polynomials import (
    emit_erf,
    emit_exp,
    emit_expm1,
    emit_log,
    emit_magnitude,
    emit_power,
    emit_sigmoid,
    emit_softplus,
)
from qglow.kernels.requantize import clamp_float
from qglow.numerics import functions as numerics
from qglow.numerics.polynomials import SIGN_BIT


def emit_negative(e: Emitter, x: Value) -> Value:
    """-x: the sign bit flipped."""
    integers = vec(I32, x.type.count)
    return e.b.bitcast(e.b.xor(e.b.bitcast(x, integers), scalar(integers, int(SIGN_BIT))), x.type)


def emit_absolute(e: Emitter, x: Value) -> Value:
    """|x|."""
    return emit_magnitude(e, x)


def emit_sqrt(e: Emitter, x: Value) -> Value:
    """The square root, one instruction everywhere."""
    return e.intrinsic("llvm.sqrt", x)


def emit_reciprocal(e: Emitter, x: Value) -> Value:
    """1 / x by a true division."""
    return e.b.fdiv(scalar(x.type, 1.0), x)


def emit_leaky_relu(e: Emitter, x: Value, alpha: float) -> Value:
    """x, below 0 `alpha * x`."""
    return _below_zero(e, x, e.b.fmul(scalar(x.type, alpha), x))


def emit_elu(e: Emitter, x: Value, alpha: float) -> Value:
    """x, below 0 `alpha * (e^x - 1)`."""
    return _below_zero(e, x, e.b.fmul(scalar(x.type, alpha), emit_expm1(e, x)))


def _below_zero(e: Emitter, x: Value, otherwise: Value) -> Value:
    return e.b.select(e.b.fcmp_ordered(">", scalar(x.type, 0.0), x), otherwise, x)


def emit_hard_sigmoid(e: Emitter, x: Value, alpha: float, beta: float) -> Value:
    """`alpha * x + beta` within 0 and 1."""
    line = e.b.fadd(e.b.fmul(x, scalar(x.type, alpha)), scalar(x.type, beta))
    return clamp_float(e, line, 0.0, 1.0)


def emit_hard_swish(e: Emitter, x: Value) -> Value:
    """x times its hard sigmoid."""
    return e.b.fmul(x, emit_hard_sigmoid(e, x, float(numerics.SIXTH), 0.5))


def emit_swish(e: Emitter, x: Value, alpha: float) -> Value:
    """x times the sigmoid of `alpha * x`."""
    inner = x if alpha == 1.0 else e.b.fmul(x, scalar(x.type, alpha))
    return e.b.fmul(emit_sigmoid(e, inner), x)


def emit_gelu(e: Emitter, x: Value, approximate: str) -> Value:
    """x times the normal distribution function."""
    b, kind = e.b, x.type
    if approximate == "tanh":
        cube = b.fmul(b.fmul(x, x), x)
        inner = b.fadd(b.fmul(cube, scalar(kind, float(numerics.GELU_CUBIC))), x)
        return b.fmul(x, emit_sigmoid(e, b.fmul(inner, scalar(kind, float(numerics.GELU_LINEAR)))))
    part = emit_erf(e, b.fmul(x, scalar(kind, float(numerics.SQRT_HALF))))
    return b.fmul(b.fmul(x, scalar(kind, 0.5)), b.fadd(part, scalar(kind, 1.0)))


def emit_power_of(e: Emitter, x: Value, exponent: float) -> Value:
    """x^exponent."""
    if exponent == 1.0:
        return x
    if exponent == 2.0:
        return e.b.fmul(x, x)
    if exponent == 3.0:
        return e.b.fmul(e.b.fmul(x, x), x)
    if exponent in numerics.ROOTS:
        return _root(e, x, exponent)
    return emit_power(e, x, scalar(x.type, exponent))


def _root(e: Emitter, x: Value, exponent: float) -> Value:
    root = emit_sqrt(e, x)
    if exponent == 0.5:
        return root
    fourth = emit_sqrt(e, root)
    return fourth if exponent == 0.25 else e.b.fmul(root, fourth)


FUNCTIONS: dict[type[Operation], Callable[..., Value]] = {
    operations.Negative: emit_negative,
    operations.Absolute: emit_absolute,
    operations.Sqrt: emit_sqrt,
    operations.Reciprocal: emit_reciprocal,
    operations.Exp: emit_exp,
    operations.Log: emit_log,
    operations.Erf: emit_erf,
    operations.Softplus: emit_softplus,
    operations.Elu: emit_elu,
    operations.LeakyRelu: emit_leaky_relu,
    operations.HardSigmoid: emit_hard_sigmoid,
    operations.HardSwish: emit_hard_swish,
    operations.Swish: emit_swish,
    operations.Gelu: emit_gelu,
    operations.PowerOf: emit_power_of,
    operations.RoundTo: emit_round_to,
}
"""What emits each function; it takes the operation's attributes after x."""

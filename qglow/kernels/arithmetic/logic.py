"""Comparisons, choices and conversions as vector code. Booleans are bytes of 0 or 1."""

from __future__ import annotations

from llvmlite import ir

from qglow.core.types import ElementType, TensorType, float_type
from qglow.kernels.arithmetic.half import emit_narrowed, emit_widened
from qglow.kernels.arithmetic.scalar import emit_scalar
from qglow.kernels.emit.builder import F32, F64, I8, I16, I32, I64, Value, scalar, suffix, vec
from qglow.kernels.emit.emitter import Emitter
from qglow.kernels.emit.operand import is_int8_activation
from qglow.numerics.scalar.clamps import larger, smaller

_SYMBOLS = {
    "equal": "==",
    "not-equal": "!=",
    "greater": ">",
    "greater-or-equal": ">=",
    "less": "<",
    "less-or-equal": "<=",
}
_LLVM_INTEGERS = {
    ElementType.INT8: I8,
    ElementType.INT16: I16,
    ElementType.INT32: I32,
    ElementType.INT64: I64,
    ElementType.UINT8: I8,
    ElementType.UINT16: I16,
    ElementType.UINT32: I32,
    ElementType.UINT64: I64,
}


def emit_compare(e: Emitter, relation: str, lhs: Value, rhs: Value, element: ElementType) -> Value:
    """Compare elements lane by lane: bytes of 1 where the relation holds, else 0.

    Of NaN only not-equal holds.
    """
    symbol = _SYMBOLS[relation]
    if _is_real(lhs):
        compare = e.b.fcmp_unordered if relation == "not-equal" else e.b.fcmp_ordered
        found = compare(symbol, lhs, rhs)
    else:
        compare = e.b.icmp_unsigned if element.is_unsigned else e.b.icmp_signed
        found = compare(symbol, lhs, rhs)
    return e.b.zext(found, vec(I8, lhs.type.count))


def emit_select(e: Emitter, condition: Value, lhs: Value, rhs: Value) -> Value:
    """Select lanes of `lhs` where the byte of `condition` is not 0, else of `rhs`."""
    return e.b.select(e.b.icmp_unsigned("!=", condition, scalar(condition.type, 0)), lhs, rhs)


def emit_extremum(e: Emitter, lhs: Value, rhs: Value, symbol: str, kind: TensorType) -> Value:
    """Emit the larger (symbol ">") or smaller (symbol "<") of two vectors by lane; NaN where either is NaN.

    Integers are compared as signed numbers, except unsigned ones, booleans, and int8 activations on a target
    with an activation bias: these are unsigned bytes in memory.
    """
    if _is_real(lhs):
        return emit_scalar(e, larger if symbol == ">" else smaller, lhs, rhs)
    if kind.element.is_unsigned or (is_int8_activation(kind) and e.target.activation_bias):
        wins = e.b.icmp_unsigned(symbol, lhs, rhs)
    else:
        wins = e.b.icmp_signed(symbol, lhs, rhs)
    return e.b.select(wins, lhs, rhs)


def emit_cast(e: Emitter, x: Value, source: TensorType, target: TensorType) -> Value:
    """Convert `x` to another element type, with the results of numerics.logic.cast."""
    lanes = x.type.count
    if source.is_half:
        return emit_cast(e, emit_widened(e, x, source.element), float_type(*source.shape), target)
    if target.is_half:
        return emit_narrowed(e, _to_real(e, x, vec(F32, lanes), source.element.is_unsigned), target.element)
    if target.element is ElementType.BOOL:
        zero = scalar(x.type, 0)
        differs = e.b.fcmp_unordered("!=", x, zero) if _is_real(x) else e.b.icmp_signed("!=", x, zero)
        return e.b.zext(differs, vec(I8, lanes))
    if target.element in (ElementType.FLOAT, ElementType.DOUBLE):
        return _to_real(e, x, vec(F32 if target.is_float else F64, lanes), source.element.is_unsigned)
    kind = vec(_LLVM_INTEGERS[target.element], lanes)
    if _is_real(x):
        convert = "llvm.fptoui.sat" if target.element.is_unsigned else "llvm.fptosi.sat"
        return e.call(f"{convert}.{suffix(kind)}.{suffix(x.type)}", kind, [x])
    return _to_integer(e, x, kind, source.element.is_unsigned)


def _to_real(e: Emitter, x: Value, kind: Value, unsigned: bool) -> Value:
    if x.type == kind:
        return x
    if not _is_real(x):
        return e.b.uitofp(x, kind) if unsigned else e.b.sitofp(x, kind)
    return e.b.fpext(x, kind) if kind.element == F64 else e.b.fptrunc(x, kind)


def _to_integer(e: Emitter, x: Value, kind: Value, unsigned: bool) -> Value:
    have, want = x.type.element.width, kind.element.width
    if have == want:
        return x
    if have > want:
        return e.b.trunc(x, kind)
    return e.b.zext(x, kind) if unsigned else e.b.sext(x, kind)


def _is_real(x: Value) -> bool:
    return isinstance(x.type.element, ir.FloatType | ir.DoubleType)

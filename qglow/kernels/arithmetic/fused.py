"""Fused multiply-add of float32 vectors: one instruction, or the same bits where a target has none."""

from __future__ import annotations

from qglow.kernels.emit.builder import F32, F64, I64, Value, scalar, vec
from qglow.kernels.emit.emitter import Emitter


def fused_multiply_add(e: Emitter, a: Value, b: Value, c: Value) -> Value:
    """Emit `a * b + c`, rounded once, in all lanes of float32 vectors."""
    if e.target.has_fma:
        return e.intrinsic("llvm.fma", a, b, c)
    return _rounded_to_odd(e, a, b, c)


def _rounded_to_odd(e: Emitter, a: Value, b: Value, c: Value) -> Value:
    """Emit numerics.fused.fused_multiply_add: exact in float64 but for the sum, which is rounded to odd."""
    lanes = a.type.count
    wide, whole = vec(F64, lanes), vec(I64, lanes)
    left, right, addend = (e.b.fpext(value, wide) for value in (a, b, c))
    product = e.b.fmul(left, right)
    total = e.b.fadd(product, addend)
    other = e.b.fsub(total, product)
    error = e.b.fadd(e.b.fsub(product, e.b.fsub(total, other)), e.b.fsub(addend, other))
    bits = e.b.bitcast(total, whole)
    # Infinities and NaN have an error that is NaN, which compares as ordered with nothing.
    zero = scalar(wide, 0.0)
    inexact = e.b.fcmp_ordered("one", error, zero)
    even = e.b.icmp_signed("==", e.b.and_(bits, scalar(whole, 1)), scalar(whole, 0))
    # Bits grow away from 0: an error of the total's sign asks for one more, another for one less.
    same = e.b.icmp_signed(">=", e.b.xor(bits, e.b.bitcast(error, whole)), scalar(whole, 0))
    step = e.b.select(same, scalar(whole, 1), scalar(whole, -1))
    moved = e.b.add(bits, e.b.select(e.b.and_(inexact, even), step, scalar(whole, 0)))
    return e.b.fptrunc(e.b.bitcast(moved, wide), vec(F32, lanes))

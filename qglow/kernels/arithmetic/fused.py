"""Fused multiply-add of float32 vectors: one instruction, or the same bits where a target has none."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from qglow.kernels.emit.builder import F32, F64, I1, I32, I64, Value, scalar, vec
from qglow.kernels.emit.emitter import Emitter
from qglow.kernels.emit.target import VectorTarget

EMULATED = 20.0
"""Instructions of a multiply-add in place of one."""


def fused_multiply_add(e: Emitter, a: Value, b: Value, c: Value) -> Value:
    """Emit `a * b + c`, rounded once, in all lanes of float32 vectors."""
    if e.target.has_fma:
        return e.intrinsic("llvm.fma", a, b, c)
    return _rounded_once(e, a, b, c)


def add_product(e: Emitter, a: Value, b: Value, total: Value) -> Value:
    """Emit `total + a * b` as a step of a float chain (rule 9), rounded once unless the target forgoes it."""
    if e.target.rounds_chains_once:
        return fused_multiply_add(e, a, b, total)
    return e.b.fadd(total, e.b.fmul(a, b))


def step_instructions(target: VectorTarget) -> float:
    """Instructions of a step of a float chain, for costs."""
    if target.has_fma:
        return 1.0
    return EMULATED if target.rounds_chains_once else 2.0


def _rounded_once(e: Emitter, a: Value, b: Value, c: Value) -> Value:
    """Emit numerics.fused.fused_multiply_add: the product is exact in float64, the sum mostly exact enough.

    Rounding that to float32 is rounding twice, which is wrong only where the first result lies in the middle
    between two float32. That is rare: a function of its own rounds such sums to odd before.
    """
    lanes = a.type.count
    left, right, addend = (e.b.fpext(value, vec(F64, lanes)) for value in (a, b, c))
    total = e.b.fadd(e.b.fmul(left, right), addend)
    rounded = e.b.fptrunc(total, vec(F32, lanes))
    doubtful = e.b.or_(_in_the_middle(e, total), _subnormal(e, rounded))
    any_lane = e.call(f"llvm.vector.reduce.or.v{lanes}i1", I1, [doubtful])
    return e.replaced(any_lane, rounded, lambda: e.b.call(_rounding_to_odd(e, lanes), [a, b, c]))


def _in_the_middle(e: Emitter, total: Value) -> Value:
    """Whether the last 29 bits of a float64, those beyond float32, are 1 and zeros."""
    whole = vec(I64, total.type.count)
    rest = e.b.and_(e.b.bitcast(total, whole), scalar(whole, (1 << 29) - 1))
    return e.b.icmp_signed("==", rest, scalar(whole, 1 << 28))


def _subnormal(e: Emitter, rounded: Value) -> Value:
    """Whether a float32 has fewer bits than others, or had before it was rounded up: it is not 0 and at most
    2^-126. What was rounded to 0 was exact: no inexact sum of a product and a float32 is that small."""
    whole = vec(I32, rounded.type.count)
    size = e.b.and_(e.b.bitcast(rounded, whole), scalar(whole, 0x7FFFFFFF))
    return e.b.icmp_unsigned("<", e.b.sub(size, scalar(whole, 1)), scalar(whole, 0x00800000))


def _rounding_to_odd(e: Emitter, lanes: int) -> Any:
    """The module's function of `a * b + c` in float64 with a sum rounded to odd, then rounded to float32."""
    name = f"fused_multiply_add_{lanes}"
    if name in e.module.globals:
        return e.module.globals[name]
    kind, wide = vec(F32, lanes), vec(F64, lanes)
    function = ir.Function(e.module, ir.FunctionType(kind, [kind] * 3), name)
    function.linkage = "internal"
    function.attributes.add("nounwind")
    function.attributes.add("noinline")
    b = ir.IRBuilder(function.append_basic_block())
    left, right, addend = (b.fpext(value, wide) for value in function.args)
    odd = _sum_rounded_to_odd(b, b.fmul(left, right), addend)
    b.ret(b.fptrunc(odd, kind))
    return function


def _sum_rounded_to_odd(b: Any, product: Value, addend: Value) -> Value:
    total = b.fadd(product, addend)
    wide, whole = total.type, vec(I64, total.type.count)
    other = b.fsub(total, product)
    error = b.fadd(b.fsub(product, b.fsub(total, other)), b.fsub(addend, other))
    bits = b.bitcast(total, whole)
    # Infinities and NaN have an error that is NaN, which compares as ordered with nothing.
    inexact = b.fcmp_ordered("one", error, scalar(wide, 0.0))
    even = b.icmp_signed("==", b.and_(bits, scalar(whole, 1)), scalar(whole, 0))
    # Bits grow away from 0: an error of the total's sign asks for one more, another for one less.
    same = b.icmp_signed(">=", b.xor(bits, b.bitcast(error, whole)), scalar(whole, 0))
    step = b.select(same, scalar(whole, 1), scalar(whole, -1))
    moved = b.add(bits, b.select(b.and_(inexact, even), step, scalar(whole, 0)))
    return b.bitcast(moved, wide)

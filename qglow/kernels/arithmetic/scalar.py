"""Evaluator that emits the scalar functions of numerics.scalar as vector code, operation by operation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir

from qglow.kernels.emit.builder import I32, Value, scalar, vec
from qglow.kernels.emit.emitter import Emitter
from qglow.numerics.scalar.algebra import Algebra, IntegerOperation, Real, RealOperation, Relation

_REAL = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}
_INTEGER = {
    "add": "add",
    "sub": "sub",
    "and": "and_",
    "or": "or_",
    "xor": "xor",
    "shl": "shl",
    "ashr": "ashr",
    "lshr": "lshr",
}


class VectorAlgebra(Algebra[Value]):
    """Algebra of LLVM values: float, i32 and i1 vectors with the lanes of `reals`, or scalars if it is one.

    Operations are LLVM instructions without fast-math flags, so LLVM may not contract a product and a sum
    into a fused multiply-add, which rounds once instead of twice.
    """

    def __init__(self, e: Emitter, reals: Any) -> None:
        self._e = e
        self._b: Any = e.b
        self._reals = reals
        self._integers = vec(I32, reals.count) if isinstance(reals, ir.VectorType) else I32

    def real(self, value: float) -> Value:
        """The same constant in all lanes."""
        return scalar(self._reals, value)

    def integer(self, value: int) -> Value:
        """The same constant in all lanes."""
        return scalar(self._integers, value)

    def on_reals(self, operation: RealOperation, a: Value, b: Value) -> Value:
        """Emit fadd, fsub, fmul or fdiv."""
        return getattr(self._b, _REAL[operation])(a, b)

    def less_exact_product(self, x: Value, a: Value, b: float) -> Value:
        """Emit a fused multiply-add where the target has one: a product that is exact is never rounded."""
        if self._e.target.has_fma:
            return self._e.intrinsic("llvm.fma", a, self.real(-b), x)
        return super().less_exact_product(x, a, b)

    def scaled(self, x: Value, whole: Value) -> Value | None:
        """Emit the target's instruction, if it has one."""
        return self._e.target.scaled_by_powers(self._e, x, whole)

    def sqrt(self, x: Value) -> Value:
        """Square root, which is one instruction on every target."""
        return self._e.intrinsic("llvm.sqrt", x)

    def on_integers(self, operation: IntegerOperation, a: Value, b: Value) -> Value:
        """Emit the integer instruction of this name."""
        return getattr(self._b, _INTEGER[operation])(a, b)

    def compare(self, relation: Relation, a: Value, b: Value) -> Value:
        """Ordered fcmp: false where an operand is NaN."""
        return self._b.fcmp_ordered(relation, a, b)

    def is_nan(self, x: Value) -> Value:
        """Unordered fcmp of `x` with itself."""
        return self._b.fcmp_unordered("uno", x, x)

    def compare_unsigned(self, relation: Relation, a: Value, b: Value) -> Value:
        """Unsigned icmp."""
        return self._b.icmp_unsigned(relation, a, b)

    def either(self, a: Value, b: Value) -> Value:
        """Logical or of i1."""
        return self._b.or_(a, b)

    def select(self, condition: Value, yes: Value, no: Value) -> Value:
        """Emit select: `yes` in lanes where `condition` holds, else `no`."""
        return self._b.select(condition, yes, no)

    def bits(self, x: Value) -> Value:
        """Bitcast of floats to i32."""
        return self._b.bitcast(x, self._integers)

    def from_bits(self, n: Value) -> Value:
        """Bitcast of i32 to floats."""
        return self._b.bitcast(n, self._reals)

    def converted(self, n: Value) -> Value:
        """Emit sitofp, which rounds to nearest even."""
        return self._b.sitofp(n, self._reals)


def emit_scalar(e: Emitter, meaning: Callable[..., Real], *operands: Value) -> Value:
    """Emit a function of numerics.scalar on float operands of one type, vectors or scalars."""
    algebra = VectorAlgebra(e, operands[0].type)
    result: Real = meaning(*(Real(algebra, operand) for operand in operands))
    return result.value

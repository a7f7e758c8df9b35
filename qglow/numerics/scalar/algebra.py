"""Numbers whose operations an evaluator carries out: what scalar meanings are written with.

Every operator is exactly one operation: IEEE float32, rounded to nearest even, or int32 in two's complement.
A product and the sum after it are two operations, never a fused one. Methods that may be fewer operations in
some evaluators give the same bits in all. Python numbers beside a Real or an Int are constants.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

V = TypeVar("V")

RealOperation = Literal["add", "sub", "mul", "div"]
IntegerOperation = Literal["add", "sub", "and", "or", "xor", "shl", "ashr", "lshr"]
Relation = Literal["<", ">", "==", ">="]


class Algebra(ABC, Generic[V]):
    """An evaluator: carries out the operations on values of its own type V.

    V stands for a float32, an int32 or a truth value: an array of them, a value of LLVM, a name in C.
    """

    @abstractmethod
    def real(self, value: float) -> V:
        """A float32 constant; `value` is rounded to float32."""

    @abstractmethod
    def integer(self, value: int) -> V:
        """An int32 constant; `value` may also be the pattern as an unsigned number."""

    @abstractmethod
    def on_reals(self, operation: RealOperation, a: V, b: V) -> V:
        """A float32 sum, difference, product or quotient."""

    def less_exact_product(self, x: V, a: V, b: float) -> V:
        """x - a * b where float32 holds a * b, so that rounding it changes nothing."""
        return self.on_reals("sub", x, self.on_reals("mul", a, self.real(b)))

    def scaled(self, x: V, whole: V) -> V | None:
        """x * 2^whole, rounded once, for a float32 without fraction; None where that is no operation."""
        return None

    @abstractmethod
    def sqrt(self, x: V) -> V:
        """The correctly rounded square root of a float32; NaN below 0."""

    @abstractmethod
    def on_integers(self, operation: IntegerOperation, a: V, b: V) -> V:
        """An int32 operation that wraps around; "ashr" repeats the sign bit, "lshr" brings in zeros."""

    @abstractmethod
    def compare(self, relation: Relation, a: V, b: V) -> V:
        """The truth of a relation of float32; false where either is NaN."""

    @abstractmethod
    def is_nan(self, x: V) -> V:
        """The truth of a float32 being NaN."""

    @abstractmethod
    def compare_unsigned(self, relation: Relation, a: V, b: V) -> V:
        """The truth of a relation of int32 patterns as unsigned numbers."""

    @abstractmethod
    def either(self, a: V, b: V) -> V:
        """Whether one of two truth values holds."""

    @abstractmethod
    def select(self, condition: V, yes: V, no: V) -> V:
        """`yes` where the condition holds, else `no`: two float32 or two int32."""

    @abstractmethod
    def bits(self, x: V) -> V:
        """The pattern of a float32 as int32."""

    @abstractmethod
    def from_bits(self, n: V) -> V:
        """The float32 of a pattern."""

    @abstractmethod
    def converted(self, n: V) -> V:
        """The float32 nearest to an int32."""


@dataclass(frozen=True, slots=True, eq=False)
class Condition:
    """The result of a comparison."""

    algebra: Algebra[Any]
    value: Any

    def __or__(self, other: Condition) -> Condition:
        return Condition(self.algebra, self.algebra.either(self.value, other.value))


@dataclass(frozen=True, slots=True, eq=False)
class Real:
    """A float32."""

    algebra: Algebra[Any]
    value: Any

    def constant(self, value: float) -> Real:
        """A constant in the same algebra."""
        return Real(self.algebra, self.algebra.real(value))

    def __add__(self, other: Real | float) -> Real:
        return self._with("add", other)

    def __radd__(self, other: float) -> Real:
        return self.constant(other) + self

    def __sub__(self, other: Real | float) -> Real:
        return self._with("sub", other)

    def __rsub__(self, other: float) -> Real:
        return self.constant(other) - self

    def __mul__(self, other: Real | float) -> Real:
        return self._with("mul", other)

    def __rmul__(self, other: float) -> Real:
        return self.constant(other) * self

    def __truediv__(self, other: Real | float) -> Real:
        return self._with("div", other)

    def __rtruediv__(self, other: float) -> Real:
        return self.constant(other) / self

    def __lt__(self, other: Real | float) -> Condition:
        return self._compared("<", other)

    def __gt__(self, other: Real | float) -> Condition:
        return self._compared(">", other)

    def __ge__(self, other: Real | float) -> Condition:
        return self._compared(">=", other)

    def equals(self, other: Real | float) -> Condition:
        """Whether two numbers are equal; zeros of both signs are, NaN is not."""
        return self._compared("==", other)

    def less_exact_product(self, a: Real, b: float) -> Real:
        """Subtract a * b, which float32 holds exactly: one rounding or two give the same bits."""
        return Real(self.algebra, self.algebra.less_exact_product(self.value, a.value, b))

    def scaled(self, whole: Real, otherwise: Callable[[], Real]) -> Real:
        """Multiply with 2^whole, rounded once: by one operation, or by those of `otherwise`."""
        value = self.algebra.scaled(self.value, whole.value)
        return otherwise() if value is None else Real(self.algebra, value)

    def is_negative(self) -> Condition:
        """Whether it is below 0; neither -0.0 nor NaN is."""
        return self.constant(0.0) > self

    def is_nan(self) -> Condition:
        """Whether it is NaN."""
        return Condition(self.algebra, self.algebra.is_nan(self.value))

    def bits(self) -> Int:
        """The pattern of its bits as an integer."""
        return Int(self.algebra, self.algebra.bits(self.value))

    def _with(self, operation: RealOperation, other: Real | float) -> Real:
        return Real(self.algebra, self.algebra.on_reals(operation, self.value, self._lifted(other)))

    def _compared(self, relation: Relation, other: Real | float) -> Condition:
        return Condition(self.algebra, self.algebra.compare(relation, self.value, self._lifted(other)))

    def _lifted(self, other: Real | float) -> Any:
        return other.value if isinstance(other, Real) else self.algebra.real(other)


@dataclass(frozen=True, slots=True, eq=False)
class Int:
    """An int32, or the pattern of a float32."""

    algebra: Algebra[Any]
    value: Any

    def __add__(self, other: Int | int) -> Int:
        return self._with("add", other)

    def __sub__(self, other: Int | int) -> Int:
        return self._with("sub", other)

    def __and__(self, other: Int | int) -> Int:
        return self._with("and", other)

    def __or__(self, other: Int | int) -> Int:
        return self._with("or", other)

    def __xor__(self, other: Int | int) -> Int:
        return self._with("xor", other)

    def __lshift__(self, places: int) -> Int:
        return self._with("shl", places)

    def __rshift__(self, places: int) -> Int:
        """Shift right; the sign bit is repeated."""
        return self._with("ashr", places)

    def shifted_right(self, places: int) -> Int:
        """Shift right; zeros come in."""
        return self._with("lshr", places)

    def compared(self, relation: Relation, other: int) -> Condition:
        """A relation to a constant, both as unsigned numbers."""
        algebra = self.algebra
        return Condition(algebra, algebra.compare_unsigned(relation, self.value, algebra.integer(other)))

    def as_real(self) -> Real:
        """The float32 with this pattern."""
        return Real(self.algebra, self.algebra.from_bits(self.value))

    def converted(self) -> Real:
        """The nearest float32."""
        return Real(self.algebra, self.algebra.converted(self.value))

    def _with(self, operation: IntegerOperation, other: Int | int) -> Int:
        value = other.value if isinstance(other, Int) else self.algebra.integer(other)
        return Int(self.algebra, self.algebra.on_integers(operation, self.value, value))


def select(condition: Condition, yes: Real | float, no: Real | float) -> Real:
    """`yes` where the condition holds, else `no`; both are computed."""
    algebra = condition.algebra
    chosen, other = (x.value if isinstance(x, Real) else algebra.real(x) for x in (yes, no))
    return Real(algebra, algebra.select(condition.value, chosen, other))


def select_integer(condition: Condition, yes: Int | int, no: Int | int) -> Int:
    """`select` of integers."""
    algebra = condition.algebra
    chosen, other = (x.value if isinstance(x, Int) else algebra.integer(x) for x in (yes, no))
    return Int(algebra, algebra.select(condition.value, chosen, other))


def sqrt(x: Real) -> Real:
    """The square root, correctly rounded; NaN below 0."""
    return Real(x.algebra, x.algebra.sqrt(x.value))

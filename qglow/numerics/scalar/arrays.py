"""The numpy evaluator of scalar meanings."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from qglow.core.types import Array
from qglow.numerics.scalar.algebra import Algebra, IntegerOperation, Real, RealOperation, Relation

_REAL = {"add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv}
_INTEGER: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "shl": operator.lshift,
    "ashr": operator.rshift,
    "lshr": lambda a, b: (a.view(np.uint32) >> b.view(np.uint32)).view(np.int32),
}
_RELATIONS = {"<": operator.lt, ">": operator.gt, "==": operator.eq, ">=": operator.ge}


class ArrayAlgebra(Algebra[Any]):
    """Values are arrays, or numpy scalars, of float32, int32 and bool."""

    def real(self, value: float) -> Any:
        """A numpy scalar."""
        return np.float32(value)

    def integer(self, value: int) -> Any:
        """A numpy scalar."""
        return np.uint32(value & 0xFFFFFFFF).view(np.int32)

    def on_reals(self, operation: RealOperation, a: Any, b: Any) -> Any:
        """numpy's float32 arithmetic."""
        return _REAL[operation](a, b)

    def sqrt(self, x: Any) -> Any:
        """numpy's, which is correctly rounded."""
        return np.sqrt(x)

    def on_integers(self, operation: IntegerOperation, a: Any, b: Any) -> Any:
        """numpy's int32 arithmetic."""
        return _INTEGER[operation](a, b)

    def compare(self, relation: Relation, a: Any, b: Any) -> Any:
        """Elementwise."""
        return _RELATIONS[relation](a, b)

    def is_nan(self, x: Any) -> Any:
        """Elementwise."""
        return np.isnan(x)

    def compare_unsigned(self, relation: Relation, a: Any, b: Any) -> Any:
        """Elementwise, of the patterns."""
        return _RELATIONS[relation](a.view(np.uint32), b.view(np.uint32))

    def either(self, a: Any, b: Any) -> Any:
        """Elementwise."""
        return a | b

    def select(self, condition: Any, yes: Any, no: Any) -> Any:
        """Elementwise."""
        return np.where(condition, yes, no)

    def bits(self, x: Any) -> Any:
        """A view."""
        return x.view(np.int32)

    def from_bits(self, n: Any) -> Any:
        """A view."""
        return n.view(np.float32)

    def converted(self, n: Any) -> Any:
        """Rounds to nearest even."""
        return n.astype(np.float32)


def evaluate(meaning: Callable[..., Real], *operands: Array) -> Array:
    """A scalar meaning of every element: float32, of the shape that the operands broadcast to."""
    algebra = ArrayAlgebra()
    with np.errstate(all="ignore"):
        result = meaning(*(Real(algebra, np.asarray(x, np.float32)) for x in operands))
    return np.asarray(result.value)

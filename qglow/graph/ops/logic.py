"""Comparisons and booleans. https://onnx.ai/onnx/operators/ Greater, Equal, And, Not ...

All comparisons are Compare, and so is Xor, which is not-equal of booleans.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from qglow.core.types import Array, ElementType, TensorType
from qglow.graph.operator import KeepFloat, Operator, Policy, register, require
from qglow.graph.ops.rules import Arrays, Types, broadcast_shape, given, operand
from qglow.numerics.integers import OPERATIONS
from qglow.numerics.logic import RELATIONS


@register
@dataclass(frozen=True)
class Compare(Operator):
    """Whether `relation` (numerics.logic.RELATIONS) holds between the operands, broadcast."""

    name: ClassVar[str] = "Compare"
    operands: ClassVar[tuple[str, ...]] = ("lhs", "rhs")
    policy: ClassVar[Policy] = KeepFloat("a comparison gives booleans, which have no int8 form")
    aligned: ClassVar[bool] = True

    relation: str

    def infer(self, inputs: Types) -> tuple[TensorType, ...]:
        """bool of the broadcast shape."""
        require(self.relation in RELATIONS, f"'{self.relation}' is not one of {', '.join(RELATIONS)}")
        lhs, rhs = operand(inputs, 0, "lhs"), operand(inputs, 1, "rhs")
        require(lhs.element is rhs.element, f"operands {lhs} and {rhs} differ in element type")
        return (TensorType(ElementType.BOOL, broadcast_shape(lhs.shape, rhs.shape)),)

    def evaluate(self, inputs: Arrays) -> tuple[Array, ...]:
        """Compute with numerics.logic."""
        return (np.asarray(RELATIONS[self.relation](given(inputs, 0), given(inputs, 1))),)


@register
@dataclass(frozen=True)
class Whole(Operator):
    """The `operation` (numerics.integers.OPERATIONS) of two operands of integers, broadcast.

    ONNX has an operator for each: BitwiseAnd, BitShift, Mod and so on.
    """

    name: ClassVar[str] = "Whole"
    operands: ClassVar[tuple[str, ...]] = ("lhs", "rhs")
    policy: ClassVar[Policy] = KeepFloat("it computes with whole numbers")
    aligned: ClassVar[bool] = True

    operation: str

    def infer(self, inputs: Types) -> tuple[TensorType, ...]:
        """The broadcast shape; both operands must have the same integer type."""
        require(self.operation in OPERATIONS, f"'{self.operation}' is none of {', '.join(OPERATIONS)}")
        lhs, rhs = operand(inputs, 0, "lhs"), operand(inputs, 1, "rhs")
        same = lhs.element is rhs.element and lhs.is_plain_integer
        require(same, f"operands {lhs} and {rhs} are no integers of one type")
        return (lhs.with_shape(broadcast_shape(lhs.shape, rhs.shape)),)

    def evaluate(self, inputs: Arrays) -> tuple[Array, ...]:
        """Compute with numerics.integers."""
        return (np.asarray(OPERATIONS[self.operation](given(inputs, 0), given(inputs, 1))),)


class Connective(Operator):
    """Base of And and Or."""

    operands: ClassVar[tuple[str, ...]] = ("lhs", "rhs")
    policy: ClassVar[Policy] = KeepFloat("booleans have no int8 form")
    aligned: ClassVar[bool] = True
    commutative: ClassVar[bool] = True

    def infer(self, inputs: Types) -> tuple[TensorType, ...]:
        """bool of the broadcast shape."""
        lhs, rhs = operand(inputs, 0, "lhs"), operand(inputs, 1, "rhs")
        for name, kind in (("lhs", lhs), ("rhs", rhs)):
            require(kind.element is ElementType.BOOL, f"operand {name} is {kind}, it must be bool")
        return (TensorType(ElementType.BOOL, broadcast_shape(lhs.shape, rhs.shape)),)


@register
@dataclass(frozen=True)
class And(Connective):
    """Whether both operands hold."""

    name: ClassVar[str] = "And"

    def evaluate(self, inputs: Arrays) -> tuple[Array, ...]:
        """Compute with numpy.logical_and."""
        return (np.logical_and(given(inputs, 0), given(inputs, 1)),)


@register
@dataclass(frozen=True)
class Or(Connective):
    """Whether an operand holds."""

    name: ClassVar[str] = "Or"

    def evaluate(self, inputs: Arrays) -> tuple[Array, ...]:
        """Compute with numpy.logical_or."""
        return (np.logical_or(given(inputs, 0), given(inputs, 1)),)


@register
@dataclass(frozen=True)
class Not(Operator):
    """Whether x does not hold."""

    name: ClassVar[str] = "Not"
    operands: ClassVar[tuple[str, ...]] = ("x",)
    policy: ClassVar[Policy] = KeepFloat("booleans have no int8 form")
    aligned: ClassVar[bool] = True

    def infer(self, inputs: Types) -> tuple[TensorType, ...]:
        """The shape of x."""
        x = operand(inputs, 0, "x")
        require(x.element is ElementType.BOOL, f"operand x is {x}, it must be bool")
        return (x,)

    def evaluate(self, inputs: Arrays) -> tuple[Array, ...]:
        """Compute with numpy.logical_not."""
        return (np.logical_not(given(inputs, 0)),)

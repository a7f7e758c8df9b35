"""Patterns that several passes recognise: numbers, squares, operands in either order."""

from __future__ import annotations

import numpy as np

from qglow.graph.graph import Node, Value
from qglow.graph.ops.elementwise import Mul
from qglow.graph.ops.functions import PowerOf
from qglow.graph.rewriting import operand

_CLOSE = 1e-5
"""Relative tolerance: constants of models went through float32 arithmetic, and some exporters round them."""


def holds(value: Value, number: float) -> bool:
    """Whether a value is this one constant number."""
    data = value.data
    return data is not None and data.size == 1 and bool(np.all(np.abs(data - number) <= _CLOSE * abs(number)))


def orders(node: Node) -> tuple[tuple[Value, Value], tuple[Value, Value]]:
    """The operands of a binary node, in both orders."""
    lhs, rhs = operand(node, 0), operand(node, 1)
    return (lhs, rhs), (rhs, lhs)


def is_square(node: Node, x: Value) -> bool:
    """Whether a node computes the square of x, as a power or as a product."""
    if isinstance(node.operator, PowerOf):
        return node.operator.exponent == 2.0 and operand(node, 0) is x
    return node.operator == Mul() and operand(node, 0) is x and operand(node, 1) is x

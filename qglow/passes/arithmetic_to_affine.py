"""Arithmetic with one constant per channel becomes one multiplication and addition per channel.

An Affine can be folded into the weights before it; one that remains keeps float factors in int8 graphs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from qglow.core.passes import Refused
from qglow.core.types import Array, Shape
from qglow.graph.graph import Graph, Node, Origin, Value, constant
from qglow.graph.operator import Operator
from qglow.graph.ops.elementwise import Add, Div, Mul, Sub
from qglow.graph.ops.normalization import Affine
from qglow.graph.rewriting import Outcome, RewritePass, change, new_constant, operand

Factors = tuple[Array, Array]


@dataclass(frozen=True)
class ArithmeticToAffine(RewritePass):
    """Add, Sub, Mul and Div of images or matrices with constants that depend on the channel alone."""

    name: ClassVar[str] = "arithmetic-to-affine"

    def rewrite(self, node: Node, graph: Graph) -> Outcome:
        """Turn one operation into an Affine."""
        operator = node.operator
        if not isinstance(operator, Add | Sub | Mul | Div) or not node.output.type.is_float:
            return None
        split = _operands(node)
        if split is None:
            return None
        x, addend, is_left = split
        if isinstance(operator, Div) and is_left:
            return Refused(f"%{addend.name} is divided, which is not affine")
        if x.type != node.output.type or len(x.type.shape) not in (2, 4):
            return Refused(f"%{x.name} is no image or matrix of the shape of the result")
        vector = per_channel(np.asarray(addend.data), x.type.shape)
        if vector is None:
            return Refused(f"%{addend.name} is not one value a channel")
        factors = _factors(operator, vector.astype(np.float64), is_left)
        rounded = [np.asarray(part, np.float32) for part in factors]
        if not all(np.all(np.isfinite(part)) for part in rounded):
            return Refused(f"%{addend.name} gives factors that are not finite")
        names = f"{node.name}.scale", f"{node.name}.shift"
        constants = [new_constant(graph, name, part) for name, part in zip(names, rounded, strict=True)]
        constants[0].origin = _origin(operator, addend, rounded[0].size)
        change(node, Affine(lo=operator.lo, hi=operator.hi), [x, *constants])
        return f"{operator.name} with one value a channel becomes Affine"


def per_channel(data: Array, shape: Shape) -> Array | None:
    """`data`, which broadcasts to `shape`, as a vector along axis 1; None if it depends on more."""
    if data.ndim > len(shape):
        return None
    padded = data.reshape((1,) * (len(shape) - data.ndim) + data.shape)
    if any(extent != 1 for axis, extent in enumerate(padded.shape) if axis != 1):
        return None
    return np.array(np.broadcast_to(padded.reshape(-1), (shape[1],)))


def _operands(node: Node) -> tuple[Value, Value, bool] | None:
    """The computed operand, the constant one, and whether the constant is on the left."""
    lhs, rhs = operand(node, 0), operand(node, 1)
    if lhs.is_constant == rhs.is_constant:
        return None
    return (rhs, lhs, True) if lhs.is_constant else (lhs, rhs, False)


def _origin(operator: Add | Sub | Mul | Div, addend: Value, channels: int) -> Origin | None:
    """The float32 computation of the factors that a number gives; None for others."""
    if operator.additive or addend.type.shape not in ((), (1,)) or not addend.type.is_float:
        return None
    ones = constant(f"{addend.name}.ones", np.ones(channels, np.float32))
    return Origin(type(operator)(), ones, addend)  # without bounds


def _factors(operator: Operator, vector: Array, is_left: bool) -> Factors:
    """float64 (r, t) of `x * r[c] + t[c]`."""
    ones, zeros = np.ones_like(vector), np.zeros_like(vector)
    if isinstance(operator, Add):
        return ones, vector
    if isinstance(operator, Sub):
        return (-ones, vector) if is_left else (ones, -vector)
    if isinstance(operator, Mul):
        return vector, zeros
    with np.errstate(divide="ignore"):
        return 1.0 / vector, zeros

"""Import of arithmetic with broadcasting, clamps and choices, any number of operands as a chain of two."""

from __future__ import annotations

import math

import numpy as np

from qglow.core.types import ElementType
from qglow.graph.graph import Value
from qglow.graph.operator import Operator
from qglow.graph.ops.elementwise import Add, Clip, Div, Mul, Pow, PRelu, Sub
from qglow.graph.ops.functions import LeakyRelu, PowerOf
from qglow.graph.ops.selection import Max, Min, Where
from qglow.graph.ops.shape import Cast, Identity, Reshape
from qglow.importer.node import ImportNode, ImportRule


def import_binary(node: ImportNode, operator: Operator) -> None:
    """Import an operator of two inputs."""
    node.emit(operator, node.value(0), _spread(node, node.value(0), node.value(1)))


def _spread(node: ImportNode, lhs: Value, rhs: Value) -> Value:
    """The second operand, which in opset 6 may have axes of the first in its middle, from `axis` on."""
    if node.opset >= 7:
        return rhs
    ranks = len(lhs.type.shape), len(rhs.type.shape)
    spreads, axis = node.integer("broadcast", 0), node.integer("axis", ranks[0] - ranks[1])
    last = ranks[0] - ranks[1] - axis % max(ranks[0], 1)
    if not spreads or last <= 0:
        return rhs
    return node.emit(Reshape(shape=(*rhs.type.shape, *(1,) * last)), rhs, part="spread")


def import_clip(node: ImportNode) -> None:
    """Import Clip; its bounds are attributes before opset 11 and inputs from then on."""
    if node.opset < 11:
        low, high = node.number("min", -math.inf), node.number("max", math.inf)
    elif not node.kind().is_float or any(
        node.has_input(index) and not node.value(index).is_constant for index in (1, 2)
    ):
        _clip_by_computed(node)
        return
    else:
        low, high = node.scalar(1, "the minimum", -math.inf), node.scalar(2, "the maximum", math.inf)
    node.require(not (math.isnan(low) or math.isnan(high)), "a bound is NaN, which bounds nothing")
    # Where the bounds cross, ONNX has the upper one everywhere.
    node.emit(Clip(lo=min(low, high), hi=high), node.value(0))


def _clip_by_computed(node: ImportNode) -> None:
    """Clip by computed bounds: the larger of x and the lower one, then the smaller of that and the upper."""
    x, low, high = node.value(0), node.optional(1), node.optional(2)
    if low is not None:
        x = node.emit(Max(), x, low, part="" if high is None else "raised")
    if high is not None:
        node.emit(Min(), x, high)
    elif low is None:
        node.emit(Identity(), x)


def import_pow(node: ImportNode) -> None:
    """Import Pow; a constant exponent makes a function of one variable. It may be of another type than x."""
    x, exponent = node.value(0), node.value(1)
    data = exponent.data
    spreads = np.broadcast_shapes(x.type.shape, exponent.type.shape) == x.type.shape
    if x.type.is_float and data is not None and data.size == 1 and spreads:
        number = float(data.reshape(()))
        node.emit(Identity() if number == 1.0 else PowerOf(exponent=number), x)
        return
    if exponent.type.is_float and x.type.is_plain_integer:
        real = node.emit(Cast(to=ElementType.FLOAT), x, part="real")
        node.emit(Cast(to=x.type.element), node.emit(Pow(), real, exponent, part="power"))
        return
    if exponent.type.element is not x.type.element:
        exponent = node.emit(Cast(to=x.type.element), exponent, part="exponent")
    node.emit(Pow(), x, exponent)


def import_prelu(node: ImportNode) -> None:
    """Import PRelu; one constant slope makes a LeakyRelu."""
    x, slope = node.value(0), node.value(1)
    if slope.data is not None and slope.data.size == 1:
        node.emit(LeakyRelu(alpha=float(slope.data.reshape(()))), x)
        return
    node.emit(PRelu(), x, slope)


def import_where(node: ImportNode) -> None:
    """Import Where."""
    node.emit(Where(), node.value(0), node.value(1), node.value(2))


def import_chain(node: ImportNode, operator: Operator) -> None:
    """Import an operator of one or more inputs, combined from left to right."""
    if len(node.inputs) == 1:
        node.emit(Identity(), node.value(0))
        return
    node.emit(operator, _all_but_last(node, operator), node.value(len(node.inputs) - 1))


def import_mean(node: ImportNode) -> None:
    """Import Mean: the sum of all inputs times one over their number."""
    count = len(node.inputs)
    if count == 1:
        node.emit(Identity(), node.value(0))
        return
    total = node.emit(Add(), _all_but_last(node, Add()), node.value(count - 1), part="sum")
    node.emit(Mul(), total, node.part_constant("share", np.array(1 / count, np.float32)))


def _all_but_last(node: ImportNode, operator: Operator) -> Value:
    total = node.value(0)
    for index in range(1, len(node.inputs) - 1):
        total = node.emit(operator, total, node.value(index), part=f"{index}")
    return total


RULES: dict[str, ImportRule] = {
    "Add": ImportRule(lambda node: import_binary(node, Add()), newest=14),
    "Clip": ImportRule(import_clip, newest=13),
    "Div": ImportRule(lambda node: import_binary(node, Div()), newest=14),
    "Max": ImportRule(lambda node: import_chain(node, Max()), newest=13),
    "Mean": ImportRule(import_mean, newest=13),
    "Min": ImportRule(lambda node: import_chain(node, Min()), newest=13),
    "Mul": ImportRule(lambda node: import_binary(node, Mul()), newest=14),
    "PRelu": ImportRule(import_prelu, newest=16),
    "Pow": ImportRule(import_pow, newest=15),
    "Sub": ImportRule(lambda node: import_binary(node, Sub()), newest=14),
    "Sum": ImportRule(lambda node: import_chain(node, Add()), newest=13),
    "Where": ImportRule(import_where, newest=16),
}

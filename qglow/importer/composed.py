"""Import of operators as the arithmetic that defines them.

https://onnx.ai/onnx/operators/ Celu, CumProd, CumSum, GroupNormalization, IsInf, IsNaN, LpNormalization,
MeanVarianceNormalization, RMSNormalization, Selu, Shrink, ThresholdedRelu
"""

from __future__ import annotations

import math

import numpy as np

from qglow.graph.graph import Value
from qglow.graph.ops.elementwise import Add, Div, Mul, Sub
from qglow.graph.ops.functions import Abs, Elu, Sqrt
from qglow.graph.ops.logic import Compare
from qglow.graph.ops.movement import Slice
from qglow.graph.ops.normalization import InstanceNormalization
from qglow.graph.ops.reduce import CumSum, ReduceMean, ReduceSum
from qglow.graph.ops.selection import Where
from qglow.graph.ops.shape import Identity, Reshape
from qglow.importer.node import ImportNode, ImportRule
from qglow.importer.shape import joined

GROUPS_HAVE_CHANNELS = 21
"""Operator set from which on GroupNormalization has a scale and a bias for each channel."""
LEAST_DEVIATION = 1e-9
"""Added to standard deviations by MeanVarianceNormalization, whose definition has the number."""


MOST_STEPS = 512
"""Places of an axis along which products run element by element."""


def _real(node: ImportNode, index: int = 0) -> Value:
    node.require(node.kind(index).is_float, f"input {index} is {node.kind(index)}; only float is supported")
    return node.value(index)


def _number(node: ImportNode, part: str, value: float) -> Value:
    return node.part_constant(part, np.array(value, np.float32))


def _is(node: ImportNode, relation: str, x: Value, bound: Value, part: str = "") -> Value:
    return node.emit(Compare(relation=relation), x, bound, part=part)


# Functions of one variable


def import_celu(node: ImportNode) -> None:
    """Import Celu: x where that is positive, else alpha * (e^(x / alpha) - 1)."""
    x, alpha = _real(node), node.number("alpha", 1.0)
    node.require(alpha != 0, "alpha is 0")
    if alpha == 1.0:
        node.emit(Elu(alpha=1.0), x)
        return
    inner = node.emit(Mul(), x, _number(node, "inverse", 1 / alpha), part="divided")
    node.emit(Mul(), node.emit(Elu(alpha=1.0), inner, part="elu"), _number(node, "alpha", alpha))


def import_selu(node: ImportNode) -> None:
    """Import Selu: gamma times the Elu of x."""
    alpha = node.number("alpha", 1.6732632423543772)
    inner = node.emit(Elu(alpha=alpha), _real(node), part="elu")
    node.emit(Mul(), inner, _number(node, "gamma", node.number("gamma", 1.0507009873554805)))


def import_thresholded_relu(node: ImportNode) -> None:
    """Import ThresholdedRelu: x where it is above alpha, else 0."""
    x, alpha = _real(node), _number(node, "alpha", node.number("alpha", 1.0))
    node.emit(Where(), _is(node, "greater", x, alpha, "above"), x, _number(node, "zero", 0.0))


def import_shrink(node: ImportNode) -> None:
    """Import Shrink: what lies beyond lambd on either side comes closer to 0 by bias, the rest is 0."""
    x, limit = _real(node), node.number("lambd", 0.5)
    bias, zero = _number(node, "bias", node.number("bias", 0.0)), _number(node, "zero", 0.0)
    above = _is(node, "greater", x, _number(node, "upper", limit), "above")
    below = _is(node, "less", x, _number(node, "lower", -limit), "below")
    rest = node.emit(Where(), below, node.emit(Add(), x, bias, part="raised"), zero, part="low")
    node.emit(Where(), above, node.emit(Sub(), x, bias, part="lowered"), rest)


def import_is_nan(node: ImportNode) -> None:
    """Import IsNaN: what does not equal itself."""
    x = _real(node)
    _is(node, "not-equal", x, x)


def import_is_inf(node: ImportNode) -> None:
    """Import IsInf, of one sign or of both."""
    x = _real(node)
    negative, positive = (node.integer(f"detect_{sign}", 1) != 0 for sign in ("negative", "positive"))
    if negative and positive:
        _is(node, "equal", node.emit(Abs(), x, part="size"), _number(node, "infinity", math.inf))
    else:
        # A NaN equals nothing, so that it stands for neither infinity.
        wanted = math.inf if positive else -math.inf if negative else math.nan
        _is(node, "equal", x, _number(node, "infinity", wanted))


# Sums and normalizations


def import_cum_sum(node: ImportNode) -> None:
    """Import CumSum along a constant axis."""
    axis = node.axis(int(node.scalar(1, "the axis", 0)), node.rank())
    exclusive, reverse = (node.integer(name, 0) != 0 for name in ("exclusive", "reverse"))
    node.emit(CumSum(axis, exclusive, reverse), node.value(0))


def import_cum_prod(node: ImportNode) -> None:
    """Import CumProd along a constant axis: all elements up to each place, one product after the other."""
    axis, x, shape = (
        node.axis(int(node.scalar(1, "the axis", 0)), node.rank()),
        node.value(0),
        node.kind().shape,
    )
    size, exclusive, reverse = shape[axis], node.integer("exclusive", 0), node.integer("reverse", 0)
    node.require(0 < size <= MOST_STEPS, f"{size} places; 1 to {MOST_STEPS} are supported")
    one = (*shape[:axis], 1, *shape[axis + 1 :])
    total = node.part_constant("one", np.ones(one, x.type.element.dtype))
    results: list[Value] = []
    for place in reversed(range(size)) if reverse else range(size):
        if exclusive:
            results.append(total)
        starts = tuple(place if i == axis else 0 for i in range(len(shape)))
        ends = tuple(place + 1 if i == axis else extent for i, extent in enumerate(shape))
        part = node.emit(Slice(starts, ends, (1,) * len(shape)), x, part=f"place{place}")
        total = node.emit(Mul(), total, part, part=f"until{place}") if exclusive or results else part
        if not exclusive:
            results.append(total)
    whole = joined(node, results[::-1] if reverse else results, "whole", axis)
    node.emit(Identity(), whole)


def import_lp_normalization(node: ImportNode) -> None:
    """Import LpNormalization: x / its norm along an axis; 0 where all is 0."""
    x, axes = _real(node), (node.axis(node.integer("axis", -1), node.rank()),)
    power = node.integer("p", 2)
    node.require(power in (1, 2), f"p {power}; 1 and 2 are supported")
    if power == 1:
        norm = node.emit(ReduceSum(axes, True), node.emit(Abs(), x, part="sizes"), part="norm")
    else:
        total = node.emit(ReduceSum(axes, True), node.emit(Mul(), x, x, part="squares"), part="sum")
        norm = node.emit(Sqrt(), total, part="norm")
    is_zero = _is(node, "equal", norm, _number(node, "zero", 0.0), "is_zero")
    node.emit(Div(), x, node.emit(Where(), is_zero, _number(node, "one", 1.0), norm, part="divisor"))


def import_rms_normalization(node: ImportNode) -> None:
    """Import RMSNormalization: x / the root of the mean square over the last axes, times a scale."""
    node.require(node.integer("stash_type", 1) == 1, "statistics in another type than float")
    x, axis = _real(node), node.axis(node.integer("axis", -1), node.rank())
    give_rms_normalized(node, x, node.value(1), axis, node.number("epsilon", 1e-5))


def give_rms_normalized(node: ImportNode, x: Value, scale: Value, axis: int, epsilon: float) -> None:
    """Let the node's first output be x over the root of its mean square from an axis on, times a scale."""
    axes = tuple(range(axis, len(x.type.shape)))
    mean = node.emit(ReduceMean(axes), node.emit(Mul(), x, x, part="squares"), part="mean")
    mean = node.emit(Add(), mean, _number(node, "epsilon", epsilon), part="shifted")
    normal = node.emit(Div(), x, node.emit(Sqrt(), mean, part="root"), part="normal")
    node.emit(Mul(), normal, scale)


def import_group_normalization(node: ImportNode) -> None:
    """Import GroupNormalization: groups of channels standardized, then scale and bias by channel.

    Before opset 21 they are by group.
    """
    node.require(node.integer("stash_type", 1) == 1, "statistics in another type than float")
    x, groups = _real(node), node.integer("num_groups", 0)
    node.require(node.rank() >= 3, f"input has {node.rank()} dimensions; at least three are needed")
    images, channels, *pixels = x.type.shape
    node.require(groups > 0 and channels % groups == 0, f"{channels} channels in {groups} groups")
    shape = (images, groups, channels // groups * math.prod(pixels))
    apart = node.emit(Reshape(shape=shape), x, part="groups")
    operator = InstanceNormalization(epsilon=node.number("epsilon", 1e-5))
    if node.opset < GROUPS_HAVE_CHANNELS:
        normal = node.emit(operator, apart, node.value(1), node.value(2), part="normal")
        node.emit(Reshape(shape=x.type.shape), normal)
        return
    one = node.part_constant("ones", np.ones(groups, np.float32))
    zero = node.part_constant("zeros", np.zeros(groups, np.float32))
    normal = node.emit(operator, apart, one, zero, part="normal")
    normal = node.emit(Reshape(shape=x.type.shape), normal, part="channels")
    column = Reshape(shape=(channels, *(1,) * len(pixels)))
    scale, bias = (node.emit(column, node.value(index), part=f"input{index}") for index in (1, 2))
    node.emit(Add(), node.emit(Mul(), normal, scale, part="scaled"), bias)


def import_mean_variance_normalization(node: ImportNode) -> None:
    """Import MeanVarianceNormalization: (x - its mean) / its standard deviation over some axes."""
    x = _real(node)
    axes = tuple(sorted(node.axis(axis, node.rank()) for axis in node.integers("axes", (0, 2, 3))))
    centred = node.emit(Sub(), x, node.emit(ReduceMean(axes), x, part="mean"), part="centred")
    squares = node.emit(Mul(), centred, centred, part="squares")
    deviation = node.emit(Sqrt(), node.emit(ReduceMean(axes), squares, part="variance"), part="deviation")
    node.emit(
        Div(), centred, node.emit(Add(), deviation, _number(node, "least", LEAST_DEVIATION), part="divisor")
    )


RULES: dict[str, ImportRule] = {
    "Celu": ImportRule(import_celu, newest=28),
    "CumProd": ImportRule(import_cum_prod, newest=26),
    "CumSum": ImportRule(import_cum_sum, newest=14),
    "GroupNormalization": ImportRule(import_group_normalization, newest=21),
    "IsInf": ImportRule(import_is_inf, newest=20),
    "IsNaN": ImportRule(import_is_nan, newest=20),
    "LpNormalization": ImportRule(import_lp_normalization, newest=22),
    "MeanVarianceNormalization": ImportRule(import_mean_variance_normalization, newest=13),
    "RMSNormalization": ImportRule(import_rms_normalization, newest=23),
    "Selu": ImportRule(import_selu, newest=22),
    "Shrink": ImportRule(import_shrink, newest=9),
    "ThresholdedRelu": ImportRule(import_thresholded_relu, newest=22),
}

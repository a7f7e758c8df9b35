"""Import of reductions. https://onnx.ai/onnx/operators/ Reduce*

Norms and logarithms of sums become elementwise operators around a sum.
"""

from __future__ import annotations

import numpy as np

from qglow.graph.graph import Value
from qglow.graph.ops.elementwise import Add, Clip, Mul, Sub
from qglow.graph.ops.functions import Exp, Log, Sqrt
from qglow.graph.ops.pool import GlobalAveragePool
from qglow.graph.ops.reduce import (
    ReduceMax,
    ReduceMean,
    ReduceMin,
    ReduceProd,
    ReduceSum,
    Reduction,
)
from qglow.graph.ops.shape import Identity, Reshape
from qglow.importer.functions import absolute
from qglow.importer.node import ImportNode, ImportRule

AXES_ARE_AN_INPUT = {"ReduceSum": 13}
LATER = 18
LARGEST = float(np.finfo(np.float32).max)


def read_axes(node: ImportNode) -> tuple[int, ...]:
    """The axes to reduce, counted from the front; none where an empty list means so."""
    rank = node.rank()
    if node.opset < AXES_ARE_AN_INPUT.get(node.proto.op_type, LATER):
        stated = node.integers("axes", ())
        keeps_all = False
    else:
        data = node.optional_array(1, "the axes")
        stated = () if data is None else tuple(int(axis) for axis in data.reshape(-1))
        keeps_all = node.integer("noop_with_empty_axes", 0) != 0
    if stated:
        return tuple(sorted({node.axis(axis, rank) for axis in stated}))
    return () if keeps_all else tuple(range(rank))


def _plain(operator: type[Reduction]) -> ImportRule:
    def rule(node: ImportNode) -> None:
        _finish(node, operator, node.value(0), *_axes(node))

    return ImportRule(rule, newest=20)


def _finish(
    node: ImportNode, operator: type[Reduction], x: Value, axes: tuple[int, ...], keepdims: bool
) -> None:
    """The reduction that gives the node's output."""
    if not axes:
        node.emit(Identity(), x)
        return
    pixels = min(x.type.shape[2:], default=0)
    if operator is ReduceMean and len(x.type.shape) == 4 and axes == (2, 3) and x.type.is_float and pixels:
        _global_average(node, x, keepdims)
        return
    node.emit(operator(axes, keepdims), x)  # type: ignore[call-arg]


def _global_average(node: ImportNode, x: Value, keepdims: bool) -> None:
    """The mean over the pixels of images is what GlobalAveragePool gives."""
    if keepdims:
        node.emit(GlobalAveragePool(), x)
        return
    pooled = node.emit(GlobalAveragePool(), x, part="pooled")
    node.emit(Reshape(shape=x.type.shape[:2]), pooled)


def _real(node: ImportNode) -> Value:
    node.require(node.kind().is_float, f"input is {node.kind()}; only float is supported")
    return node.value(0)


def _number(node: ImportNode) -> Value:
    kind = node.kind()
    node.require(kind.is_float or kind.is_plain_integer, f"input is {kind}; only numbers are supported")
    return node.value(0)


def _axes(node: ImportNode) -> tuple[tuple[int, ...], bool]:
    """The axes, and whether they stay."""
    return read_axes(node), node.integer("keepdims", 1) != 0


def _total(node: ImportNode, addends: Value) -> Value:
    """The sum over the node's axes, for an operator that follows."""
    axes, keepdims = _axes(node)
    return node.emit(ReduceSum(axes, keepdims), addends, part="sum") if axes else addends


def import_l1(node: ImportNode) -> None:
    """Import ReduceL1: the sum of absolute values."""
    _finish(node, ReduceSum, absolute(node, _number(node), part="absolute"), *_axes(node))


def import_l2(node: ImportNode) -> None:
    """Import ReduceL2: the square root of the sum of squares."""
    x = _real(node)
    node.emit(Sqrt(), _total(node, node.emit(Mul(), x, x, part="squares")))


def import_sum_square(node: ImportNode) -> None:
    """Import ReduceSumSquare: the sum of squares."""
    x = _number(node)
    _finish(node, ReduceSum, node.emit(Mul(), x, x, part="squares"), *_axes(node))


def import_log_sum(node: ImportNode) -> None:
    """Import ReduceLogSum: the logarithm of the sum."""
    node.emit(Log(), _total(node, _real(node)))


def import_log_sum_exp(node: ImportNode) -> None:
    """Import ReduceLogSumExp: log of the sum of e^(x - m), plus m, with m the largest (finite) element."""
    x, (axes, keepdims) = _real(node), _axes(node)
    if not axes:
        node.emit(Log(), node.emit(Exp(), x, part="powers"))
        return
    largest = node.emit(ReduceMax(axes, True), x, part="largest")
    # Infinities would give NaN; differences to the largest finite number stay what they are.
    largest = node.emit(Clip(lo=-LARGEST, hi=LARGEST), largest, part="finite")
    powers = node.emit(Exp(), node.emit(Sub(), x, largest, part="shifted"), part="powers")
    total = node.emit(ReduceSum(axes, True), powers, part="sum")
    logarithm = node.emit(Log(), total, part="logarithm")
    if keepdims:
        node.emit(Add(), logarithm, largest)
        return
    result = node.emit(Add(), logarithm, largest, part="kept")
    shape = tuple(n for axis, n in enumerate(x.type.shape) if axis not in axes)
    node.emit(Reshape(shape=shape), result)


RULES: dict[str, ImportRule] = {
    "ReduceL1": ImportRule(import_l1, newest=18),
    "ReduceL2": ImportRule(import_l2, newest=18),
    "ReduceLogSum": ImportRule(import_log_sum, newest=28),
    "ReduceLogSumExp": ImportRule(import_log_sum_exp, newest=28),
    "ReduceMax": _plain(ReduceMax),
    "ReduceMean": _plain(ReduceMean),
    "ReduceMin": _plain(ReduceMin),
    "ReduceProd": _plain(ReduceProd),
    "ReduceSum": _plain(ReduceSum),
    "ReduceSumSquare": ImportRule(import_sum_square, newest=18),
}

"""Reductions: the value seen as [outer, extent, inner], reduced along the middle."""

from __future__ import annotations

import math

import numpy as np

from qglow.core.types import Shape
from qglow.graph.graph import Node
from qglow.graph.ops import reduce as graph
from qglow.instructions.ops.elementwise import ElementDiv
from qglow.instructions.ops.reduce import Reduce, RunningSum
from qglow.instructions.program import Buffer
from qglow.lowering.context import Lowering, Order
from qglow.lowering.pool import emit_mean
from qglow.lowering.rules import lowers


@lowers(graph.ReduceSum, graph.ReduceMean, graph.ReduceProd, graph.ReduceMax, graph.ReduceMin)
def lower_reduction(lowering: Lowering, node: Node, operator: graph.Reduction) -> None:
    """Lower to one reduce; for means of int8 a pool, of other integers a sum and a division."""
    rows, result = reduction_operands(lowering, node, operator.axes, operator.keepdims)
    if rows.type.is_plain_integer and operator.kind == "mean":
        _emit_whole_mean(lowering, node, result, rows)
        return
    if not rows.type.is_quantized or operator.kind != "mean":
        lowering.emit(Reduce(kind=operator.kind), result, rows)
        return
    emit_mean(lowering, result, rows)


@lowers(graph.CumSum)
def lower_running_sum(lowering: Lowering, node: Node, operator: graph.CumSum) -> None:
    """Lower to one runningsum."""
    count = node.output.type.shape[operator.axis]
    rows, result = reduction_operands(lowering, node, (operator.axis,), True, count)
    lowering.emit(RunningSum(operator.exclusive, operator.reverse), result, rows)


def _emit_whole_mean(lowering: Lowering, node: Node, result: Buffer, rows: Buffer) -> None:
    """Emit the sum of integers and its division by their number."""
    total = lowering.allocate(f"{result.name}.sum", result.type)
    lowering.emit(Reduce(kind="sum"), total, rows, suffix=".sum")
    data = np.full((1, 1, 1), max(rows.type.shape[1], 1), rows.type.element.dtype)
    lowering.emit(ElementDiv(), result, total, lowering.constant(f"{node.name}.count", data))


def reduction_operands(
    lowering: Lowering, node: Node, axes: tuple[int, ...], keepdims: bool, count: int = 1
) -> tuple[Buffer, Buffer]:
    """Views of a node's input as [outer, extent, inner] and of its output as [outer, count, inner].

    The elements along `extent` are in the model's order.
    """
    x = node.inputs[0]
    assert x is not None
    shape = x.type.shape
    reduced = sorted(axis % len(shape) for axis in axes)
    order, start, stop = _order(lowering.order(x), shape, reduced)
    source = lowering.read(x, order)
    if keepdims:
        dest = lowering.write(node.output, order)
    else:
        kept = [axis for axis in range(len(shape)) if axis not in reduced]
        dest = lowering.write(node.output, tuple(kept.index(a) for a in order if a in kept))
    outer = math.prod(shape[axis] for axis in order[:start])
    extent = math.prod(shape[axis] for axis in order[start:stop])
    inner = math.prod(shape[axis] for axis in order[stop:])
    rows = lowering.view(f"{node.name}.rows", source, x.type.with_shape((outer, extent, inner)))
    return rows, lowering.view(f"{dest.name}.rows", dest, node.output.type.with_shape((outer, count, inner)))


def _order(order: Order, shape: Shape, reduced: list[int]) -> tuple[Order, int, int]:
    """An axis order in which the reduced axes are adjacent and ascending, and the range of their places.

    The range is given by its first place and the place after its last. The order is `order` itself if the
    reduced axes are adjacent and ascending there.
    """
    if not reduced:
        return order, 0, 0
    places = [place for place, axis in enumerate(order) if axis in reduced]
    start, stop = places[0], places[-1] + 1
    together = all(axis in reduced or shape[axis] == 1 for axis in order[start:stop])
    moving = [axis for axis in order if axis in reduced and shape[axis] != 1]
    if together and moving == sorted(moving):
        return order, start, stop
    kept = [axis for axis in order if axis not in reduced]
    return (*kept, *reduced), len(kept), len(order)

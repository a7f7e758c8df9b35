"""Resizing: one interpolate for each axis; nearest neighbours are decomposed into Gathers."""

from __future__ import annotations

import math

from qglow.core.types import TensorType, float_type
from qglow.graph.graph import Node
from qglow.graph.ops import resize as graph
from qglow.instructions.ops.memory import Copy
from qglow.instructions.ops.quantize import Rescale
from qglow.instructions.ops.resize import Interpolate
from qglow.instructions.program import Buffer
from qglow.lowering.bounds import bounds
from qglow.lowering.context import Lowering, Order, permuted
from qglow.lowering.decompose import Parts, decomposes
from qglow.lowering.rules import lowers
from qglow.lowering.shape import gathers
from qglow.numerics.resize import Taps


@lowers(graph.Resize)
def lower_resize(lowering: Lowering, node: Node, operator: graph.Resize) -> None:
    """Lower to one interpolate for each axis, with float values in between; channels lie innermost."""
    x = node.inputs[0]
    assert x is not None
    order = channels_last(len(x.type.shape))
    steps = operator.taps(x.type.shape)
    source = lowering.read(x, order)
    shape = list(x.type.shape)
    for number, (axis, taps) in enumerate(steps, start=1):
        shape[axis] = taps.indices.shape[0]
        last = number == len(steps)
        kind = permuted(float_type(*shape), order)
        name = f"{node.output.name}.axis{axis}"
        dest = lowering.write(node.output, order) if last else lowering.allocate(name, kind)
        _interpolate(lowering, node, dest, source, order.index(axis), taps)
        source = dest
    if not steps:
        _unchanged(lowering, node, source, order, x.type)


def channels_last(rank: int) -> Order:
    """The order with axis 1 last; the natural order for fewer than three axes."""
    return (0, *range(2, rank), 1) if rank > 2 else tuple(range(rank))


def _interpolate(lowering: Lowering, node: Node, dest: Buffer, source: Buffer, axis: int, taps: Taps) -> None:
    name = f"{node.name}.axis{axis}"
    operands = [lowering.constant(f"{name}.indices", taps.indices)]
    operands.append(lowering.constant(f"{name}.weights", taps.weights))
    if taps.offsets is not None:
        operands.append(lowering.constant(f"{name}.offsets", taps.offsets))
    lowering.emit(Interpolate(axis=axis), dest, source, *operands, suffix=f".axis{axis}")


def _unchanged(lowering: Lowering, node: Node, source: Buffer, order: Order, kind: TensorType) -> None:
    dest = lowering.write(node.output, order)
    limits = bounds(-math.inf, math.inf, node.output.type)
    operation = Rescale(**limits) if kind.is_quantized else Copy()  # type: ignore[arg-type]
    lowering.emit(operation, dest, source)


@decomposes(graph.ResizeNearest)
def decompose_resize_nearest(operator: graph.ResizeNearest, parts: Parts) -> list[Node]:
    """Decompose into a gather for each axis that changes."""
    x = parts.operand()
    return gathers(parts, x, operator.indices(x.type.shape))

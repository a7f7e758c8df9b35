"""Elementwise operators. Operands are broadcast to the result; those of lower rank get leading axes."""

from __future__ import annotations

import numpy as np

from qglow.graph.graph import Node, Value
from qglow.graph.ops import elementwise as graph
from qglow.instructions.operation import Operation
from qglow.instructions.ops import elementwise as instructions
from qglow.instructions.ops.movement import Transpose
from qglow.instructions.ops.quantize import Rescale
from qglow.instructions.program import Buffer
from qglow.lowering.bounds import bounds
from qglow.lowering.context import NHWC, Lowering, Order, natural, permuted, same_memory
from qglow.lowering.decompose import Parts, decomposes
from qglow.lowering.rules import lowers

_ARITHMETIC: dict[type[graph.Binary], type[Operation]] = {
    graph.Add: instructions.ElementAdd,
    graph.Sub: instructions.ElementSub,
    graph.Mul: instructions.ElementMul,
    graph.Div: instructions.ElementDiv,
    graph.Pow: instructions.ElementPower,
}
SHORT_RUN = 16
"""Extent of the last axis below which constants are stored broadcast, so that loops fill whole vectors."""


@lowers(*_ARITHMETIC)
def lower_arithmetic(lowering: Lowering, node: Node, operator: graph.Binary) -> None:
    """Lower to one instruction with the operator's bounds."""
    limits = bounds(operator.lo, operator.hi, node.output.type)
    lower_elementwise(lowering, node, _ARITHMETIC[type(operator)](**limits))


@lowers(graph.PRelu)
def lower_prelu(lowering: Lowering, node: Node, operator: graph.PRelu) -> None:
    """Lower to one instruction over x and its slopes."""
    lower_elementwise(lowering, node, instructions.PRelu())


def lower_elementwise(lowering: Lowering, node: Node, operation: Operation) -> None:
    """Lower to one instruction over operands that are broadcast to the result."""
    values = [v for v in node.inputs if v is not None]
    order = common_order(lowering, values, node.output.type.shape)
    sources = [_spread(lowering, node, value, order) for value in values]
    dest = lowering.write(node.output, order)
    lowering.emit(operation, dest, *sources)


@lowers(graph.Clip)
def lower_clip(lowering: Lowering, node: Node, operator: graph.Clip) -> None:
    """Lower to a float clip, or a rescale whose bounds are the clip's."""
    x = node.inputs[0]
    assert x is not None
    source, order = lowering.read(x), lowering.order(x)
    dest = lowering.write(node.output, order)
    limits = bounds(operator.lo, operator.hi, node.output.type)
    operation = Rescale(**limits) if x.type.is_quantized else instructions.Clip(**limits)  # type: ignore[arg-type]
    lowering.emit(operation, dest, source)


def common_order(lowering: Lowering, values: list[Value], shape: tuple[int, ...]) -> Order:
    """NHWC if a computed operand of the result's rank is stored so, else the first such operand's order."""
    orders = [lowering.order(v) for v in values if v.data is None and len(v.type.shape) == len(shape)]
    if NHWC in orders:
        return NHWC
    return orders[0] if orders else natural(shape)


def _spread(lowering: Lowering, node: Node, value: Value, order: Order) -> Buffer:
    """An operand with as many axes as the result, in this order."""
    shape = node.output.type.shape
    if value.data is not None and value.type.shape != shape:
        return _spread_constant(lowering, node, value, order)
    if len(value.type.shape) == len(shape):
        return lowering.read(value, order)
    source = lowering.read(value, natural(value.type.shape))
    full = value.type.with_shape((*(1,) * (len(shape) - len(value.type.shape)), *value.type.shape))
    name = f"{value.name}.for.{node.name}"
    if same_memory(full.shape, order):
        return lowering.view(name, source, permuted(full, order))
    seen = lowering.view(f"{name}.axes", source, full)
    target = lowering.allocate(name, permuted(full, order))
    lowering.emit(Transpose(perm=order), target, seen, suffix=".transpose")
    return target


def _spread_constant(lowering: Lowering, node: Node, value: Value, order: Order) -> Buffer:
    """A constant with the result's axes, broadcast to its whole shape if the last axis is short."""
    shape = node.output.type.shape
    data = np.asarray(value.data).reshape((*(1,) * (len(shape) - len(value.type.shape)), *value.type.shape))
    inner = next((shape[axis] for axis in reversed(order) if shape[axis] != 1), 1)
    if data.size > 1 and inner < SHORT_RUN:
        data = np.broadcast_to(data, shape)
    data = data.transpose(order)
    return lowering.constant(f"{value.name}.for.{node.name}", data, value.type.with_shape(data.shape))


@decomposes(graph.Relu)
def decompose_relu(operator: graph.Relu, parts: Parts) -> list[Node]:
    """Decompose into a clip."""
    return parts.finish(graph.Clip(lo=0.0), *parts.node.inputs)

"""Elementwise operators. Operands of one instruction have one shape; constants are broadcast here."""

from __future__ import annotations

import numpy as np

from qglow.core.errors import UnsupportedError
from qglow.graph.graph import Node, Value
from qglow.graph.operator import Operator
from qglow.graph.ops import elementwise as graph
from qglow.instructions.operation import Operation
from qglow.instructions.ops import elementwise as instructions
from qglow.instructions.ops.activation import Sigmoid, Tanh
from qglow.instructions.ops.quantize import Lookup, Rescale
from qglow.instructions.program import Buffer
from qglow.lowering.bounds import bounds
from qglow.lowering.context import NHWC, Lowering, Order, natural, permuted
from qglow.lowering.rules import lowers
from qglow.numerics.tables import build_table

_BINARY: dict[type[Operator], type[Operation]] = {
    graph.Add: instructions.ElementAdd,
    graph.Sub: instructions.ElementSub,
    graph.Mul: instructions.ElementMul,
}
_UNARY: dict[type[Operator], type[Operation]] = {
    graph.Sigmoid: Sigmoid,
    graph.Tanh: Tanh,
}


@lowers(graph.Add, graph.Sub, graph.Mul)
def lower_binary(lowering: Lowering, node: Node) -> None:
    """One instruction over two operands of the result's shape."""
    operator = node.operator
    assert isinstance(operator, graph.Add | graph.Sub | graph.Mul)
    result = node.output.type
    order = common_order(lowering, [v for v in node.inputs if v is not None], result.shape)
    sources = [_broadcast(lowering, node, value, order) for value in node.inputs]
    dest = lowering.write(node.output, order)
    operation = _BINARY[type(operator)](**bounds(operator.lo, operator.hi, result))
    lowering.emit(operation, dest, *sources)


@lowers(graph.Clip)
def lower_clip(lowering: Lowering, node: Node) -> None:
    """A float clip, or a rescale whose bounds are the clip's."""
    operator = node.operator
    assert isinstance(operator, graph.Clip)
    x = node.inputs[0]
    assert x is not None
    source, order = lowering.read(x), lowering.order(x)
    dest = lowering.write(node.output, order)
    limits = bounds(operator.lo, operator.hi, node.output.type)
    operation = Rescale(**limits) if x.type.is_quantized else instructions.Clip(**limits)  # type: ignore[arg-type]
    lowering.emit(operation, dest, source)


@lowers(graph.Sigmoid, graph.Tanh)
def lower_unary(lowering: Lowering, node: Node) -> None:
    """A float function of each element, or its table where both sides are int8."""
    x, result = node.inputs[0], node.output.type
    assert x is not None
    source, order = lowering.read(x), lowering.order(x)
    dest = lowering.write(node.output, order)
    if x.type.quantization is None or result.quantization is None:
        lowering.emit(_UNARY[type(node.operator)](), dest, source)
        return
    table = build_table(node.operator.reference64, x.type.quantization, result.quantization)
    lowering.emit(Lookup(), dest, source, lowering.constant(f"{node.name}.table", table))


def common_order(lowering: Lowering, values: list[Value], shape: tuple[int, ...]) -> Order:
    """NHWC where an operand of an image already lies so, else the order of the first operand."""
    orders = [lowering.order(v) for v in values if v.data is None and len(v.type.shape) == len(shape)]
    if NHWC in orders:
        return NHWC
    return orders[0] if orders else natural(shape)


def _broadcast(lowering: Lowering, node: Node, value: Value | None, order: Order) -> Buffer:
    assert value is not None
    shape = node.output.type.shape
    if value.type.shape == shape:
        return lowering.read(value, order)
    if value.data is None:
        raise UnsupportedError(
            f"node '{node.name}' ({node.operator.name}): broadcasting {value.type} to "
            f"{node.output.type} is supported for constants only"
        )
    data = np.broadcast_to(value.data, shape).transpose(order)
    kind = permuted(value.type.with_shape(shape), order)
    return lowering.constant(f"{value.name}.for.{node.name}", data, kind)

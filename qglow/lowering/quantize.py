"""Conversions between float and int8, rescales, and profiling."""

from __future__ import annotations

from qglow.core.types import ElementType, TensorType, float_type
from qglow.graph.graph import Node
from qglow.graph.operator import Operator
from qglow.graph.ops import quantize as graph
from qglow.instructions.operation import Operation
from qglow.instructions.ops import quantize as instructions
from qglow.instructions.ops.profile import RecordProfile
from qglow.lowering.bounds import bounds
from qglow.lowering.context import Lowering, natural
from qglow.lowering.rules import lowers
from qglow.numerics.histogram import BIN_COUNT
from qglow.numerics.tables import build_table


@lowers(graph.Quantize)
def lower_quantize(lowering: Lowering, node: Node, operator: graph.Quantize) -> None:
    """Lower to one quantize, in the order in which the value lies."""
    _same_order(lowering, node, instructions.Quantize())


@lowers(graph.Dequantize)
def lower_dequantize(lowering: Lowering, node: Node, operator: graph.Dequantize) -> None:
    """Lower to one dequantize, in the order in which the value lies."""
    _same_order(lowering, node, instructions.Dequantize())


@lowers(graph.Rescale)
def lower_rescale(lowering: Lowering, node: Node, operator: graph.Rescale) -> None:
    """Lower to one rescale, in the order in which the value lies."""
    limits = bounds(operator.lo, operator.hi, node.output.type)
    _same_order(lowering, node, instructions.Rescale(**limits))  # type: ignore[arg-type]


def lower_table(lowering: Lowering, node: Node, operator: Operator) -> None:
    """Lower to a look-up of each int8 element in a function's table, in the order in which the value lies."""
    x, result = node.inputs[0], node.output.type
    assert x is not None and x.type.quantization is not None and result.quantization is not None
    source, order = lowering.read(x), lowering.order(x)
    dest = lowering.write(node.output, order)
    table = build_table(operator.reference64, x.type.quantization, result.quantization)
    lowering.emit(instructions.Lookup(), dest, source, lowering.constant(f"{node.name}.table", table))


@lowers(graph.QuantizationProfile)
def lower_profile(lowering: Lowering, node: Node, operator: graph.QuantizationProfile) -> None:
    """Lower to one profile over the value as it lies, with statistics in state placeholders."""
    x = node.inputs[0]
    assert x is not None
    order = lowering.order(x)
    if order and order[0] != 0:  # statistics are per sample: the batch has to lie outermost
        order = natural(x.type.shape)
    source = lowering.read(x, order)
    axis = order.index(1) if len(order) > 1 and operator.channels else None
    kinds = {"counts": TensorType(ElementType.INT64, (BIN_COUNT,)), "range": float_type(2)}
    if axis is not None:
        batch, channels = x.type.shape[:2]
        kinds["channel_range"] = float_type(2, channels)
        kinds["channel_sums"] = TensorType(ElementType.DOUBLE, (batch, channels))
    state = [lowering.placeholder(f"{x.name}.{part}", kind) for part, kind in kinds.items()]
    lowering.emit(RecordProfile(channel_axis=axis), source, *state)


def _same_order(lowering: Lowering, node: Node, operation: Operation) -> None:
    x = node.inputs[0]
    assert x is not None
    source, order = lowering.read(x), lowering.order(x)
    dest = lowering.write(node.output, order)
    lowering.emit(operation, dest, source)

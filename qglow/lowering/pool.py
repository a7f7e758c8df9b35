"""Pooling over NHWC images."""

from __future__ import annotations

from qglow.graph.graph import Node
from qglow.graph.ops import pool as graph
from qglow.instructions.operation import Operation
from qglow.instructions.ops import pool as instructions
from qglow.lowering.context import NHWC, Lowering
from qglow.lowering.rules import lowers


@lowers(graph.MaxPool)
def lower_max_pool(lowering: Lowering, node: Node) -> None:
    """One maxpool."""
    operator = node.operator
    assert isinstance(operator, graph.MaxPool)
    operation = instructions.MaxPool(
        kernel=operator.kernel,
        strides=operator.strides,
        pads=operator.pads,
        dilations=operator.dilations,
        ceil_mode=operator.ceil_mode,
    )
    _pool(lowering, node, operation)


@lowers(graph.AveragePool)
def lower_average_pool(lowering: Lowering, node: Node) -> None:
    """One averagepool."""
    operator = node.operator
    assert isinstance(operator, graph.AveragePool)
    operation = instructions.AveragePool(
        kernel=operator.kernel,
        strides=operator.strides,
        pads=operator.pads,
        dilations=operator.dilations,
        ceil_mode=operator.ceil_mode,
        count_include_pad=operator.count_include_pad,
    )
    _pool(lowering, node, operation)


def _pool(lowering: Lowering, node: Node, operation: Operation) -> None:
    x = node.inputs[0]
    assert x is not None
    source = lowering.read(x, NHWC)
    dest = lowering.write(node.output, NHWC)
    lowering.emit(operation, dest, source)

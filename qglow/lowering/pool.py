"""Pooling over NHWC images."""

from __future__ import annotations

from qglow.graph.graph import Node
from qglow.graph.ops import pool as graph
from qglow.instructions.operation import Operation
from qglow.instructions.ops import pool as instructions
from qglow.instructions.program import Buffer
from qglow.lowering.context import NHWC, Lowering
from qglow.lowering.decompose import Parts, decomposes
from qglow.lowering.rules import lowers


@lowers(graph.MaxPool)
def lower_max_pool(lowering: Lowering, node: Node, operator: graph.MaxPool) -> None:
    """Lower to one maxpool."""
    operation = instructions.MaxPool(
        kernel=operator.kernel,
        strides=operator.strides,
        pads=operator.pads,
        dilations=operator.dilations,
        ceil_mode=operator.ceil_mode,
    )
    _pool(lowering, node, operation)


@lowers(graph.AveragePool)
def lower_average_pool(lowering: Lowering, node: Node, operator: graph.AveragePool) -> None:
    """Lower to one averagepool."""
    operation = instructions.AveragePool(
        kernel=operator.kernel,
        strides=operator.strides,
        pads=operator.pads,
        dilations=operator.dilations,
        ceil_mode=operator.ceil_mode,
        count_include_pad=operator.count_include_pad,
    )
    _pool(lowering, node, operation)


@decomposes(graph.GlobalAveragePool)
def decompose_global_average(operator: graph.GlobalAveragePool, parts: Parts) -> list[Node]:
    """Decompose into a pool with a window of the whole image."""
    x = parts.operand()
    height, width = x.type.shape[2:]
    return parts.finish(graph.AveragePool(kernel=(height, width)), x)


def emit_mean(lowering: Lowering, dest: Buffer, source: Buffer) -> None:
    """Emit the int8 mean along the middle axis of [outer, extent, inner], as a pool over one image column."""
    outer, extent, inner = source.type.shape
    image = lowering.view(f"{source.name}.image", source, source.type.with_shape((outer, extent, 1, inner)))
    pixel = lowering.view(f"{dest.name}.image", dest, dest.type.with_shape((outer, 1, 1, inner)))
    lowering.emit(instructions.AveragePool(kernel=(extent, 1)), pixel, image)


def _pool(lowering: Lowering, node: Node, operation: Operation) -> None:
    x = node.inputs[0]
    assert x is not None
    source = lowering.read(x, NHWC)
    dest = lowering.write(node.output, NHWC)
    lowering.emit(operation, dest, source)

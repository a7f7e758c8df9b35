"""Pooling over NHWC images. A ceil_mode becomes padding at the far ends."""

from __future__ import annotations

from qglow.core.errors import UnsupportedError
from qglow.core.types import Shape
from qglow.graph.graph import Node, Value
from qglow.graph.ops import pool as graph
from qglow.instructions.ops import pool as instructions
from qglow.lowering.context import NHWC, Lowering
from qglow.lowering.rules import lowers


@lowers(graph.MaxPool)
def lower_max_pool(lowering: Lowering, node: Node) -> None:
    """One maxpool. Raises UnsupportedError for dilated windows."""
    operator, x = node.operator, _image(node)
    assert isinstance(operator, graph.MaxPool)
    if any(d != 1 for d in operator.dilations):
        raise UnsupportedError(
            f"node '{node.name}' (MaxPool): dilations {operator.dilations} are not supported"
        )
    pads = _reached_pads(
        x.type.shape, node.output.type.shape, operator.kernel, operator.strides, operator.pads
    )
    source = lowering.read(x, NHWC)
    dest = lowering.write(node.output, NHWC)
    operation = instructions.MaxPool(kernel=operator.kernel, strides=operator.strides, pads=pads)
    lowering.emit(operation, dest, source)


@lowers(graph.AveragePool)
def lower_average_pool(lowering: Lowering, node: Node) -> None:
    """One averagepool. Raises UnsupportedError where ceil_mode meets counted padding."""
    operator, x = node.operator, _image(node)
    assert isinstance(operator, graph.AveragePool)
    pads = _reached_pads(
        x.type.shape, node.output.type.shape, operator.kernel, operator.strides, operator.pads
    )
    if operator.count_include_pad and pads != operator.pads:
        raise UnsupportedError(
            f"node '{node.name}' (AveragePool): ceil_mode with count_include_pad is not supported"
        )
    source = lowering.read(x, NHWC)
    dest = lowering.write(node.output, NHWC)
    operation = instructions.AveragePool(
        kernel=operator.kernel,
        strides=operator.strides,
        pads=pads,
        count_include_pad=operator.count_include_pad,
    )
    lowering.emit(operation, dest, source)


def _image(node: Node) -> Value:
    x = node.inputs[0]
    assert x is not None
    return x


def _reached_pads(image: Shape, result: Shape, kernel: Shape, strides: Shape, pads: Shape) -> Shape:
    """Pads with which the windows of `result` (NCHW, ceil_mode included) just fit."""
    reached = list(pads)
    for axis in (0, 1):
        end = (result[2 + axis] - 1) * strides[axis] + kernel[axis]
        reached[2 + axis] = max(pads[2 + axis], end - image[2 + axis] - pads[axis])
    return tuple(reached)

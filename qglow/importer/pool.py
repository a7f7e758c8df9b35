"""Import of pools. https://onnx.ai/onnx/operators/onnx__MaxPool.html, onnx__AveragePool.html"""

from __future__ import annotations

import math

from qglow.graph.operator import Operator
from qglow.graph.ops.pool import AveragePool, GlobalAveragePool, MaxPool
from qglow.graph.ops.shape import Reshape
from qglow.importer.node import ImportNode, ImportRule
from qglow.importer.windows import emit_windowed, image, read_window


def import_max_pool(node: ImportNode) -> None:
    """Import MaxPool without the Indices output."""
    node.require_single_output()
    node.ignore("storage_order")  # only numbers the elements of Indices
    window = read_window(node, node.integers("kernel_shape", ()))
    operator = MaxPool(
        kernel=window.kernel,
        strides=window.strides,
        pads=window.pads,
        dilations=window.dilations,
        ceil_mode=node.integer("ceil_mode", 0) != 0,
    )
    emit_windowed(node, operator, image(node))


def import_average_pool(node: ImportNode) -> None:
    """Import AveragePool."""
    window = read_window(node, node.integers("kernel_shape", ()))
    operator = AveragePool(
        kernel=window.kernel,
        strides=window.strides,
        pads=window.pads,
        dilations=window.dilations,
        ceil_mode=node.integer("ceil_mode", 0) != 0,
        count_include_pad=node.integer("count_include_pad", 0) != 0,
    )
    emit_windowed(node, operator, image(node))


def import_global_average_pool(node: ImportNode) -> None:
    """Import GlobalAveragePool over any spatial dimensions."""
    _global(node, GlobalAveragePool())


def import_global_max_pool(node: ImportNode) -> None:
    """Import GlobalMaxPool over any spatial dimensions: a MaxPool with a window of the whole image."""
    shape = _as_image(node)
    _global(node, MaxPool(kernel=(shape[2], shape[3])))


def _global(node: ImportNode, operator: Operator) -> None:
    x, shape = node.value(0), _as_image(node)
    node.require(min(shape[2:]) >= 1, f"input has shape {list(node.kind().shape)}, it has no pixels")
    if node.rank() == 4:
        node.emit(operator, x)
        return
    value = node.emit(Reshape(shape=shape), x, part="image")
    value = node.emit(operator, value, part="global")
    node.emit(Reshape(shape=(*shape[:2], *(1,) * (node.rank() - 2))), value)


def _as_image(node: ImportNode) -> tuple[int, int, int, int]:
    """The shape of the input with all its spatial dimensions in two."""
    shape = node.kind().shape
    node.require(len(shape) >= 3, f"input has {len(shape)} dimensions; at least three are needed")
    if len(shape) == 4:
        return shape[0], shape[1], shape[2], shape[3]
    return shape[0], shape[1], 1, math.prod(shape[2:])


RULES: dict[str, ImportRule] = {
    "AveragePool": ImportRule(import_average_pool, newest=22),
    "GlobalAveragePool": ImportRule(import_global_average_pool, newest=22),
    "GlobalMaxPool": ImportRule(import_global_max_pool, newest=22),
    "MaxPool": ImportRule(import_max_pool, newest=22),
}

"""Import of pools. https://onnx.ai/onnx/operators/onnx__MaxPool.html, onnx__AveragePool.html"""

from __future__ import annotations

from qglow.graph.ops.pool import AveragePool, GlobalAveragePool, MaxPool
from qglow.importer.node import ImportNode, Rule
from qglow.importer.windows import read_window


def import_max_pool(node: ImportNode) -> None:
    """MaxPool without the Indices output."""
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
    node.emit(operator, node.value(0))


def import_average_pool(node: ImportNode) -> None:
    """AveragePool without dilations."""
    window = read_window(node, node.integers("kernel_shape", ()))
    node.require(window.dilations == (1, 1), f"dilations {list(window.dilations)}; only 1 is supported")
    operator = AveragePool(
        kernel=window.kernel,
        strides=window.strides,
        pads=window.pads,
        ceil_mode=node.integer("ceil_mode", 0) != 0,
        count_include_pad=node.integer("count_include_pad", 0) != 0,
    )
    node.emit(operator, node.value(0))


def import_global_average_pool(node: ImportNode) -> None:
    """GlobalAveragePool over two spatial dimensions."""
    node.require(node.rank() == 4, f"input has {node.rank()} dimensions; four (NCHW) are supported")
    node.emit(GlobalAveragePool(), node.value(0))


RULES: dict[str, Rule] = {
    "AveragePool": Rule(import_average_pool, newest=22),
    "GlobalAveragePool": Rule(import_global_average_pool, newest=22),
    "MaxPool": Rule(import_max_pool, newest=22),
}

"""Import of convolutions. https://onnx.ai/onnx/operators/onnx__Conv.html"""

from __future__ import annotations

from qglow.importer.node import ImportNode, ImportRule
from qglow.importer.volumes import RANK, emit_convolution_over_volume
from qglow.importer.windows import emit_convolution, image, read_axes, read_window


def import_conv(node: ImportNode) -> None:
    """Import Conv over one to three spatial dimensions; auto_pad is resolved to explicit pads."""
    kernel, group = node.kind(1).shape[2:], node.integer("group", 1)
    stated = node.integers("kernel_shape", kernel)
    node.require(stated == kernel, f"kernel_shape {list(stated)} differs from the weight's {list(kernel)}")

    if node.rank() == RANK:
        emit_convolution_over_volume(node, node.value(0), node.value(1), read_axes(node, kernel), group)
        return
    emit_convolution(node, read_window(node, kernel), group, image(node), image(node, 1))


RULES: dict[str, ImportRule] = {"Conv": ImportRule(import_conv, newest=22)}

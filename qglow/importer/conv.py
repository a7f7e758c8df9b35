"""Import of convolutions. https://onnx.ai/onnx/operators/onnx__Conv.html"""

from __future__ import annotations

from qglow.graph.ops.conv import Conv
from qglow.graph.traits import SlidingWindow
from qglow.importer.node import ImportNode, ImportRule
from qglow.importer.volumes import RANK, emit_convolution_over_volume
from qglow.importer.windows import emit_convolution, image, read_window


def import_conv(node: ImportNode) -> None:
    """Import Conv over one to three spatial dimensions; auto_pad is resolved to explicit pads."""
    kernel, group = node.kind(1).shape[2:], node.integer("group", 1)
    stated = node.integers("kernel_shape", kernel)
    node.require(stated == kernel, f"kernel_shape {list(stated)} differs from the weight's {list(kernel)}")

    def made(window: SlidingWindow) -> Conv:
        return Conv(strides=window.strides, pads=window.pads, dilations=window.dilations, group=group)

    if node.rank() == RANK:
        emit_convolution_over_volume(node, kernel, made)
        return
    emit_convolution(node, made(read_window(node, kernel)), image(node), image(node, 1))


RULES: dict[str, ImportRule] = {"Conv": ImportRule(import_conv, newest=22)}

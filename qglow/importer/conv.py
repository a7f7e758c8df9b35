"""Import of convolutions. https://onnx.ai/onnx/operators/onnx__Conv.html"""

from __future__ import annotations

from qglow.graph.ops.conv import Conv
from qglow.importer.node import ImportNode, ImportRule
from qglow.importer.windows import emit_convolution, image, read_window


def import_conv(node: ImportNode) -> None:
    """Import Conv over one or two spatial dimensions; auto_pad is resolved to explicit pads."""
    kernel = node.kind(1).shape[2:]
    stated = node.integers("kernel_shape", kernel)
    node.require(stated == kernel, f"kernel_shape {list(stated)} differs from the weight's {list(kernel)}")
    window = read_window(node, kernel)
    operator = Conv(
        strides=window.strides,
        pads=window.pads,
        dilations=window.dilations,
        group=node.integer("group", 1),
    )
    emit_convolution(node, operator, image(node), image(node, 1))


RULES: dict[str, ImportRule] = {"Conv": ImportRule(import_conv, newest=22)}

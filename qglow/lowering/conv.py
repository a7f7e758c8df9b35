"""Conv to convolution: NHWC images, filters O, KH, KW, I."""

from __future__ import annotations

from qglow.core.errors import UnsupportedError
from qglow.graph.graph import Node
from qglow.graph.ops.conv import Conv
from qglow.instructions.ops.conv import Convolution
from qglow.instructions.program import Transposed
from qglow.lowering.accumulation import emit_accumulation
from qglow.lowering.context import NHWC, Lowering
from qglow.lowering.rules import lowers


@lowers(Conv)
def lower_conv(lowering: Lowering, node: Node, operator: Conv) -> None:
    """Lower to one convolution, or to several instructions if the input or result is int16.

    Raises UnsupportedError for computed weights.
    """
    x, w = node.operand("x"), node.operand("w")
    assert x is not None and w is not None
    if w.data is None:
        raise UnsupportedError(f"node '{node.name}' (Conv): weights must be constant")
    source = lowering.read(x, NHWC)
    filters = lowering.constant(f"{w.name}.ohwi", w.data.transpose(NHWC))
    filters.made_of = Transposed(w.name, NHWC)
    dest = lowering.write(node.output, NHWC)
    operation = Convolution(
        strides=operator.strides,
        pads=operator.pads,
        dilations=operator.dilations,
        group=operator.group,
    )
    emit_accumulation(lowering, node, operation, dest, source, filters)

"""BlockGemm to blockgemm: the value seen as [rows, elements of a row]."""

from __future__ import annotations

import math

from qglow.graph.graph import Node
from qglow.graph.ops import blocks as graph
from qglow.instructions.ops.blocks import BlockGemm
from qglow.lowering.context import Lowering, natural
from qglow.lowering.rules import lowers


@lowers(graph.BlockGemm)
def lower_block_gemm(lowering: Lowering, node: Node, operator: graph.BlockGemm) -> None:
    """Lower to one blockgemm."""
    x = node.inputs[0]
    assert x is not None
    *outer, depth = x.type.shape
    rows, columns = math.prod(outer), node.output.type.shape[-1]
    source, dest = lowering.read(x, natural(x.type.shape)), lowering.write(node.output)
    if len(outer) != 1:
        source = lowering.view(f"{node.name}.rows", source, x.type.with_shape((rows, depth)))
        dest = lowering.view(f"{dest.name}.rows", dest, node.output.type.with_shape((rows, columns)))
    names = ("w", "scales", "zero_points", "bias")
    constants = [node.operand(name) for name in names]
    operands = [None if value is None else lowering.read(value) for value in constants]
    scales = node.operand("row_scales")
    if scales is not None:
        seen = lowering.read(scales, natural(scales.type.shape))
        operands.append(lowering.view(f"{node.name}.row_scales", seen, scales.type.with_shape((rows, 1))))
    operation = BlockGemm(bits=operator.bits, block=operator.block, lo=operator.lo, hi=operator.hi)
    lowering.emit(operation, dest, source, *operands)

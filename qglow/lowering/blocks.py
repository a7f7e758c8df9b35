"""BlockGemm to blockgemm, the value seen as [rows, elements of a row]; BlockGather to look-ups of bytes."""

from __future__ import annotations

import math

import numpy as np

from qglow.core.types import ElementType
from qglow.graph.graph import Node, Value
from qglow.graph.ops import blocks as graph
from qglow.graph.ops.elementwise import Mul, Sub
from qglow.graph.ops.movement import Gather, Slice
from qglow.graph.ops.shape import Cast, Reshape
from qglow.instructions.ops.blocks import BlockGemm
from qglow.lowering.context import Lowering, natural
from qglow.lowering.decompose import Parts, decomposes
from qglow.lowering.rules import lowers
from qglow.numerics.blocks import apart, block_count, middle, unpack
from qglow.numerics.half import widen


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


BYTES = 256


@decomposes(graph.BlockGather)
def decompose_block_gather(operator: graph.BlockGather, parts: Parts) -> list[Node]:
    """Decompose into look-ups of bytes, of their codes, and of parameters, and the arithmetic of codes."""
    table, indices, scales = (parts.operand(index) for index in range(3))
    zeros = parts.node.operand("zero_points")
    outer, width = indices.type.shape, operator.width
    each = 8 // operator.bits
    chosen = parts.add("bytes", Gather(), table, indices)
    numbers = parts.add("numbers", Cast(to=ElementType.INT32), chosen)
    every = unpack(np.arange(BYTES, dtype=np.uint8)[None, :], operator.bits, each).T
    known = parts.constant("codes_of_bytes", np.ascontiguousarray(every).astype(np.float32))
    codes = parts.add("apart", Gather(), known, numbers)
    filled = chosen.type.shape[-1] * each
    codes = parts.add("codes", Reshape(shape=(*outer, filled)), codes)
    if filled != width:
        ends = (*outer, width)
        codes = parts.add("own", Slice((0,) * len(ends), ends, (1,) * len(ends)), codes)
    if scales.type.is_half:
        assert scales.data is not None
        scales = parts.constant("real_scales", widen(scales.data))
    factors = _spread(parts, operator, "scales", scales, indices)
    if zeros is None:
        points = parts.constant("middle", np.array(middle(operator.bits), np.float32))
    else:
        assert zeros.data is not None
        blocks = block_count(width, operator.block)
        found = apart(zeros.data.T, operator.bits, blocks).T
        points = parts.constant("zeros", np.ascontiguousarray(found).astype(np.float32))
        points = _spread(parts, operator, "zero_points", points, indices)
    return parts.finish(Mul(), parts.add("centred", Sub(), codes, points), factors)


def _spread(parts: Parts, operator: graph.BlockGather, name: str, values: Value, indices: Value) -> Value:
    """A parameter for every element of the chosen rows."""
    chosen = parts.add(f"{name}_of_blocks", Gather(), values, indices)
    places = np.repeat(np.arange(block_count(operator.width, operator.block)), operator.block)
    index = parts.constant(f"{name}_places", places[: operator.width].astype(np.int64))
    return parts.add(name, Gather(axis=len(chosen.type.shape) - 1), chosen, index)

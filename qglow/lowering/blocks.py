"""BlockGemm to blockgemm, the value seen as [rows, elements of a row]; BlockGather to look-ups of bytes."""

from __future__ import annotations

import math

import numpy as np

from qglow.core.types import ElementType
from qglow.graph.graph import Node, Value
from qglow.graph.ops import blocks as graph
from qglow.graph.ops.elementwise import Mul, Sub
from qglow.graph.ops.movement import Gather, Slice
from qglow.graph.ops.shape import Cast, Reshape, Transpose
from qglow.instructions.ops.blocks import BlockGemm
from qglow.instructions.program import Buffer
from qglow.lowering.context import Lowering, natural
from qglow.lowering.decompose import Parts, decomposes
from qglow.lowering.rules import lowers
from qglow.numerics.blocks import block_count, middle, unpack
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
    operands.append(row_scales(lowering, node))
    operation = BlockGemm(bits=operator.bits, block=operator.block, lo=operator.lo, hi=operator.hi)
    lowering.emit(operation, dest, source, *operands)


def row_scales(lowering: Lowering, node: Node) -> Buffer | None:
    """Scales of the rows of a product, seen as [rows, 1]; None where rows are float."""
    scales = node.operand("row_scales")
    if scales is None:
        return None
    seen, rows = lowering.read(scales, natural(scales.type.shape)), math.prod(scales.type.shape)
    return lowering.view(f"{node.name}.row_scales", seen, scales.type.with_shape((rows, 1)))


BYTES = 256


@decomposes(graph.BlockGather)
def decompose_block_gather(operator: graph.BlockGather, parts: Parts) -> list[Node]:
    """Decompose into look-ups of bytes, of their codes, and of parameters, and the arithmetic of codes."""
    table, scales = parts.operand(0), parts.operand(2)
    zeros, blocks = parts.node.operand("zero_points"), block_count(operator.width, operator.block)
    chosen = _rows(parts, operator, "bytes", table)
    codes = _codes(parts, operator, "codes", chosen, operator.width)
    if scales.type.is_half:
        assert scales.data is not None
        scales = parts.constant("real_scales", widen(scales.data))
    factors = _spread(parts, operator, "scales", _rows(parts, operator, "scales_of_blocks", scales))
    if zeros is None:
        points = parts.constant("middle", np.array(middle(operator.bits), np.float32))
    else:
        points = _rows(parts, operator, "zero_points_of_blocks", zeros)
        if zeros.type.shape[1 - operator.axis] == blocks:
            points = parts.add("real_zero_points", Cast(to=ElementType.FLOAT), points)
        else:
            points = _codes(parts, operator, "zero_points_apart", points, blocks)
        points = _spread(parts, operator, "zero_points", points)
    return parts.finish(Mul(), parts.add("centred", Sub(), codes, points), factors)


def _rows(parts: Parts, operator: graph.BlockGather, name: str, table: Value) -> Value:
    """The chosen rows of a table, as indices choose them."""
    indices = parts.operand(1)
    chosen = parts.add(name, Gather(axis=operator.axis), table, indices)
    if not operator.by_columns:
        return chosen
    rank = len(indices.type.shape)
    return parts.add(f"{name}_in_rows", Transpose(perm=(*range(1, rank + 1), 0)), chosen)


def _codes(parts: Parts, operator: graph.BlockGather, name: str, packed: Value, count: int) -> Value:
    """The first `count` codes of each row of bytes, in float."""
    each, outer = 8 // operator.bits, packed.type.shape[:-1]
    numbers = parts.add(f"{name}.numbers", Cast(to=ElementType.INT32), packed)
    every = unpack(np.arange(BYTES, dtype=np.uint8)[None, :], operator.bits, each).T
    known = parts.constant(f"{name}.of_bytes", np.ascontiguousarray(every).astype(np.float32))
    codes = parts.add(f"{name}.apart", Gather(), known, numbers)
    filled = packed.type.shape[-1] * each
    codes = parts.add(name, Reshape(shape=(*outer, filled)), codes)
    if filled == count:
        return codes
    ends = (*outer, count)
    return parts.add(f"{name}.own", Slice((0,) * len(ends), ends, (1,) * len(ends)), codes)


def _spread(parts: Parts, operator: graph.BlockGather, name: str, chosen: Value) -> Value:
    """A parameter for every element of the chosen rows, from those of their blocks."""
    places = np.repeat(np.arange(block_count(operator.width, operator.block)), operator.block)
    index = parts.constant(f"{name}_places", places[: operator.width].astype(np.int64))
    return parts.add(name, Gather(axis=len(chosen.type.shape) - 1), chosen, index)

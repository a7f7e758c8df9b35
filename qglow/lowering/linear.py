"""Gemm to fullyconnected: src [M, K], filter [K, N]. MatMul to matmul."""

from __future__ import annotations

from qglow.graph.graph import Node, Value
from qglow.graph.ops import linear as graph
from qglow.graph.ops.linear import Gemm
from qglow.graph.ops.shape import Reshape
from qglow.instructions.ops.linear import FullyConnected, MatMul
from qglow.lowering.accumulation import emit_accumulation
from qglow.lowering.context import Lowering, natural
from qglow.lowering.decompose import Parts, decomposes
from qglow.lowering.rules import lowers


@lowers(Gemm)
def lower_gemm(lowering: Lowering, node: Node, operator: Gemm) -> None:
    """Lower to one fullyconnected, or to several instructions if the input or result is int16."""
    x, w = node.operand("x"), node.operand("w")
    assert x is not None and w is not None
    source = lowering.read(x, natural(x.type.shape))
    filters = lowering.read(w, (0, 1)) if w.data is None else lowering.constant(w.name, w.data)
    dest = lowering.write(node.output)
    emit_accumulation(lowering, node, FullyConnected(), dest, source, filters)


@lowers(graph.MatMul)
def lower_matmul(lowering: Lowering, node: Node, operator: graph.MatMul) -> None:
    """Lower to one matmul, of operands of at least two axes."""
    a, b = node.inputs
    assert a is not None and b is not None
    sources = [lowering.read(v, natural(v.type.shape)) for v in (a, b)]
    lowering.emit(MatMul(), lowering.write(node.output), *sources)


@decomposes(graph.MatMul)
def decompose_matmul(operator: graph.MatMul, parts: Parts) -> list[Node]:
    """Turn a product of two float matrices into a gemm; vectors become matrices of one row or column."""
    a, b = parts.operand(0), parts.operand(1)
    if len(a.type.shape) == len(b.type.shape) == 2 and a.type.is_float:
        return parts.finish(graph.Gemm(), a, b, None)
    if min(len(a.type.shape), len(b.type.shape)) >= 2:
        return parts.finish(operator, a, b)
    return _vector_product(operator, parts, a, b)


def _vector_product(operator: graph.MatMul, parts: Parts, a: Value, b: Value) -> list[Node]:
    """Multiply with a left vector as a row and a right one as a column, then remove the axis of size 1."""
    kind = parts.node.output.type
    if len(a.type.shape) == 1:
        a = parts.add("row", Reshape(shape=(1, *a.type.shape)), a)
    if len(b.type.shape) == 1:
        b = parts.add("column", Reshape(shape=(*b.type.shape, 1)), b)
    product = parts.add("product", operator, a, b)
    # In int8 the sums are rescaled before the axis is removed.
    product.type = kind.with_shape(product.type.shape)
    return parts.finish(Reshape(shape=kind.shape), product)

"""Gemm to fullyconnected: src [M, K], filter [K, N]. MatMul to matmul."""

from __future__ import annotations

from qglow.graph.graph import Node
from qglow.graph.ops import linear as graph
from qglow.graph.ops.linear import Gemm
from qglow.instructions.ops.linear import FullyConnected, MatMul
from qglow.lowering.accumulation import emit_accumulation
from qglow.lowering.context import Lowering, natural
from qglow.lowering.rules import lowers


@lowers(Gemm)
def lower_gemm(lowering: Lowering, node: Node) -> None:
    """One fullyconnected, or several around int16."""
    operator = node.operator
    assert isinstance(operator, Gemm)
    x, w = node.operand("x"), node.operand("w")
    assert x is not None and w is not None
    source = lowering.read(x, natural(x.type.shape))
    filters = lowering.read(w, (0, 1)) if w.data is None else lowering.constant(w.name, w.data)
    dest = lowering.write(node.output)
    emit_accumulation(lowering, node, FullyConnected(), dest, source, filters)


@lowers(graph.MatMul)
def lower_matmul(lowering: Lowering, node: Node) -> None:
    """One matmul, of operands of at least two axes."""
    a, b = node.inputs
    assert a is not None and b is not None
    sources = [lowering.read(v, natural(v.type.shape)) for v in (a, b)]
    lowering.emit(MatMul(), lowering.write(node.output), *sources)

"""Gemm to fullyconnected: src [M, K], filter [K, N]. MatMul to matmul.

A Gemm of integer rows, whose sums are multiplied by scales of rows and of columns and have a constant added,
becomes one fullyconnected with all of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qglow.core.types import Array
from qglow.graph.graph import Graph, Node, Value
from qglow.graph.ops import linear as graph
from qglow.graph.ops.elementwise import Add, Mul
from qglow.graph.ops.linear import Gemm
from qglow.graph.ops.rows import THEMSELVES
from qglow.graph.ops.shape import Reshape
from qglow.graph.rewriting import is_constant_row, only_user, operand, other_operand, producer_of
from qglow.instructions.ops.linear import FullyConnected, MatMul
from qglow.lowering.accumulation import emit_accumulation
from qglow.lowering.bounds import bounds
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


@dataclass(frozen=True, eq=False)
class ScaledProduct:
    """Nodes that become one fullyconnected (see `joins.Join`): the Gemm, the product of scales, and the rest.

    scales: of rows, [M, 1]. columns: scales of columns, [N]. addend: [N], if there is one.
    """

    nodes: tuple[Node, ...]
    scales: Value
    columns: Array
    addend: Value | None

    @property
    def place(self) -> Node:
        """The node whose place the instruction takes."""
        return self.nodes[0]

    def lower(self, lowering: Lowering) -> None:
        """Lower to one instruction."""
        gemm, last = self.nodes[0], self.nodes[-1]
        x, w, addend = operand(gemm), operand(gemm, 1), self.addend
        assert w.data is not None
        source, scales = (lowering.read(v, natural(v.type.shape)) for v in (x, self.scales))
        dest = lowering.write(last.output)
        filters = lowering.constant(w.name, w.data)
        start = lowering.constant(f"{gemm.name}.bias", np.zeros(len(self.columns), np.int32))
        factors = lowering.constant(f"{gemm.name}.multiplier", self.columns)
        added = None
        if addend is not None and addend.data is not None:
            added = lowering.constant(f"{gemm.name}.addend", addend.data.reshape(-1))
        operator = last.operator
        limits = bounds(operator.lo, operator.hi, last.output.type)  # type: ignore[attr-defined]
        operation = FullyConnected(**limits)  # type: ignore[arg-type]
        lowering.emit(operation, dest, source, filters, start, factors, scales, added)


def find_scaled_products(graph_: Graph) -> list[ScaledProduct]:
    """Products of integer rows of a graph whose sums nothing reads but their scaling."""
    found = (_scaled_product(graph_, node) for node in graph_.nodes if node.operator == Gemm())
    return [product for product in found if product is not None]


def _scaled_product(graph_: Graph, gemm: Node) -> ScaledProduct | None:
    x, w, rows, columns = operand(gemm), operand(gemm, 1), *gemm.output.type.shape
    whole = x.type.quantization == THEMSELVES == w.type.quantization and gemm.output.type.is_float
    scaled = only_user(graph_, gemm.output)
    if not whole or w.data is None or gemm.operand("bias") is not None or scaled is None:
        return None
    factors = other_operand(scaled, gemm.output) if producer_of(scaled.outputs[0], Mul) else None
    product = None if factors is None else factors.producer
    if product is None or product.operator != Mul() or only_user(graph_, product.output) is not scaled:
        return None
    pairs = [(v, other_operand(product, v)) for v in product.inputs if v is not None]
    found = [(s, c) for s, c in pairs if s.type.shape == (rows, 1) and is_constant_row(c, columns)]
    if not found:
        return None
    (scales, by_column), nodes = found[0], [gemm, product, scaled]
    assert by_column is not None and by_column.data is not None
    last = only_user(graph_, scaled.output) if scaled.operator == Mul() else None
    addend = other_operand(last, scaled.output) if last and producer_of(last.outputs[0], Add) else None
    if last is not None and is_constant_row(addend, columns):
        return ScaledProduct((*nodes, last), scales, by_column.data.reshape(-1), addend)
    return ScaledProduct(tuple(nodes), scales, by_column.data.reshape(-1), None)


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

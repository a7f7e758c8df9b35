"""Import of matrix products. https://onnx.ai/onnx/operators/onnx__Gemm.html, onnx__MatMul.html"""

from __future__ import annotations

import numpy as np

from qglow.core.types import Array
from qglow.graph.graph import Value
from qglow.graph.ops.elementwise import Add, Mul
from qglow.graph.ops.linear import Gemm, MatMul
from qglow.graph.ops.shape import Transpose
from qglow.importer.blocks import block_operands
from qglow.importer.node import ImportNode, ImportRule


def import_gemm(node: ImportNode) -> None:
    """Import Gemm: alpha * A' * B' + beta * C. Factors go into constants; what cannot becomes Mul and Add."""
    node.ignore("broadcast")  # of opset 6, where the addend says so that it spreads
    alpha, beta = node.number("alpha", 1.0), node.number("beta", 1.0)
    x = _transposed(node, 0, node.integer("transA", 0) != 0)
    known = node.context.blocks.get(node.value(1).name)
    if known is not None and alpha == beta == 1.0:
        known = known.transposed(node.context.derived) if node.integer("transB", 0) else known
        addend = node.value(2) if node.has_input(2) else None
        terms = None if addend is None else _vector_bias(addend, known.shape[1], 1.0)
        if known.is_product and (terms is not None or addend is None):
            operator, weights = block_operands(node, known)
            vector = None if terms is None else node.part_constant("bias", terms)
            node.emit(operator, x, *weights, vector)
            return
    w = _transposed(node, 1, node.integer("transB", 0) != 0)
    if w.data is not None and alpha != 1.0:
        w, alpha = node.part_constant("scaled_weight", w.data * np.float32(alpha)), 1.0
    has_bias = node.has_input(2) and beta != 0.0
    bias = _vector_bias(node.value(2), w.type.shape[-1], beta) if has_bias else None
    if alpha == 1.0 and (bias is not None or not has_bias):
        vector = None if bias is None else node.part_constant("bias", bias)
        if bias is not None and beta == 1.0 and node.value(2).type.shape == bias.shape:
            vector = node.value(2)
        node.emit(Gemm(), x, w, vector)
        return
    _import_unfolded(node, x, w, alpha, beta, has_bias)


def _import_unfolded(node: ImportNode, x: Value, w: Value, alpha: float, beta: float, has_bias: bool) -> None:
    """The product, then alpha, then the addend with beta, as separate operators."""
    last = "" if alpha == 1.0 and not has_bias else "product"
    result = node.emit(Gemm(), x, w, None, part=last, is_core=True)
    if alpha != 1.0:
        factor = node.part_constant("alpha", np.array(alpha, np.float32))
        result = node.emit(Mul(), result, factor, part="scaled" if has_bias else "")
    if not has_bias:
        return
    addend = node.value(2)
    if beta != 1.0:
        factor = node.part_constant("beta", np.array(beta, np.float32))
        addend = node.emit(Mul(), addend, factor, part="addend")
    node.emit(Add(), result, addend)


def _transposed(node: ImportNode, index: int, transposed: bool) -> Value:
    node.require(node.rank(index) == 2, f"input {index} has {node.rank(index)} dimensions, a matrix has two")
    value = node.value(index)
    if not transposed:
        return value
    return node.emit(Transpose(perm=(1, 0)), value, part="ab"[index] + "_transposed")


def _vector_bias(value: Value, columns: int, beta: float) -> Array | None:
    """A constant addend that is the same for every row, as one float per column; else None."""
    if value.data is None or value.type.size not in (1, columns):
        return None
    if value.type.shape and value.type.shape[-1] != value.type.size:
        return None
    return np.array(np.broadcast_to(value.data.reshape(-1) * np.float32(beta), (columns,)))


def import_matmul(node: ImportNode) -> None:
    """Import MatMul with numpy's broadcasting of leading dimensions."""
    known = node.context.blocks.get(node.value(1).name)
    if known is not None and known.is_product and node.value(0).type.shape:
        operator, weights = block_operands(node, known)
        node.emit(operator, node.value(0), *weights)
        return
    node.emit(MatMul(), node.value(0), node.value(1))


RULES: dict[str, ImportRule] = {
    "Gemm": ImportRule(import_gemm, newest=13),
    "MatMul": ImportRule(import_matmul, newest=13),
}

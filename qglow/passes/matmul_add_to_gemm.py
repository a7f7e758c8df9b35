"""MatMul by constant weights, and the addition of a constant vector, as one Gemm."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from qglow.core.passes import Refused
from qglow.core.types import Array, float_type
from qglow.graph.graph import Graph, Node, Value
from qglow.graph.ops.elementwise import Add
from qglow.graph.ops.linear import Gemm, MatMul
from qglow.graph.ops.shape import Reshape
from qglow.graph.rewriting import (
    Outcome,
    RewritePass,
    change,
    dequantized_constant,
    fuse,
    new_constant,
    operand,
    private,
    producer_of,
)


@dataclass(frozen=True)
class MatmulAddToGemm(RewritePass):
    """Gemm is the form of a matrix product that is quantized."""

    name: ClassVar[str] = "matmul-add-to-gemm"

    def rewrite(self, node: Node, graph: Graph) -> Outcome:
        """Turn one MatMul into a Gemm, or make one Add the bias of the Gemm before it."""
        if isinstance(node.operator, MatMul):
            return _matmul(node, graph)
        if isinstance(node.operator, Add):
            return _add(node, graph)
        return None


def _matmul(node: Node, graph: Graph) -> Outcome:
    a, b = operand(node, 0), operand(node, 1)
    if len(b.type.shape) != 2:
        return Refused(f"%{b.name} has {len(b.type.shape)} axes, a matrix has 2")
    if not b.is_constant and dequantized_constant(b) is None:
        return Refused(f"weights %{b.name} are not constant")
    if not a.type.size:
        return Refused(f"%{a.name} has no elements")
    if len(a.type.shape) != 2:
        return _rows(node, graph, a, b)
    change(node, Gemm(), [a, b, None])
    return "MatMul becomes Gemm"


def _rows(node: Node, graph: Graph, a: Value, b: Value) -> Outcome:
    """All leading axes of a as the rows of one matrix, and the result in its own shape."""
    depth, columns = b.type.shape
    rows = a.type.size // depth
    flat = Value(graph.unique_name(f"{a.name}.rows"), float_type(rows, depth))
    reshape = Node(graph.unique_name(f"{node.name}.rows"), Reshape(shape=(rows, depth)), [a], [flat])
    graph.insert_before(node, reshape)
    result = node.output
    product = Value(graph.unique_name(f"{result.name}.rows"), float_type(rows, columns))
    change(node, Gemm(), [flat, b, None])
    node.outputs = (product,)
    product.producer, product.index = node, 0
    restore = Reshape(shape=result.type.shape)
    graph.insert_after(node, Node(graph.unique_name(f"{node.name}.shape"), restore, [product], [result]))
    return f"MatMul of {len(a.type.shape)} axes becomes a Gemm of {rows} rows"


def _add(node: Node, graph: Graph) -> Outcome:
    operator = node.operator
    assert isinstance(operator, Add)
    for index in (0, 1):
        product, addend = operand(node, index), operand(node, 1 - index)
        gemm = producer_of(product, Gemm)
        if gemm is not None and addend.data is not None:
            return _as_bias(node, graph, gemm, addend)
    return None


def _as_bias(node: Node, graph: Graph, gemm: Node, addend: Value) -> Outcome:
    operator, addition = gemm.operator, node.operator
    assert isinstance(operator, Gemm) and isinstance(addition, Add)
    refusal = private(graph, gemm.output)
    if refusal is not None:
        return refusal
    if gemm.operand("bias") is not None:
        return Refused(f"Gemm '{gemm.name}' has a bias already")
    if operator.lo > -math.inf or operator.hi < math.inf:
        return Refused(f"Gemm '{gemm.name}' has bounds, which come before the addition")
    if node.output.type != gemm.output.type or not node.output.type.is_float:
        return Refused(f"%{addend.name} changes the type of the result")
    vector = _vector(addend, gemm.output.type.shape[1])
    if vector is None:
        return Refused(f"%{addend.name} is not one value a column")
    bias = (
        addend if addend.type.shape == vector.shape else new_constant(graph, f"{addend.name}.vector", vector)
    )
    fused = dataclasses.replace(operator, lo=addition.lo, hi=addition.hi)
    fuse(graph, gemm, node, fused, [operand(gemm, 0), operand(gemm, 1), bias])
    return f"Add becomes the bias of Gemm '{gemm.name}'"


def _vector(addend: Value, columns: int) -> Array | None:
    """One value a column; None where rows differ."""
    shape = addend.type.shape
    if addend.type.size not in (1, columns) or (shape and addend.type.size > 1 and shape[-1] != columns):
        return None
    return np.array(np.broadcast_to(np.asarray(addend.data).reshape(-1), (columns,)))

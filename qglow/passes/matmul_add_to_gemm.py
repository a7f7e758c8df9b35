"""Products with a constant matrix become a Gemm, an added constant vector its bias; others a MatMul."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from qglow.core.passes import Refused
from qglow.core.types import Array, float_type
from qglow.graph.graph import Graph, Node, Value
from qglow.graph.ops.elementwise import Add
from qglow.graph.ops.linear import Gemm, MatMul
from qglow.graph.ops.shape import Reshape, Transpose
from qglow.graph.rewriting import (
    Outcome,
    RewritePass,
    change,
    dequantized_constant,
    fuse,
    give_result,
    new_constant,
    operand,
    private,
    producer_of,
)


@dataclass(frozen=True)
class MatmulAddToGemm(RewritePass):
    """Gemm is the form of a matrix product whose weights are quantized one column at a time."""

    name: ClassVar[str] = "matmul-add-to-gemm"

    def rewrite(self, node: Node, graph: Graph) -> Outcome:
        """Turn one MatMul into a Gemm or the reverse, or make one Add the bias of the Gemm before it."""
        if isinstance(node.operator, MatMul):
            return _matmul(node, graph)
        if isinstance(node.operator, Gemm):
            return _gemm(node, graph)
        if isinstance(node.operator, Add):
            return _add(node, graph)
        return None


def _matmul(node: Node, graph: Graph) -> Outcome:
    a, b = operand(node, 0), operand(node, 1)
    if not (a.type.size and b.type.size):
        return Refused("an operand has no elements")
    if _is_known(b):
        return _by_constant(node, graph, a, b)
    if a.data is not None and len(b.type.shape) > 1 and len(a.type.shape) > 1:
        return _constant_by(node, graph, a.data, b)
    return Refused(f"weights %{b.name} are not constant")


def _is_known(value: Value) -> bool:
    return value.is_constant or dequantized_constant(value) is not None


def _by_constant(node: Node, graph: Graph, a: Value, b: Value) -> Outcome:
    if len(a.type.shape) == len(b.type.shape) == 2:
        change(node, Gemm(), [a, b, None])
        return "MatMul becomes Gemm"
    if len(b.type.shape) == 2:
        return _rows(node, graph, a, b)
    if b.data is None:
        return Refused(f"quantized weights %{b.name} have {len(b.type.shape)} axes, a matrix has 2")
    matrix = _matrix(b.data)
    if matrix is None:
        return Refused(f"%{b.name} is a stack of matrices, not one")
    return _rows(node, graph, a, new_constant(graph, f"{b.name}.matrix", matrix))


def _matrix(data: Array) -> Array | None:
    """`data` as one matrix, a vector as a column; None if it is a stack of several matrices."""
    if data.ndim == 1:
        return data[:, None]
    return data.reshape(data.shape[-2:]) if data.size == math.prod(data.shape[-2:]) else None


def _rows(node: Node, graph: Graph, a: Value, b: Value) -> Outcome:
    """Flatten the leading axes of `a` into the rows of one matrix, and reshape the result back."""
    result = node.output
    restore = Reshape(shape=result.type.shape)
    rows = _gemm_of_rows(node, graph, a, b)
    graph.insert_after(node, Node(graph.unique_name(f"{node.name}.shape"), restore, [node.output], [result]))
    return f"MatMul of {len(a.type.shape)} axes becomes a Gemm of {rows} rows"


def _constant_by(node: Node, graph: Graph, data: Array, b: Value) -> Outcome:
    """Compute a product with a constant left matrix as the transpose of a Gemm of both transposes."""
    matrix = _matrix(data)
    if matrix is None:
        return Refused(f"%{operand(node, 0).name} is a stack of matrices, not one")
    weights = new_constant(graph, f"{operand(node, 0).name}.transposed", matrix.T)
    result, swapped = node.output, _swapped(b.type.shape)
    columns = Value(graph.unique_name(f"{b.name}.columns"), float_type(*swapped))
    turn = Transpose(perm=_swapped(range(len(swapped))))
    graph.insert_before(node, Node(graph.unique_name(f"{node.name}.columns"), turn, [b], [columns]))
    rows = _gemm_of_rows(node, graph, columns, weights)
    shape = _swapped(result.type.shape)
    shaped = Value(graph.unique_name(f"{result.name}.columns"), float_type(*shape))
    restore = Node(graph.unique_name(f"{node.name}.shape"), Reshape(shape=shape), [node.output], [shaped])
    graph.insert_after(node, restore)
    back = Transpose(perm=_swapped(range(len(shape))))
    graph.insert_after(restore, Node(graph.unique_name(f"{node.name}.back"), back, [shaped], [result]))
    return f"MatMul by a constant from the left becomes a Gemm of {rows} rows"


def _swapped(values: Sequence[int]) -> tuple[int, ...]:
    """`values` with the last two exchanged."""
    return (*values[:-2], values[-1], values[-2])


def _gemm_of_rows(node: Node, graph: Graph, a: Value, weights: Value) -> int:
    """Turn `node` into the Gemm of all rows of `a`, with a new result; return the number of rows."""
    depth, columns = weights.type.shape
    rows = a.type.size // depth
    flat = Value(graph.unique_name(f"{a.name}.rows"), float_type(rows, depth))
    reshape = Node(graph.unique_name(f"{node.name}.rows"), Reshape(shape=(rows, depth)), [a], [flat])
    graph.insert_before(node, reshape)
    change(node, Gemm(), [flat, weights, None])
    give_result(node, Value(graph.unique_name(f"{node.output.name}.rows"), float_type(rows, columns)))
    return rows


def _gemm(node: Node, graph: Graph) -> Outcome:
    """A Gemm of two computed operands is a MatMul, whose int8 form takes two activations."""
    operator, bias = node.operator, node.operand("bias")
    assert isinstance(operator, Gemm)
    x, w = operand(node, 0), operand(node, 1)
    if _is_known(w):
        return None
    bounded = operator.lo > -math.inf or operator.hi < math.inf
    if bias is None and bounded:
        return Refused("it has bounds, which MatMul has not")
    change(node, MatMul(), [x, w])
    if bias is not None:
        result = node.output
        give_result(node, Value(graph.unique_name(f"{result.name}.product"), result.type))
        addition = Add(lo=operator.lo, hi=operator.hi)
        name = graph.unique_name(f"{node.name}.bias")
        graph.insert_after(node, Node(name, addition, [node.output, bias], [result]))
    return "Gemm of two computed operands becomes MatMul"


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
    """The addend as one value per column; None if it varies over rows."""
    shape = addend.type.shape
    if addend.type.size not in (1, columns) or (shape and addend.type.size > 1 and shape[-1] != columns):
        return None
    return np.array(np.broadcast_to(np.asarray(addend.data).reshape(-1), (columns,)))

"""Operators that do nothing, and pairs of operators that are one."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from qglow.core.passes import Refused
from qglow.graph.graph import Graph, Node, Value
from qglow.graph.operator import Operator
from qglow.graph.ops.elementwise import Add, Clamp, Clip, Mul, Relu, Sub
from qglow.graph.ops.pool import AveragePool, GlobalAveragePool, MaxPool
from qglow.graph.ops.shape import Cast, Concat, Identity, Pad, Reshape, Slice, Transpose
from qglow.graph.rewriting import (
    Outcome,
    RewritePass,
    bypass,
    change,
    fuse,
    operand,
    private,
    producer_of,
    remove_unread,
)
from qglow.passes.fuse_activation import compose_bounds


@dataclass(frozen=True)
class SimplifyAlgebra(RewritePass):
    """Remove what changes nothing: x+0, x-0, x*1, reshapes, slices and pads of nothing; join pairs."""

    name: ClassVar[str] = "simplify-algebra"

    def rewrite(self, node: Node, graph: Graph) -> Outcome:
        """Remove one node, or join it with the one before it."""
        source = _equal_operand(node)
        if source is not None and source.type == node.output.type:
            return bypass(graph, node, source) or f"{node.operator.name} changes nothing"
        join = _JOINS.get(type(node.operator))
        return None if join is None else join(node, graph)


def _equal_operand(node: Node) -> Value | None:
    """The operand that the result equals, as far as attributes and constants tell."""
    operator = node.operator
    if isinstance(operator, Add | Sub | Mul):
        return _neutral(node)
    if isinstance(operator, Concat):
        return operand(node, 0) if len(node.inputs) == 1 else None
    test = _NEUTRAL.get(type(operator))
    return operand(node, 0) if test is not None and test(operator, operand(node, 0)) else None


def _neutral(node: Node) -> Value | None:
    """x of x+0, 0+x, x-0, x*1, 1*x, where no bounds follow."""
    operator = node.operator
    assert isinstance(operator, Add | Sub | Mul)
    if operator.lo > -math.inf or operator.hi < math.inf or node.output.type.is_quantized:
        return None
    identity = 1 if isinstance(operator, Mul) else 0
    for index in (1, 0) if operator.commutative else (1,):
        data = operand(node, index).data
        if data is not None and bool(np.all(data == identity)):
            return operand(node, 1 - index)
    return None


def _is_whole(operator: Operator, x: Value) -> bool:
    assert isinstance(operator, Slice)
    return not any(operator.starts) and operator.ends == x.type.shape and set(operator.steps) <= {1}


def _is_unpadded(operator: Operator, x: Value) -> bool:
    assert isinstance(operator, Pad)
    return not any(operator.pads)


def _is_in_order(operator: Operator, x: Value) -> bool:
    assert isinstance(operator, Transpose)
    return operator.perm == tuple(range(len(x.type.shape)))


def _is_unbounded(operator: Operator, x: Value) -> bool:
    assert isinstance(operator, Clip)
    return operator.lo == -math.inf and operator.hi == math.inf


def _is_one_pixel(operator: Operator, x: Value) -> bool:
    assert isinstance(operator, MaxPool | AveragePool)
    return (*operator.kernel, *operator.strides) == (1, 1, 1, 1) and not any(operator.pads)


# Where the type stays, these do nothing if the test holds; a result of another type is never removed.
_NEUTRAL: dict[type[Operator], Callable[[Operator, Value], bool]] = {
    Identity: lambda operator, x: True,
    Cast: lambda operator, x: True,
    Reshape: lambda operator, x: True,
    Transpose: _is_in_order,
    Slice: _is_whole,
    Pad: _is_unpadded,
    Clip: _is_unbounded,
    MaxPool: _is_one_pixel,
    AveragePool: _is_one_pixel,
    GlobalAveragePool: lambda operator, x: True,
}


def join_reshapes(node: Node, graph: Graph) -> Outcome:
    """Reshape of a Reshape reads past it."""
    inner = producer_of(operand(node, 0), Reshape)
    if inner is None:
        return None
    _read_past(graph, node, inner, node.operator)
    return f"reads past Reshape '{inner.name}'"


def join_transposes(node: Node, graph: Graph) -> Outcome:
    """Transpose of a Transpose reads past it with both permutations."""
    inner = producer_of(operand(node, 0), Transpose)
    if inner is None:
        return None
    assert isinstance(node.operator, Transpose) and isinstance(inner.operator, Transpose)
    perm = tuple(inner.operator.perm[axis] for axis in node.operator.perm)
    _read_past(graph, node, inner, Transpose(perm=perm))
    return f"reads past Transpose '{inner.name}'"


def _read_past(graph: Graph, node: Node, inner: Node, operator: Operator) -> None:
    change(node, operator, [operand(inner, 0)])
    remove_unread(graph, inner)


def _join_clamps(node: Node, graph: Graph) -> Outcome:
    """Relu or Clip of a Relu or Clip, if nobody else reads that, as one."""
    x = operand(node, 0)
    inner = producer_of(x, Relu, Clip)
    if inner is None:
        return None
    refusal = private(graph, x)
    if refusal is not None:
        return refusal
    if x.type.is_quantized or node.output.type.is_quantized:
        return Refused(f"%{x.name} is quantized: clamping it twice may round it twice")
    assert isinstance(node.operator, Clamp) and isinstance(inner.operator, Clamp)
    lo, hi = compose_bounds(inner.operator.bounds, node.operator.bounds)
    joined = Relu() if (lo, hi) == Relu().bounds else Clip(lo=lo, hi=hi)
    fuse(graph, inner, node, joined, [operand(inner, 0)])
    return f"joined with {type(inner.operator).__name__} '{inner.name}'"


_JOINS: dict[type[Operator], Callable[[Node, Graph], Outcome]] = {
    Reshape: join_reshapes,
    Transpose: join_transposes,
    Relu: _join_clamps,
    Clip: _join_clamps,
}

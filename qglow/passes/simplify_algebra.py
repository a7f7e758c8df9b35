"""Operators that do nothing, and pairs of operators that are one."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from qglow.core.passes import Refused
from qglow.graph.graph import Graph, Node, Value, constant
from qglow.graph.operator import Operator
from qglow.graph.ops.elementwise import Clip, Relu
from qglow.graph.ops.shape import Reshape, Transpose
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
    """Remove what changes nothing: x+0, x-0, x*1, reshapes, slices and pads of nothing; join pairs.

    A constant that is repeated for each sample, such as a class token, is there once: what follows it is then
    simplified as it is for one sample.
    """

    name: ClassVar[str] = "simplify-algebra"

    def rewrite(self, node: Node, graph: Graph) -> Outcome:
        """Remove one node, or join it with the one before it."""
        source = _equal_operand(node)
        if source is not None and source.type == node.output.type:
            return bypass(graph, node, source) or f"{node.operator.name} changes nothing"
        if node.operator.neutral is not None:
            return _once(node, graph)
        if node.operator.clamps:
            return _join_clamps(node, graph)
        join = _JOINS.get(type(node.operator))
        return None if join is None else join(node, graph)


def _equal_operand(node: Node) -> Value | None:
    """The operand that the result equals where their types do, as far as attributes and constants tell."""
    operator = node.operator
    if operator.neutral is not None:
        return _beside_neutral(node, operator.neutral)
    return operand(node, 0) if operator.passes_through(node.input_types()) else None


def _beside_neutral(node: Node, number: float) -> Value | None:
    """x of x+0, 0+x, x-0, x*1, 1*x, where no bounds follow."""
    operator = node.operator
    if operator.bounds != (-math.inf, math.inf) or node.output.type.is_quantized:
        return None
    for index in (1, 0) if operator.commutative else (1,):
        data = operand(node, index).data
        if data is not None and bool(np.all(data == number)):
            return operand(node, 1 - index)
    return None


def _once(node: Node, graph: Graph) -> Outcome:
    """A constant operand that repeats along the first axis, which the other one has, is there once."""
    for index in (0, 1):
        repeated, other = operand(node, index), operand(node, 1 - index)
        if _repeats(repeated, other) and private(graph, repeated) is None:
            assert repeated.data is not None
            inputs = list(node.inputs)
            inputs[index] = constant(repeated.name, np.array(repeated.data[:1], order="C"))
            change(node, node.operator, inputs)
            return f"%{repeated.name} repeats along the first axis"
    return None


def _repeats(value: Value, other: Value) -> bool:
    """Whether a constant is the same all along its first axis, and another value is as long there."""
    data, shape = value.data, other.type.shape
    if data is None or value.type.is_quantized or data.ndim != len(shape) or data.ndim < 2:
        return False
    return 1 < len(data) == shape[0] and bool(np.all(data == data[:1]))


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
    inner = x.producer
    if inner is None or not inner.operator.clamps:
        return None
    refusal = private(graph, x)
    if refusal is not None:
        return refusal
    if x.type.is_quantized or node.output.type.is_quantized:
        return Refused(f"%{x.name} is quantized: clamping it twice may round it twice")
    lo, hi = compose_bounds(inner.operator.bounds, node.operator.bounds)
    joined = Relu() if (lo, hi) == Relu().bounds else Clip(lo=lo, hi=hi)
    fuse(graph, inner, node, joined, [operand(inner, 0)])
    return f"joined with {inner.operator.name} '{inner.name}'"


_JOINS: dict[type[Operator], Callable[[Node, Graph], Outcome]] = {
    Reshape: join_reshapes,
    Transpose: join_transposes,
}

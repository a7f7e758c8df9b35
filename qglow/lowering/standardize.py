"""Normalizations by the input's own statistics, written as reductions and elementwise operators.

Where all that is over the last axis, it becomes one standardize: LayerNormalization, with or without scale
and bias, and its form without the mean (RMSNormalization).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from qglow.graph.graph import Graph, Node, Value
from qglow.graph.operator import Operator
from qglow.graph.ops.elementwise import Add, Div, Mul, Sub
from qglow.graph.ops.functions import PowerOf, Reciprocal, Sqrt
from qglow.graph.ops.normalization import InstanceNormalization, LayerNormalization
from qglow.graph.ops.reduce import ReduceMean
from qglow.graph.ops.shape import Reshape
from qglow.graph.rewriting import is_constant_row, only_user, operand, other_operand
from qglow.instructions.ops.normalization import Standardize
from qglow.lowering.context import Lowering, natural
from qglow.lowering.decompose import Parts, decomposes
from qglow.lowering.live import LiveAxes


@decomposes(LayerNormalization)
def decompose_layer_normalization(operator: LayerNormalization, parts: Parts) -> list[Node]:
    """Decompose into arithmetic and reductions: standardize, multiply by scale, add bias."""
    x, scale, more = parts.operand(0), parts.operand(1), parts.node.inputs[2:]
    rank = len(x.type.shape)
    value = _standardize(parts, x, tuple(range(operator.axis % rank, rank)), operator.epsilon)
    bias = more[0] if more else None
    if bias is None:
        return parts.finish(Mul(), value, scale)
    return parts.finish(Add(), parts.add("scaled", Mul(), value, scale), bias)


@decomposes(InstanceNormalization)
def decompose_instance_normalization(operator: InstanceNormalization, parts: Parts) -> list[Node]:
    """Decompose into arithmetic: standardize the pixels of each channel, multiply by scale, add bias."""
    x, scale, bias = (parts.operand(index) for index in range(3))
    rank = len(x.type.shape)
    value = _standardize(parts, x, tuple(range(2, rank)), operator.epsilon)
    value = parts.add("scaled", Mul(), value, _along_channels(parts, "scale", scale, rank))
    return parts.finish(Add(), value, _along_channels(parts, "bias", bias, rank))


def _standardize(parts: Parts, x: Value, axes: tuple[int, ...], epsilon: float) -> Value:
    centred = parts.add("centred", Sub(), x, parts.add("mean", ReduceMean(axes), x))
    squares = parts.add("squares", Mul(), centred, centred)
    variance = parts.add("variance", ReduceMean(axes), squares)
    shifted = parts.add("shifted", Add(), variance, _number(parts, "epsilon", epsilon))
    inverse = parts.add("inverse", Reciprocal(), parts.add("deviation", Sqrt(), shifted))
    return parts.add("standard", Mul(), centred, inverse)


def _along_channels(parts: Parts, name: str, vector: Value, rank: int) -> Value:
    """A vector [C] with trailing axes of size 1, so that it broadcasts over the pixels of images."""
    shape = (vector.type.shape[0], *(1,) * (rank - 2))
    if vector.data is not None:
        return parts.constant(name, vector.data.reshape(shape))
    return parts.add(name, Reshape(shape=shape), vector)


def _number(parts: Parts, name: str, value: float) -> Value:
    return parts.constant(name, np.array(value, np.float32))


@dataclass(frozen=True, eq=False)
class RowStandardization:
    """Nodes that become one standardize (see `joins.Join`) of the rows of `x`."""

    operation: Standardize
    nodes: tuple[Node, ...]
    x: Value
    scale: Value | None
    shift: Value | None

    @property
    def place(self) -> Node:
        """The node whose place the instruction takes."""
        return self.nodes[-1]

    def lower(self, lowering: Lowering) -> None:
        """Lower to one instruction."""
        *outer, length = self.x.type.shape
        rows = (math.prod(outer), length)
        source = lowering.read(self.x, natural(self.x.type.shape))
        seen = lowering.view(f"{self.x.name}.rows", source, source.type.with_shape(rows))
        dest = lowering.write(self.nodes[-1].output)
        results = lowering.view(f"{dest.name}.rows", dest, dest.type.with_shape(rows))
        factors = [
            None if v is None or v.data is None else lowering.constant(f"{v.name}.row", v.data.reshape(-1))
            for v in (self.scale, self.shift)
        ]
        lowering.emit(self.operation, results, seen, *factors)


def find_standardized_rows(graph: Graph, places: Mapping[Value, LiveAxes]) -> list[RowStandardization]:
    """Standardizations over the last axis of a graph; places: axes of which only the first places matter."""
    found = (_standardized(graph, node) for node in graph.nodes if _is_row_mean(node))
    return [
        rows
        for rows in found
        if rows is not None and all(axis + 1 < len(rows.x.type.shape) for axis, _ in places.get(rows.x, ()))
    ]


def _is_row_mean(node: Node) -> bool:
    """Whether a node is the mean of floats over the last axis, which stays."""
    if len(node.outputs) != 1 or not node.outputs[0].type.is_float:
        return False
    means = (ReduceMean((len(node.output.type.shape) - 1,)), ReduceMean((-1,)))
    return node.operator in means and operand(node).type.is_float


def _standardized(graph: Graph, variance: Node) -> RowStandardization | None:
    """The nodes around the mean of squares."""
    squares = operand(variance).producer
    if squares is None or only_user(graph, squares.outputs[0]) is not variance:
        return None
    centred = operand(squares)
    if squares.operator != PowerOf(2.0) and (squares.operator != Mul() or operand(squares, 1) is not centred):
        return None
    nodes = [squares, variance]
    for operator in (Add(), Sqrt(), Reciprocal()):
        following = _follower(graph, nodes[-1], operator)
        if following is not None:
            nodes.append(following)
        elif operator != Reciprocal():
            return None
    shifted, divides = nodes[2], len(nodes) == 4
    epsilon, factor = other_operand(shifted, variance.output), nodes[-1].output
    last = _follower(graph, nodes[-1], Div() if divides else Mul())
    if last is None or epsilon is None or epsilon.data is None or epsilon.data.size != 1:
        return None
    if other_operand(last, factor) is not centred or (divides and operand(last) is not centred):
        return None
    x, before = _uncentred(graph, centred, {squares, last})
    operation = Standardize(float(epsilon.data.reshape(-1)[0]), bool(before), divides)
    return _with_factors(graph, operation, [*before, *nodes, last], x)


def _follower(graph: Graph, node: Node, operator: Operator) -> Node | None:
    """The only reader of a node's result, if it has this operator."""
    user = only_user(graph, node.output)
    return user if user is not None and user.operator == operator else None


def _uncentred(graph: Graph, centred: Value, readers: set[Node]) -> tuple[Value, list[Node]]:
    """The value from whose rows their means were subtracted, and the nodes of that; or the value itself."""
    node = centred.producer
    if node is None or node.operator != Sub() or graph.is_output(centred) or {*centred.users()} != readers:
        return centred, []
    x, mean = operand(node, 0), operand(node, 1).producer
    if mean is None or not _is_row_mean(mean) or operand(mean) is not x:
        return centred, []
    if only_user(graph, mean.output) is not node or x.type.shape != centred.type.shape:
        return centred, []
    return x, [mean, node]


def _with_factors(
    graph: Graph, operation: Standardize, nodes: list[Node], x: Value
) -> RowStandardization | None:
    """The standardization with the constant scale and the constant bias that follow it, if any do."""
    if nodes[-1].output.type.shape != x.type.shape:
        return None
    length, rows = x.type.shape[-1], []
    for operator in (Mul(), Add()):
        node = _follower(graph, nodes[-1], operator)
        row = None if node is None else other_operand(node, nodes[-1].output)
        found = row if is_constant_row(row, length) else None
        rows.append(found)
        if node is not None and found is not None:
            nodes.append(node)
    return RowStandardization(operation, tuple(nodes), x, *rows)

"""Where channels can be scaled: from the nodes that can multiply them to those that can divide them again.

Multiplying channel c of some values by a factor and dividing the weights that read them by the same
leaves the function as it is, as long as everything in between lets a factor through: max(f x, 0) is
f max(x, 0) for f > 0, and so it is for pooling, for sums of equally scaled values, for data movement.
A scope is the smallest set of values that have to be scaled together.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from qglow.core.types import Array
from qglow.graph.graph import Graph, Node, Value
from qglow.graph.operator import Operator
from qglow.graph.ops.conv import Conv
from qglow.graph.ops.elementwise import Add, Clip, PRelu, Relu, Sub
from qglow.graph.ops.functions import LeakyRelu
from qglow.graph.ops.linear import Gemm
from qglow.graph.ops.normalization import Affine, LayerNormalization
from qglow.graph.ops.pool import AveragePool, GlobalAveragePool, MaxPool
from qglow.graph.ops.reduce import ReduceMax, ReduceMean
from qglow.graph.ops.resize import ResizeNearest
from qglow.graph.ops.shape import ChannelShuffle, Identity, Reshape, Slice, Transpose

_PLANES = (MaxPool, AveragePool, GlobalAveragePool, ResizeNearest)
"""They work on each plane of N, C, H, W by itself."""
_MOVEMENTS = (ChannelShuffle, Reshape, Slice, Transpose)
"""They may take channels elsewhere."""
_EXACT_INDEX = 2**24
"""Integers up to this are exact in float32, as which indices of channels are moved about."""


@dataclass(frozen=True)
class Layout:
    """Where the channels of a scope lie in a value: int64[shape[axis]], the channel at each index."""

    axis: int
    channels: Array

    def same(self, other: Layout) -> bool:
        """Whether both put the same channels in the same places."""
        return self.axis == other.axis and np.array_equal(self.channels, other.channels)


class NoScope(Exception):
    """Why the channels of a value cannot be scaled, in words."""


@dataclass
class Scope:
    """Values whose channels can be scaled together, `size` of them.

    producers multiply, consumers divide; clamps are values that a bound above 0 cuts off, with the bound.
    """

    size: int
    values: dict[Value, Layout] = field(default_factory=dict)
    producers: list[Node] = field(default_factory=list)
    consumers: list[Node] = field(default_factory=list)
    clamps: list[tuple[Value, float]] = field(default_factory=list)

    @property
    def summed(self) -> bool:
        """Whether values of several producers are added in it."""
        return len(self.producers) > 1


def producers_of(graph: Graph) -> Iterator[Node]:
    """The nodes that can multiply the channels of what they give, by constants that they have."""
    for node in graph.nodes:
        if _output_axis(node) is not None:
            yield node


def scope_from(graph: Graph, start: Node) -> Scope:
    """All that has to be scaled with the channels that a node gives. Raises NoScope where it cannot be."""
    axis = _output_axis(start)
    if axis is None:
        raise NoScope(f"{start} has no constants that could be scaled")
    size = start.output.type.shape[axis]
    scope = Scope(size)
    waiting = [(start.output, Layout(axis, np.arange(size)))]
    while waiting:
        value, layout = waiting.pop()
        if value in scope.values:
            if not scope.values[value].same(layout):
                raise NoScope(f"%{value.name} would need its channels in two orders")
            continue
        scope.values[value] = layout
        waiting += _through_producer(scope, value, layout)
        if graph.is_output(value):
            raise NoScope(f"%{value.name} is an output of the model")
        for user in value.users():
            waiting += _through_user(scope, user, value, layout)
    if not scope.consumers:
        raise NoScope("nothing reads its channels")
    return scope


def _output_axis(node: Node) -> int | None:
    """Along which axis of its result a node has a constant for each channel; None where it has none."""
    if isinstance(node.operator, LayerNormalization):
        last = len(node.output.type.shape) - 1
        whole = node.operator.axis % (last + 1) == last
        constants = all(v is None or (v.is_constant and len(v.type.shape) == 1) for v in node.inputs[1:])
        return last if whole and constants and node.output.type.shape[last] > 1 else None
    if not isinstance(node.operator, Conv | Gemm | Affine):
        return None
    constants = all(v is None or v.is_constant for v in node.inputs[1:])
    return 1 if constants and node.output.type.shape[1] > 1 else None


Places = list[tuple[Value, Layout]]


def _through_producer(scope: Scope, value: Value, layout: Layout) -> Places:
    """Count in what gives the value; the further values that have to be scaled for it."""
    node = value.producer
    if node is None:
        raise NoScope(f"%{value.name} is an input of the model or a constant")
    if _output_axis(node) == layout.axis and layout.channels.size == scope.size:
        scope.producers.append(node)
        _count_clamp(scope, node, value)
        return []
    if not _lets_through(node.operator, layout):
        raise NoScope(f"%{value.name} comes from {node}")
    _count_clamp(scope, node, value)
    if isinstance(node.operator, _MOVEMENTS):
        # Reached from above only: the way back is that of the value it was reached from.
        source = node.inputs[0]
        if source not in scope.values:
            raise NoScope(f"%{value.name} comes from {node}")
        return []
    return [(operand, _before(node, layout)) for operand in _scaled_operands(node)]


def _through_user(scope: Scope, node: Node, value: Value, layout: Layout) -> Places:
    """Count in what reads the value; the further values that are scaled by it."""
    if isinstance(node.operator, Conv | Gemm) and node.inputs[0] is value and layout.axis == 1:
        weights = node.inputs[1]
        if weights is not None and weights.is_constant and node.inputs.count(value) == 1:
            scope.consumers.append(node)
            return []
    if not _lets_through(node.operator, layout) or node.inputs[0] is None:
        raise NoScope(f"{node} reads %{value.name}")
    if isinstance(node.operator, _MOVEMENTS):
        return [(node.output, _moved(node.operator, value, layout))]
    return [(node.output, _after(node, layout))]


def _scaled_operands(node: Node) -> list[Value]:
    if isinstance(node.operator, Add | Sub):
        operands = [value for value in node.inputs if value is not None]
        if any(v.is_constant or v.type.shape != node.output.type.shape for v in operands):
            raise NoScope(f"{node} adds a constant or broadcasts")
        return operands
    value = node.inputs[0]
    assert value is not None
    return [value]


def _lets_through(operator: Operator, layout: Layout) -> bool:
    """Whether an operator of scaled channels gives the channels scaled, bounds above left aside."""
    if isinstance(operator, _PLANES):
        return layout.axis == 1
    if isinstance(operator, ReduceMean | ReduceMax):
        return layout.axis not in operator.axes and min(operator.axes, default=0) >= 0
    if isinstance(operator, Add | Sub | Clip):
        return operator.lo in (0.0, -math.inf)
    return isinstance(operator, (Relu, LeakyRelu, PRelu, Identity, *_MOVEMENTS))


def _after(node: Node, layout: Layout) -> Layout:
    operator = node.operator
    if isinstance(operator, ReduceMean | ReduceMax) and not operator.keepdims:
        return Layout(layout.axis - sum(axis < layout.axis for axis in operator.axes), layout.channels)
    return layout


def _before(node: Node, layout: Layout) -> Layout:
    operator = node.operator
    if isinstance(operator, ReduceMean | ReduceMax) and not operator.keepdims:
        axis = layout.axis
        for gone in sorted(operator.axes):
            axis += gone <= axis
        return Layout(axis, layout.channels)
    return layout


def _moved(operator: Operator, value: Value, layout: Layout) -> Layout:
    """Where data movement takes the channels, found by moving their indices."""
    shape = value.type.shape
    if math.prod(shape) == 0 or layout.channels.size > _EXACT_INDEX:
        raise NoScope(f"%{value.name} is empty or has too many channels")
    along = [1] * len(shape)
    along[layout.axis] = -1
    indices = np.broadcast_to(layout.channels.astype(np.float32).reshape(along), shape)
    (found,) = operator.evaluate([np.ascontiguousarray(indices)])
    for axis in range(found.ndim):
        rows = np.moveaxis(found, axis, 0).reshape(found.shape[axis], -1)
        if np.all(rows == rows[:, :1]) and rows.shape[0] > 1:
            return Layout(axis, rows[:, 0].astype(np.int64))
    raise NoScope(f"{operator.name} of %{value.name} spreads the channels over several axes")


def _count_clamp(scope: Scope, node: Node, value: Value) -> None:
    operator = node.operator
    low, high = -math.inf, math.inf
    if isinstance(operator, Relu | Clip):
        low, high = operator.bounds
    elif hasattr(operator, "lo") and hasattr(operator, "hi"):
        low, high = operator.lo, operator.hi
    if low not in (0.0, -math.inf):
        raise NoScope(f"the bound {low:g} of {node} is not the same for scaled channels")
    if math.isfinite(high):
        scope.clamps.append((value, high))

"""Scopes of channel scaling: from the nodes that can multiply channels to those that can divide them again.

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
from qglow.quantization.corrections import Correction

_EXACT_INDEX = 2**24
"""Integers up to this are exact in float32, the type in which channel indices pass through operators."""


@dataclass(frozen=True)
class ChannelLayout:
    """Layout of a scope's channels in a value: int64[shape[axis]], the channel at each index."""

    axis: int
    channels: Array

    def same(self, other: ChannelLayout) -> bool:
        """Whether both put the same channels in the same places."""
        return self.axis == other.axis and np.array_equal(self.channels, other.channels)


class NoScope(Exception):
    """The channels of a value cannot be scaled; the message says why."""


@dataclass
class Scope:
    """Values whose channels can be scaled together, `size` of them.

    producers: nodes that multiply the channels. consumers: nodes whose weights divide them again. clamps:
    values with an upper bound, as that of ReLU6, and the bound.
    """

    size: int
    values: dict[Value, ChannelLayout] = field(default_factory=dict)
    producers: list[Node] = field(default_factory=list)
    consumers: list[Node] = field(default_factory=list)
    clamps: list[tuple[Value, float]] = field(default_factory=list)

    def correction(self, kind: str) -> Correction:
        """A correction of this kind of the channels of this scope."""
        values = tuple(value.name for value in self.values)
        changed = tuple(node.name for node in (*self.producers, *self.consumers))
        return Correction(kind, self.producers[0].name, values, changed)

    @property
    def summed(self) -> bool:
        """Whether values of several producers are added in it."""
        return len(self.producers) > 1


def producers_of(graph: Graph) -> Iterator[Node]:
    """Yield the nodes that can multiply the channels of their results through constants that they have."""
    for node in graph.nodes:
        if _output_axis(node) is not None:
            yield node


class Scopes:
    """The scopes of a graph.

    What hinders a scope hinders the scopes of all values in it, since each leads to all others, so a walk
    ends where an earlier one that failed has been: all walks together visit each value about once.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._failed: dict[Value, _Failed] = {}

    def of(self, start: Node) -> Scope:
        """Return the scope of all that has to be scaled together with the channels of a node's result.

        Raises NoScope where they cannot be scaled.
        """
        axis = _output_axis(start)
        if axis is None:
            raise NoScope(f"{start} has no constants that could be scaled")
        scope = Scope(start.output.type.shape[axis])
        try:
            self._walk(scope, start.output, ChannelLayout(axis, np.arange(scope.size)))
        except _OneWay:
            raise  # a walk from elsewhere may come the other way
        except NoScope as refusal:
            failed = {v: _Failed(scope.size, layout, str(refusal)) for v, layout in scope.values.items()}
            self._failed.update(failed)
            raise
        return scope

    def _walk(self, scope: Scope, first: Value, layout: ChannelLayout) -> None:
        """Add all that has to be scaled together with a value to a scope. Raises NoScope."""
        waiting = [(first, layout)]
        while waiting:
            value, layout = waiting.pop()
            if value in scope.values:
                if not scope.values[value].same(layout):
                    raise NoScope(f"%{value.name} would need its channels in two orders")
                continue
            failed = self._failed.get(value)
            if failed is not None and failed.size == scope.size and failed.layout.same(layout):
                raise NoScope(failed.why)
            scope.values[value] = layout
            waiting += _through_producer(scope, value, layout)
            if self._graph.is_output(value):
                raise NoScope(f"%{value.name} is an output of the model")
            for user in value.users():
                waiting += _through_user(scope, user, value, layout)
        if not scope.consumers:
            raise NoScope("nothing reads its channels")


@dataclass(frozen=True)
class _Failed:
    """Layout of a value in a scope of `size` channels that failed, and why it did."""

    size: int
    layout: ChannelLayout
    why: str


class _OneWay(NoScope):
    """A walk came to a result of data movement before it came to what is moved."""


def _output_axis(node: Node) -> int | None:
    """Axis of a node's result along which it has a constant for each channel; None if it has none."""
    axis = node.operator.constants_axis(node.input_types())
    if axis is None or node.output.type.shape[axis] <= 1:
        return None
    return axis if all(value is None or value.is_constant for value in node.inputs[1:]) else None


Places = list[tuple[Value, ChannelLayout]]


def _through_producer(scope: Scope, value: Value, layout: ChannelLayout) -> Places:
    """Add the value's producer to the scope; return the further values that must be scaled with it."""
    node = value.producer
    if node is None:
        raise NoScope(f"%{value.name} is an input of the model or a constant")
    if _output_axis(node) == layout.axis and layout.channels.size == scope.size:
        scope.producers.append(node)
        _count_clamp(scope, node, value)
        return []
    # Asked of the result's axis: stricter than needed for a reduction that removes an axis before it.
    if not node.operator.scales_along(layout.axis):
        raise NoScope(f"%{value.name} comes from {node}")
    _count_clamp(scope, node, value)
    if node.operator.rearranges:
        # Layouts are followed through data movement forwards only: the operand must be in the scope already.
        source = node.inputs[0]
        if source not in scope.values:
            raise _OneWay(f"%{value.name} comes from {node}")
        return []
    before = ChannelLayout(node.operator.axis_before(layout.axis), layout.channels)
    return [(operand, before) for operand in _scaled_operands(node)]


def _through_user(scope: Scope, node: Node, value: Value, layout: ChannelLayout) -> Places:
    """Add a node that reads the value to the scope; return the further values that must be scaled with it."""
    if node.operator.filters is not None and node.inputs[0] is value and layout.axis == 1:
        weights = node.inputs[1]
        if weights is not None and weights.is_constant and node.inputs.count(value) == 1:
            scope.consumers.append(node)
            return []
    alone = node.inputs[0] is value and node.inputs.count(value) == 1
    if not node.operator.scales_along(layout.axis) or not (alone or node.operator.additive):
        raise NoScope(f"{node} reads %{value.name}")
    if node.operator.rearranges:
        return [(node.output, _moved(node.operator, value, layout))]
    return [(node.output, ChannelLayout(node.operator.axis_after(layout.axis), layout.channels))]


def _scaled_operands(node: Node) -> list[Value]:
    if node.operator.additive:
        operands = [value for value in node.inputs if value is not None]
        if any(v.is_constant or v.type.shape != node.output.type.shape for v in operands):
            raise NoScope(f"{node} adds a constant or broadcasts")
        return operands
    value = node.inputs[0]
    assert value is not None
    return [value]


def _moved(operator: Operator, value: Value, layout: ChannelLayout) -> ChannelLayout:
    """Layout of the channels after data movement, found by moving their indices."""
    shape = value.type.shape
    if math.prod(shape) == 0 or layout.channels.size > _EXACT_INDEX:
        raise NoScope(f"%{value.name} is empty or has too many channels")
    along = [1] * len(shape)
    along[layout.axis] = -1
    indices = np.broadcast_to(layout.channels.astype(np.float32).reshape(along), shape)
    (found,) = operator.evaluate([np.ascontiguousarray(indices)])
    if found.size == 0:
        raise NoScope(f"{operator.name} of %{value.name} leaves no channels")
    for axis in range(found.ndim):
        rows = np.moveaxis(found, axis, 0).reshape(found.shape[axis], -1)
        if np.all(rows == rows[:, :1]) and rows.shape[0] > 1:
            return ChannelLayout(axis, rows[:, 0].astype(np.int64))
    raise NoScope(f"{operator.name} of %{value.name} spreads the channels over several axes")


def _count_clamp(scope: Scope, node: Node, value: Value) -> None:
    low, high = node.operator.bounds
    if low not in (0.0, -math.inf):
        raise NoScope(f"the bound {low:g} of {node} is not the same for scaled channels")
    if math.isfinite(high):
        scope.clamps.append((value, high))

"""One graph in several sizes, node by node."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from qglow.core.errors import UnsupportedError
from qglow.core.types import Array, TensorType
from qglow.counts.count import Count, Quotient, fitted_count, sum_of
from qglow.counts.small import SmallConstants, same_bits
from qglow.graph.axes import AxisEffect
from qglow.graph.graph import Graph, Node, Value


@dataclass(frozen=True, eq=False)
class SizedGraph:
    """A graph for these sizes of its dimensions."""

    sizes: Mapping[str, int]
    graph: Graph


class Progression(NamedTuple):
    """Numbers in equal steps from a first one on."""

    first: Count
    step: Count

    def shows(self, value: Value, sizes: Mapping[str, int]) -> bool:
        """Whether a constant of these sizes counts so."""
        found = _progression(value)
        if found is None:
            return False
        first, step = found
        return first == self.first.at(sizes) and step in (None, self.step.at(sizes))


class AlignedGraphs:
    """The same graph in several sizes: the first is the bound, the others tell what depends on sizes."""

    def __init__(self, graphs: Sequence[SizedGraph], small: SmallConstants | None = None) -> None:
        """Raises UnsupportedError where graphs have other nodes, not only other sizes.

        small: constants of sizes far smaller, which tell what only these change.
        """
        self._graphs = graphs
        self._small = small or SmallConstants({}, {})
        self._sizes = [entry.sizes for entry in graphs]
        self._quotients: list[Quotient] = []
        self._nodes = self._aligned()
        self._values = self._aligned_values()

    @property
    def bound(self) -> Graph:
        """The graph of the largest size."""
        return self._graphs[0].graph

    @property
    def sizes(self) -> Mapping[str, int]:
        """Sizes of the largest."""
        return self._sizes[0]

    def counts(self, value: Value) -> tuple[Count, ...]:
        """Sizes of the axes of a value of the largest graph. Raises UnsupportedError for other than sums."""
        if value not in self._counts:
            self._counts[value] = self._fitted(value, {})
        return self._counts[value]

    @cached_property
    def _counts(self) -> dict[Value, tuple[Count, ...]]:
        return {}

    def note(self, value: Value, known: Mapping[int, Count], merged: Collection[int] = ()) -> None:
        """Note sizes of some axes of a value of the largest graph, but for a number that is the same in all.

        What follows may have sizes that are whole parts of sums only if these are noted. merged: axes that
        have other sizes in other graphs than places are to be computed.
        """
        extents = self._extents(value)
        fits = {axis: count for axis, count in known.items() if axis in merged}
        for axis, count in known.items():
            if axis in fits or axis >= len(extents) or not count.quotients:
                continue  # sums of dimensions are found without help
            more = {size - count.at(sizes) for size, sizes in zip(extents[axis], self._sizes, strict=True)}
            if len(more) == 1:
                fits[axis] = Count(count.terms, count.offset + more.pop())
        for count in fits.values():
            self._quotients = [*(q for q in count.quotients if q not in self._quotients), *self._quotients]
        self._counts[value] = self._fitted(value, fits)

    def _extents(self, value: Value) -> list[list[int]]:
        """Sizes of every axis in each of the graphs."""
        shapes = [twin.type.shape for twin in self._values[value]]
        if len({len(shape) for shape in shapes}) > 1:
            raise UnsupportedError(f"the rank of '{value.name}' depends on sizes")
        return [list(found) for found in zip(*shapes, strict=True)]

    def _fit(self, found: Sequence[int]) -> Count | None:
        return fitted_count(self._sizes, found, self._quotients)

    def _fitted(self, value: Value, known: Mapping[int, Count]) -> tuple[Count, ...]:
        counts = []
        for axis, found in enumerate(self._extents(value)):
            count = known.get(axis) or self._fit(found)
            if count is None:
                raise UnsupportedError(f"axis {axis} of '{value.name}' is no sum of dimensions: {found}")
            counts.append(count)
        return tuple(counts)

    def changes(self, value: Value) -> bool:
        """Whether a constant is another one in other sizes."""
        first, *others = self._values[value]
        return self._small.changes(value) or any(not same_bits(first, other) for other in others)

    def arrays(self, value: Value) -> list[Array]:
        """The data of a constant in each of the graphs."""
        return [twin.data for twin in self._values[value] if twin.data is not None]

    def repeats(self, value: Value) -> bool:
        """Whether all elements of a constant are one number, which is the same in all sizes."""
        found = [twin.data for twin in self._values[value]]
        if any(data is None or not data.size for data in found):
            return False
        if not self._small.has_number(value):
            return False
        return len({part.tobytes() for data in found if data is not None for part in np.unique(data)}) == 1

    def progression(self, value: Value) -> Progression | None:
        """The numbers that a constant counts in equal steps; None for other constants."""
        found = [progression for twin in self._values[value] if (progression := _progression(twin))]
        if len(found) < len(self._values[value]):
            return None
        first = self._fit([start for start, _ in found])
        steps = [1 if step is None else step for _, step in found]
        step = self._fit(steps) if all(step is not None for _, step in found) or set(steps) == {1} else None
        if first is None or step is None:
            return None
        counted, small = Progression(first, step), self._small.constants.get(value.name)
        return counted if small is None or counted.shows(small, self._small.sizes) else None

    def never_negative(self, value: Value) -> bool:
        """Whether a constant has no number below zero in any size, not only in those of the graphs.

        That is known where smaller sizes have the first numbers of the largest, and of one number, or of
        those that are counted from it, which only grows with sizes.
        """
        arrays, small = self.arrays(value), self._small.constants.get(value.name)
        smallest = [] if small is None or small.data is None else [small.data]
        if not all(np.all(array >= 0) for array in (*arrays, *smallest)):
            return False
        if all(np.array_equal(arrays[0][tuple(map(slice, array.shape))], array) for array in arrays):
            return True
        single = all(array.size and np.all(array == array.flat[0]) for array in arrays)
        if single:
            first = self._fit([int(array.flat[0]) for array in arrays])
            return first is not None and _only_grows(first)
        counted = self.progression(value)
        return counted is not None and _only_grows(counted.first) and _only_grows(counted.step)

    def twins(self, node: Node) -> Sequence[Node]:
        """A node of the largest graph, and the same one in the others."""
        return self._nodes[node]

    def effect(self, node: Node, index: int, axis: int) -> AxisEffect | None:
        """The effect of an axis of an operand in all sizes; None where there is no single one."""
        found = {twin.operator.axis_effect(index, axis, twin.input_types()) for twin in self._nodes[node]}
        return found.pop() if len(found) == 1 else None

    def first_place(self, node: Node, axis: int) -> Count | None:
        """Place that a part along an axis begins with; None if it is no sum of dimensions."""
        return self._fit([twin.operator.first_place(axis) for twin in self._nodes[node]])

    def end_place(self, node: Node, axis: int, first: Count) -> Count | None:
        """Place that a part along an axis from `first` on ends before; None if it is no sum of dimensions."""
        twins = self._nodes[node]
        pairs = [(twin.operator.first_place(axis), twin.operator.end_place(axis)) for twin in twins]
        places = [twin.output.type.shape[axis] for twin in twins]
        if [end - start for start, end in pairs] == places:
            return sum_of([first, self.counts(node.output)[axis]])
        return self._fit([end for _, end in pairs])

    def attributes_change(self, node: Node) -> bool:
        """Whether attributes are others in other sizes."""
        return len({twin.operator for twin in self._nodes[node]}) > 1

    def _aligned(self) -> dict[Node, list[Node]]:
        lists = [list(entry.graph.nodes) for entry in self._graphs]
        for first, *others in zip(*lists, strict=False):
            if any(_form(first) != _form(other) for other in others):
                raise UnsupportedError(f"node '{first.name}' depends on sizes: smaller ones have other nodes")
        if len({len(nodes) for nodes in lists}) > 1:
            raise UnsupportedError("the number of nodes depends on sizes")
        return {nodes[0]: list(nodes) for nodes in zip(*lists, strict=True)}

    def _aligned_values(self) -> dict[Value, list[Value]]:
        found: dict[Value, list[Value]] = {}
        for ends in ("inputs", "outputs"):
            for twins in zip(*(getattr(entry.graph, ends) for entry in self._graphs), strict=True):
                found[twins[0]] = list(twins)
        for node, twins_of in self._nodes.items():
            for place, value in enumerate(node.inputs):
                if value is not None and value not in found:
                    found[value] = [_present(twin.inputs[place]) for twin in twins_of]
            for place, value in enumerate(node.outputs):
                found[value] = [twin.outputs[place] for twin in twins_of]
        return found


def _form(node: Node) -> tuple[object, ...]:
    """Everything of a node that sizes must not change."""
    operands = tuple(None if value is None else _kind(value) for value in node.inputs)
    return node.name, node.operator.name, operands, tuple(_kind(value) for value in node.outputs)


def _kind(value: Value) -> tuple[object, ...]:
    kind: TensorType = value.type
    return value.name, value.is_constant, kind.element, None if value.is_constant else kind.quantization


def _present(value: Value | None) -> Value:
    assert value is not None, "operands were compared"
    return value


def _progression(value: Value) -> tuple[int, int | None] | None:
    """First number and step of the integers [n] that a constant counts; None where it does not count.

    The step of a single number is None.
    """
    data = value.data
    if data is None or value.type.is_quantized or data.ndim != 1 or data.dtype not in (np.int32, np.int64):
        return None
    if data.size < 2:
        return (int(data[0]), None) if data.size else None
    first, step = int(data[0]), int(data[1]) - int(data[0])
    return (first, step) if np.array_equal(data, first + step * np.arange(data.size)) else None


def _only_grows(count: Count) -> bool:
    """Whether a count is negative for no sizes."""
    return count.offset >= 0 and all(factor >= 0 for _, factor in count.terms)

"""Inputs that tell a graph of the bound how large a call is, added where nodes need them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from qglow.core.types import ElementType, TensorType
from qglow.counts.count import Count
from qglow.counts.fillers import Filler, LivePlaces, NewPlace
from qglow.counts.samples import AlignedGraphs
from qglow.graph.graph import Node, Value
from qglow.graph.operator import Operator
from qglow.graph.ops.movement import Gather

Counts = tuple[Count, ...]


class CountedGraph:
    """The graph of the bound, with the counts of its values and the inputs that follow from sizes.

    fillers: how these inputs are filled.
    """

    def __init__(self, samples: AlignedGraphs) -> None:
        self.bound = samples.bound
        self.fillers: list[Filler] = []
        self._samples = samples
        self._counts: dict[Value, Counts] = {}
        self._live: dict[tuple[Count, int, int], Value] = {}
        self._numbers: dict[Count, Value] = {}

    def counts(self, value: Value) -> Counts:
        """Sizes of the axes of a value."""
        if value not in self._counts:
            self._counts[value] = self._samples.counts(value)
        return self._counts[value]

    def note(self, value: Value, known: Mapping[int, Count], merged: Collection[int]) -> None:
        """Note sizes of some axes of a result that follow from those of operands."""
        self._samples.note(value, known, merged)

    def counted(self, value: Value) -> list[int]:
        """Axes whose size depends on the call."""
        return [axis for axis, count in enumerate(self.counts(value)) if not count.is_constant]

    def number(self, count: Count) -> Value:
        """The input with a count as a number, int64 [1]."""
        if count not in self._numbers:
            self._numbers[count] = self.add_input("live_places", TensorType(ElementType.INT64, (1,)))
            self.fillers.append(NewPlace(self._numbers[count].name, count))
        return self._numbers[count]

    def live_places(self, count: Count, bound: int, rank: int) -> Value:
        """The input that says which places are live: bool [bound, 1, ...] of `rank` axes."""
        key = count, bound, rank
        if key not in self._live:
            kind = TensorType(ElementType.BOOL, (bound,) + (1,) * (rank - 1))
            self._live[key] = self.add_input("live", kind)
            self.fillers.append(LivePlaces(self._live[key].name, count, bound, rank))
        return self._live[key]

    def add_input(self, wanted: str, kind: TensorType) -> Value:
        """A new input of the same size for every call, to be filled."""
        value = Value(self.bound.unique_name(wanted), kind)
        self.bound.inputs.append(value)
        self._counts[value] = tuple(Count((), extent) for extent in kind.shape)
        return value

    def replace_constant(self, value: Value) -> Value:
        """A new input instead of a constant, with the counts of its axes."""
        made = Value(value.name, value.type)
        self._counts[made] = self._samples.counts(value)
        self.bound.inputs.append(made)
        for user in value.users():
            user.inputs = tuple(made if v is value else v for v in user.inputs)
        return made

    def insert_before(
        self,
        node: Node,
        operator: Operator,
        operands: Sequence[Value],
        wanted: str,
        like: Value,
        element: ElementType | None = None,
    ) -> Value:
        """Result of a new node in front of another one, of the type and the counts of a value.

        element: the type of its elements, if it is another one.
        """
        kind = replace(like.type, unsigned=False, element=element or like.type.element)
        made = Value(self.bound.unique_name(wanted), kind)
        name = self.bound.unique_name(wanted)
        self.bound.insert_before(node, Node(name, operator, operands, (made,)))
        self._counts[made] = self.counts(like)
        return made

    def gather_behind(self, node: Node, axis: int, places: Value) -> Value:
        """Result of a new node, which chooses places of a node's result and is used instead of it.

        The node's own result gets another name.
        """
        old = node.output
        new = Value(old.name, old.type)
        self.bound.replace_value(old, new)
        old.name = self.bound.unique_name(f"{old.name}__joined")
        name = self.bound.unique_name(f"{node.name}__together")
        self.bound.insert_after(node, Node(name, Gather(axis), (old, places), (new,)))
        self._counts[new] = self._samples.counts(old)
        return new

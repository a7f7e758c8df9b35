"""A graph of the bound, and what its callers need to know of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from qglow.core.types import Array, TensorType
from qglow.counts.count import Count
from qglow.counts.counted_graph import Counts
from qglow.counts.fillers import Filler, JoinedPlaces, NewPlace
from qglow.graph.graph import Graph


@dataclass(frozen=True, eq=False)
class GrownInput:
    """An input that an output continues along an axis. joined: filler of the places that are gathered."""

    input: str
    axis: int
    joined: JoinedPlaces

    @property
    def first(self) -> NewPlace:
        """The filler instead of it where new places are written behind the live ones of the input."""
        return NewPlace(self.joined.name, self.joined.parts[0][0])


@dataclass(frozen=True)
class LiveAxis:
    """An axis of which only the first places matter; `count`: input with their number, int64 [1]."""

    axis: int
    count: str


@dataclass(frozen=True, eq=False)
class ComputedConstant:
    """A constant that sizes change. kind: its type in the bound's graph. counts: those of its axes.

    arrays: its data in each of the graphs that were given. reader: a node that reads it, in words.
    """

    kind: TensorType
    counts: Counts
    arrays: Sequence[Array]
    reader: str


@dataclass(frozen=True, eq=False)
class BoundedGraph:
    """A graph of the bound. inputs, outputs: counts of the axes, by name.

    fillers: inputs that follow from sizes. computed: inputs that are constants of a graph of the size of a
    call; places that are not live are zeros. grown: outputs that are an
    input followed by others along an axis, which leaves the input's live places as they are. live: results of
    which places that are not live need not be computed, since nothing relies on what they hold; loose: inputs
    of which the same is true. summed: sums
    of products of which only the first terms matter, and the input with their number, int64 [1]. windows:
    numbers of which each is at least one in a call: places of windows, and one more than those that a slice
    leaves out.
    """

    graph: Graph
    inputs: Mapping[str, Counts]
    outputs: Mapping[str, Counts]
    fillers: Sequence[Filler]
    computed: Mapping[str, ComputedConstant]
    grown: Mapping[str, GrownInput]
    live: Mapping[str, tuple[LiveAxis, ...]]
    summed: Mapping[str, str]
    loose: frozenset[str]
    windows: tuple[Count, ...]

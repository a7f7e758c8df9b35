"""The part of a graph between values that are known and a value of interest, as a graph of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from qglow.bisection.difference import difference
from qglow.core.types import Array, TensorType
from qglow.graph.cutting import cut
from qglow.graph.graph import Graph, Value
from qglow.graph.interpreter import Interpreter


@dataclass(frozen=True)
class GraphPair:
    """The same part before and after a rewrite, with inputs for both."""

    before: Graph
    after: Graph
    inputs: Mapping[str, Array]


def cut_pair(before: Graph, after: Graph, inputs: Mapping[str, Array], tolerance: float) -> GraphPair:
    """The parts of two graphs that give the first value on which they differ, from values that they share.

    Values are paired by name. The parts begin at values that are the same in both. Raises ValueError if
    all values of equal names are equal.
    """
    old, new = values_of(before, inputs), values_of(after, inputs)
    shared = {
        name
        for name in old
        if name in new and old[name].dtype == new[name].dtype and old[name].shape == new[name].shape
    }
    differing = [name for name in new if name in shared and difference(name, new[name], old[name], tolerance)]
    if not differing:
        raise ValueError("no value of the same name differs")
    target = differing[0]
    known = shared - set(differing)
    parts = [cut(graph, [target], known) for graph in (before, after)]
    needed = {value.name for part in parts for value in part.inputs}
    for part in parts:
        _take_all(part, {name: before.value(name).type for name in sorted(needed)})
    return GraphPair(parts[0], parts[1], {name: old[name] for name in sorted(needed)})


def values_of(graph: Graph, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Every value by name, inputs first, then in the order of the nodes."""
    found: dict[str, Array] = {}

    def tap(value: Value, array: Array) -> None:
        found[value.name] = array

    Interpreter(graph).run(inputs, tap)
    return found


def _take_all(part: Graph, types: Mapping[str, TensorType]) -> None:
    """Let a graph have just these inputs, read or not, so that one file of arrays serves both parts."""
    own = {value.name: value for value in part.inputs}
    part.inputs = [own.get(name) or Value(name, kind) for name, kind in types.items()]

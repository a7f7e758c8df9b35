"""Results of which only some places matter, found from those of which that is known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from qglow.graph.graph import Graph, Node, Value

LiveAxes = tuple[tuple[int, str], ...]
"""Axes, outermost first, each with the input that says how many of its first places matter."""


@dataclass(frozen=True, eq=False)
class LiveResults:
    """Knowledge about results by name. places: axes of which only the first places matter.

    summed: sums of products of which only the first terms matter, and the input with their number.
    """

    places: Mapping[str, LiveAxes] = field(default_factory=dict)
    summed: Mapping[str, str] = field(default_factory=dict)


NO_LIMITS = LiveResults()


def spread_live(graph: Graph, known: Mapping[str, LiveAxes]) -> dict[Value, LiveAxes]:
    """Axes of all results: those known by name, and those of results that only such results depend on.

    Those of inputs are for what else is made of them, such as another order of axes.

    A place of an operand does not matter if no place matters of its readers that depends on it, as in the
    parts of an operator that is decomposed.
    """
    found: dict[Value, LiveAxes] = {}
    for node in reversed(list(graph.nodes)) if known else ():
        for value in node.outputs:
            axes = known.get(value.name) or _axes_of_readers(graph, value, found)
            if axes:
                found[value] = axes
    for value in graph.inputs if known else ():
        axes = _axes_of_readers(graph, value, found)
        if axes:
            found[value] = axes
    return found


def _axes_of_readers(graph: Graph, value: Value, found: Mapping[Value, LiveAxes]) -> LiveAxes:
    if graph.is_output(value) or not value.uses:
        return ()
    axes = []
    for axis in range(len(value.type.shape)):
        counts = {_count(user, index, axis, found) for user, index in value.uses}
        count = counts.pop() if len(counts) == 1 else None
        if count is not None:
            axes.append((axis, count))
    return tuple(axes)


def _count(user: Node, index: int, axis: int, found: Mapping[Value, LiveAxes]) -> str | None:
    """The input with the number of live places of a reader, where they are those of this axis alone."""
    effect = user.operator.axis_effect(index, axis, user.input_types())
    if effect is None or effect.axis is None or effect.neutral is not None or effect.cuts or effect.chosen:
        return None
    value = user.inputs[index]
    assert value is not None
    counts = {dict(found.get(output, ())).get(effect.axis) for output in user.outputs}
    same = user.output.type.shape[effect.axis] == value.type.shape[axis] and effect.keeps_places
    return counts.pop() if len(counts) == 1 and same else None

"""Axes that a reshape merges although both are counted, as rows [N * T, C] of tokens [N, T, C].

The places that count are not together then: those of each outer place are the first ones of its part. So the
merged axis counts as many parts as there are outer places, and nodes may compute each of its places by
itself, until another reshape divides it into the same two axes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from qglow.core.errors import UnsupportedError
from qglow.counts.count import Count
from qglow.counts.counted_graph import Counts
from qglow.counts.samples import AlignedGraphs
from qglow.graph.axes import AxisEffect
from qglow.graph.graph import Node, Value


@dataclass(frozen=True)
class Merged:
    """Parts of a merged axis. extent: places of the inner axis in the graph of the bound."""

    outer: Count
    inner: Count
    extent: int


class Merges:
    """Knowledge of merged axes of values of the bound's graph."""

    def __init__(
        self, samples: AlignedGraphs, counts: Callable[[Value], Counts], gathers: Collection[Node]
    ) -> None:
        """Take counts of operands, of values that conversions added too.

        gathers: nodes that read single places of a merged axis, where the bound has them.
        """
        self._samples, self._counts, self._gathers = samples, counts, gathers
        self._merged: dict[tuple[Value, int], Merged] = {}

    def is_merged(self, value: Value, axis: int) -> bool:
        """Whether places of an axis that count are not together."""
        return (value, axis) in self._merged

    def effect(self, node: Node, index: int, axis: int) -> AxisEffect | None:
        """The effect of an axis that a reshape merges with another one, or divides again; None for others."""
        value = node.inputs[index]
        if not node.operator.states_shape or value is None:
            return None
        merged = self._merged.get((value, axis))
        if merged is not None:
            return self._divided(node, axis, merged)
        if self._is_merge(node, value, axis):
            return node.operator.axis_effect(index, axis, node.input_types())
        return AxisEffect() if axis and self._is_merge(node, value, axis - 1) else None

    def note(self, node: Node, index: int, axis: int, effect: AxisEffect) -> None:
        """Note what becomes of an axis. Raises UnsupportedError where a node needs more than each place."""
        value = node.inputs[index]
        assert value is not None, "the axis is that of an operand"
        merged = self._merged.get((value, axis))
        if effect.chosen and node in self._gathers:
            return
        if merged is None and effect.axis is not None and self._is_merge(node, value, axis):
            outer, inner = self._counts(value)[axis : axis + 2]
            merged = Merged(outer, inner, value.type.shape[axis + 1])
        elif merged is None or (node.operator.states_shape and not effect.keeps_places):
            return
        elif effect.axis is None or effect.neutral is not None or effect.cuts or effect.chosen:
            raise UnsupportedError(
                f"node '{node.name}' ({node.operator.name}) cannot have a run-time size: it combines the "
                f"{merged.outer} by {merged.inner} places along axis {axis} of '{value.name}'"
            )
        assert effect.axis is not None, "nodes without one are refused"
        for result in node.outputs:
            self._merged[result, effect.axis] = merged

    def copy(self, value: Value, made: Value) -> None:
        """Note that a value is like another one."""
        found = [(axis, merged) for (known, axis), merged in self._merged.items() if known is value]
        self._merged |= {(made, axis): merged for axis, merged in found}

    def _is_merge(self, node: Node, value: Value, axis: int) -> bool:
        """Whether a reshape merges a counted axis with the one behind it, in all sizes."""
        if not node.operator.states_shape:
            return False
        counts = self._counts(value)
        if len(counts) < axis + 2 or counts[axis].is_constant or counts[axis + 1].is_constant:
            return False
        for twin in self._samples.twins(node):
            kinds = twin.input_types()
            effect, kind = twin.operator.axis_effect(0, axis, kinds), kinds[0]
            if effect is None or kind is None or effect.factor != kind.shape[axis + 1] or effect.stride != 1:
                return False
        return True

    def _divided(self, node: Node, axis: int, merged: Merged) -> AxisEffect | None:
        """The effect of a merged axis, where a reshape divides it as it was before, or leaves it whole."""
        effect = node.operator.axis_effect(0, axis, node.input_types())
        if effect is None or effect.axis is None:
            return None
        if effect.keeps_places:
            return effect if self._samples.effect(node, 0, axis) == effect else None
        shape, place = node.output.type.shape, effect.axis + 1
        same = effect.stride == merged.extent and len(shape) > place and shape[place] == merged.extent
        counts = self._samples.counts(node.output) if same else ()
        return effect if counts[effect.axis : place + 1] == (merged.outer, merged.inner) else None

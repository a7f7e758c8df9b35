"""Axes that a reshape merges with others in front, as rows [N * T, C] of tokens [N, T, C], both with bounds.

The places that count are not together then: those of each outer place are the first ones of its part. So the
merged axis counts as many parts as there are outer places, and nodes may compute each of its places by
itself, until another reshape divides it into the same axes. Outer places may be of several axes, and of as
many in all sizes, as in rows [S * N, C] of S frames of N signals: the merged axis is then no counted one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from math import prod

from qglow.core.errors import UnsupportedError
from qglow.core.types import Shape
from qglow.counts.count import Count
from qglow.counts.counted_graph import Counts
from qglow.counts.refusals import dependent
from qglow.counts.samples import AlignedGraphs
from qglow.graph.axes import AxisEffect
from qglow.graph.graph import Node, Value


@dataclass(frozen=True)
class Merged:
    """Parts of a merged axis. outer: how many. inner: live places of each; extent: places of the bound's."""

    outer: Count
    inner: Count
    extent: int

    def rescaled(self, extent: int) -> Merged | None:
        """The same parts, whose places are others of which each has `extent`; None where these are cut."""
        inner = self.inner.scaled(Fraction(extent, self.extent))
        return None if inner is None else Merged(self.outer, inner, extent)


class Merges:
    """Knowledge of merged axes of values of the bound's graph."""

    def __init__(self, samples: AlignedGraphs, counts: Callable[[Value], Counts]) -> None:
        """Take counts of operands, of values that conversions added too."""
        self._samples, self._counts = samples, counts
        self._merged: dict[tuple[Value, int], Merged] = {}

    def parts(self, value: Value, axis: int) -> Merged | None:
        """Parts of a merged axis; None for others."""
        return self._merged.get((value, axis))

    def is_merged(self, value: Value, axis: int) -> bool:
        """Whether places of an axis that count are not together."""
        return (value, axis) in self._merged

    def axes(self, node: Node, value: Value) -> list[int]:
        """Axes of an operand that are merged, or that a node merges with counted ones."""
        return [
            axis
            for axis in range(len(value.type.shape))
            if self.is_merged(value, axis) or self._made(node, value, axis) is not None
        ]

    def effect(self, node: Node, index: int, axis: int) -> AxisEffect | None:
        """The effect of an axis that a reshape merges with others, or divides again; None for others."""
        value = node.inputs[index]
        if not node.operator.states_shape or value is None:
            return None
        merged = self._merged.get((value, axis))
        if merged is not None:
            known = self._is_divided(node, axis, merged) or self._left(node, axis, merged) is not None
            return _stated(node, axis) if known else None
        if self._made(node, value, axis) is not None:
            return _stated(node, axis)
        outer = (place for place in range(axis) if self._made(node, value, place) is not None)
        return AxisEffect() if any(self._inner(value, place) == axis for place in outer) else None

    def note(self, node: Node, index: int, axis: int, effect: AxisEffect) -> None:
        """Note what becomes of an axis. Raises UnsupportedError where a node needs more than each place."""
        value = node.inputs[index]
        assert value is not None, "the axis is that of an operand"
        merged = self._merged.get((value, axis))
        if effect.chosen:
            return  # single places, whose indices are turned into those of the bound
        if merged is None:
            made = self._made(node, value, axis) if effect.axis is not None else None
        elif node.operator.states_shape:
            if self._is_divided(node, axis, merged):
                return
            made = self._left(node, axis, merged)
        else:
            apart = effect.keeps_places and effect.neutral is None
            kept = apart and not (effect.cuts or effect.chosen or effect.running)
            made = merged if kept and effect.axis is not None else None
        if made is None and merged is not None:
            raise self._combined(node, value, axis)
        if made is None:
            return
        assert effect.axis is not None, "nodes without one are refused"
        for result in node.outputs:
            if self._merged.setdefault((result, effect.axis), made) != made:
                raise self._combined(node, value, axis)

    def copy(self, value: Value, made: Value) -> None:
        """Note that a value is like another one."""
        found = [(axis, merged) for (known, axis), merged in self._merged.items() if known is value]
        self._merged |= {(made, axis): merged for axis, merged in found}

    def _combined(self, node: Node, value: Value, axis: int) -> UnsupportedError:
        merged = self._merged.get((value, axis))
        places = "" if merged is None else f" {merged.outer} by {merged.inner}"
        return dependent(node, f"it combines the{places} places along axis {axis} of '{value.name}'")

    def _inner(self, value: Value, axis: int) -> int | None:
        """The first axis behind one that is counted or merged."""
        counts = self._counts(value)
        places = range(axis + 1, len(counts))
        found = (place for place in places if self.is_merged(value, place) or not counts[place].is_constant)
        return next(found, None)

    def _made(self, node: Node, value: Value, axis: int) -> Merged | None:
        """Parts of an axis that a reshape merges with a counted one behind it, always; None for others."""
        place = self._inner(value, axis) if node.operator.states_shape else None
        if place is None or self.is_merged(value, axis) or self.is_merged(value, place):
            return None
        shares = set()
        for twin in self._samples.twins(node):
            effect, shape = twin.operator.axis_effect(0, axis, twin.input_types()), _shape(twin)
            if effect is None or effect.stride != 1 or 0 in shape:
                return None
            shares.add(Fraction(effect.factor, prod(shape[axis + 1 : place + 1])))
        counts, shape = self._counts(value), value.type.shape
        outer = counts[axis].times(prod(shape[axis + 1 : place]))
        if len(shares) > 1 or outer == Count((), 1):
            return None
        extent = shares.pop() * shape[place]
        merged = Merged(outer, counts[place], shape[place])
        return merged.rescaled(int(extent)) if extent.denominator == 1 else None

    def _left(self, node: Node, axis: int, merged: Merged) -> Merged | None:
        """Parts of an axis that a reshape leaves merged, with the same places or others; None for others."""
        effect = self._samples.effect(node, 0, axis)
        if effect is None or effect.axis is None:
            return None
        extent = Fraction(merged.extent * effect.factor, effect.stride)
        return merged.rescaled(int(extent)) if extent.denominator == 1 else None

    def _is_divided(self, node: Node, axis: int, merged: Merged) -> bool:
        """Whether a reshape divides a merged axis into outer and inner places."""
        effect, shape = _stated(node, axis), node.output.type.shape
        if effect is None or effect.axis is None or effect.factor != 1:
            return False
        first = effect.axis
        for place in range(first + 1, len(shape)):
            between = prod(shape[first + 1 : place])
            if between * merged.extent == effect.stride:
                counts = self._samples.counts(node.output)
                if (
                    all(count.is_constant for count in counts[first + 1 : place])
                    and counts[first].times(between) == merged.outer
                    and counts[place].times(merged.extent) == merged.inner.times(shape[place])
                ):
                    return True
        return False


def _stated(node: Node, axis: int) -> AxisEffect | None:
    """The effect of an axis in the graph of the bound."""
    return node.operator.axis_effect(0, axis, node.input_types())


def _shape(node: Node) -> Shape:
    kind = node.input_types()[0]
    assert kind is not None, "a reshape has an operand"
    return kind.shape

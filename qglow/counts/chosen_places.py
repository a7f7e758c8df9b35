"""Indices as a call has them, turned into those of the places that the bound's graph has."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from qglow.core.types import ElementType, TensorType
from qglow.counts.count import Count
from qglow.counts.counted_graph import CountedGraph
from qglow.counts.fillers import CountedPlaces
from qglow.counts.merges import Merged
from qglow.graph.graph import Node, Value, constant
from qglow.graph.operator import Operator
from qglow.graph.ops.elementwise import Add, Div, Mul
from qglow.graph.ops.logic import Compare, Whole
from qglow.graph.ops.selection import Where
from qglow.graph.ops.shape import Reshape


class ChosenPlaces:
    """New nodes in front of one that reads places by indices."""

    def __init__(self, graph: CountedGraph, node: Node, indices: Value) -> None:
        self._graph, self._node, self._indices = graph, node, indices

    def from_start(self, count: Count) -> Value:
        """Indices of an axis of `count` places; negative ones count from its end."""
        return self._turned(self._number(count))

    def of_rows(self, merged: Merged, is_positive: bool) -> Value:
        """Indices of rows, each at the place of the bound; is_positive: whether none counts from the end."""
        extent = self._number(merged.inner)
        places = self._indices
        if not is_positive:
            places = self._turned(self._made(Mul(), self._number(merged.outer), extent))
        within = self._made(Whole("modulo"), places, extent)
        outer = self._made(Div(), places, extent)
        first = self._made(Mul(), outer, self._constant(merged.extent))
        return self._made(Add(), first, within)

    def _turned(self, extent: Value) -> Value:
        negative = self._made(Compare("less"), self._indices, self._constant(0), element=ElementType.BOOL)
        return self._made(Where(), negative, self._made(Add(), self._indices, extent), self._indices)

    def _made(self, operator: Operator, *operands: Value, element: ElementType | None = None) -> Value:
        shapes = {operand.type.shape for operand in operands}
        like = self._indices if self._indices.type.shape in shapes else operands[0]
        return self._insert(operator, operands, like, element)

    def _insert(
        self, operator: Operator, operands: Sequence[Value], like: Value, element: ElementType | None = None
    ) -> Value:
        name = f"{self._indices.name}__places"
        return self._graph.insert_before(self._node, operator, operands, name, like, element)

    def _number(self, count: Count) -> Value:
        """A count as a number that goes with the indices."""
        name, kind = self._indices.name, self._indices.type
        made = self._graph.add_input(f"{name}__extent", TensorType(kind.element, (1,)))
        filler = CountedPlaces(made.name, count, Count((), 1), 1, str(kind.element.dtype))
        self._graph.fillers.append(filler)
        return made if kind.shape else self._insert(Reshape(()), (made,), self._indices)

    def _constant(self, number: int) -> Value:
        kind = self._indices.type
        data = np.full((1,) * min(len(kind.shape), 1), number, kind.element.dtype)
        return constant(self._graph.bound.unique_name(f"{self._indices.name}__number"), data)

"""Constants of a model that sizes of its inputs decide: masks, positions, rotations."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from qglow.core.errors import QglowError, UnsupportedError
from qglow.core.kept_imports import KeptImports
from qglow.core.model_place import ModelPlace
from qglow.core.types import Array, Shape
from qglow.counts import Count
from qglow.graph.verifier import verify_graph
from qglow.passes import canonical_pipeline

Sizes = Mapping[str, int]


class ShapeConstants:
    """Constants for the sizes of a call, the very ones that the import of a model of that size has.

    Where all sizes that were tried show parts of one larger constant, which begin at a dimension or end where
    it does, others are cut out of it; the rest is imported anew for each size.
    """

    def __init__(
        self,
        place: ModelPlace,
        counts: Mapping[str, Sequence[Count]],
        shapes: Callable[[Sizes], Mapping[str, Shape]],
        bounds: Sizes,
        open_ones: Sequence[str],
        kept: KeptImports | None = None,
    ) -> None:
        """Raises UnsupportedError for constants that are no tensors of the file.

        place: the model's file or bytes. counts: sizes of the constants' axes, by name. shapes: those of the
        inputs for sizes of the dimensions, which `bounds` limits. open_ones: dimensions of several sizes.
        kept: what imports of the file have in common.
        """
        self._names = list(counts)
        self._shapes = shapes
        self._table_parts: dict[str, TablePart] = {}
        if counts:
            from qglow.importer import ShapePart  # needs onnx

            self._part = ShapePart(place, self._names, kept)
            self._table_parts = self._found_parts(counts, bounds, open_ones)

    @property
    def tables(self) -> Mapping[str, TablePart] | None:
        """The tables that all constants are parts of, by their names; None where some are parts of none."""
        return self._table_parts if len(self._table_parts) == len(self._names) else None

    @property
    def described(self) -> str:
        """Name of the first constant that is part of no table, and how many more there are."""
        others = [name for name in self._names if name not in self._table_parts]
        return f"'{others[0]}'" + (f" and {len(others) - 1} more constants" if others[1:] else "")

    def __call__(self, sizes: Sizes) -> dict[str, Array]:
        """Arrays by name."""
        return self.imported(sizes) if self.tables is None else StoredConstants(self.tables)(sizes)

    def imported(self, sizes: Sizes) -> dict[str, Array]:
        """Arrays by name, imported for these sizes. Raises UnsupportedError where data decide them."""
        if not self._names:
            return {}
        graph = self._part.graph(self._shapes(sizes))
        canonical_pipeline().run(graph, verify_graph)
        found = dict(zip(self._names, graph.outputs, strict=True))
        for name, value in found.items():
            if value.data is None:
                raise UnsupportedError(f"'{name}' depends on sizes and on the data of a call")
        return {name: np.asarray(value.data) for name, value in found.items()}

    def _found_parts(
        self, counts: Mapping[str, Sequence[Count]], bounds: Sizes, open_ones: Sequence[str]
    ) -> dict[str, TablePart]:
        """Parts for those constants that all tried sizes show as parts of one table."""
        tried = [(sizes, self.imported(sizes)) for sizes in _tried(bounds, open_ones)]
        tables = list(self._tables(bounds))
        found = {}
        for name in self._names:
            parts = (
                part
                for table in tables
                for part in _table_parts(table[name], counts[name], bounds)
                if all(part.shows(arrays[name], sizes) for sizes, arrays in tried)
            )
            part = next(parts, None)
            if part is not None:
                found[name] = part
        return found

    def _tables(self, bounds: Sizes) -> Iterator[dict[str, Array]]:
        """Constants of the largest sizes, and of those where one dimension stands for all of them."""
        total = sum(bounds.values())
        longest = ({other: total if other == name else 0 for other in bounds} for name in bounds)
        for sizes in ({**bounds}, *longest):
            try:
                yield self.imported(sizes)
            except QglowError:
                continue  # the model takes no such sizes: others may do


@dataclass(frozen=True, eq=False)
class TablePart:
    """The part of a table that begins at `starts` and has sizes `counts`."""

    table: Array
    starts: Sequence[Count]
    counts: Sequence[Count]

    def at(self, sizes: Sizes) -> Array:
        """The part for these sizes."""
        begins = [start.at(sizes) for start in self.starts]
        ends = [begin + count.at(sizes) for begin, count in zip(begins, self.counts, strict=True)]
        return np.asarray(self.table[tuple(map(slice, begins, ends))])

    def shows(self, array: Array, sizes: Sizes) -> bool:
        """Whether the part has the bits of an array."""
        own = self.at(sizes)
        return own.shape == array.shape and own.tobytes() == array.tobytes()


@dataclass(frozen=True, eq=False)
class StoredConstants:
    """Constants for the sizes of a call that are parts of tables, by name."""

    tables: Mapping[str, TablePart]

    def __call__(self, sizes: Sizes) -> dict[str, Array]:
        """Arrays by name."""
        return {name: part.at(sizes) for name, part in self.tables.items()}


def _table_parts(table: Array, counts: Sequence[Count], bounds: Sizes) -> Iterator[TablePart]:
    """Parts that begin at 0 or at a dimension along each axis, or end where the table does."""
    if table.ndim == len(counts):
        starts = [Count(), *(Count(((name, 1),)) for name in bounds)]
        along = (
            [*starts, *(() if count.is_constant else (_before_end(extent, count),))]
            for extent, count in zip(table.shape, counts, strict=True)
        )
        for chosen in itertools.product(*along):
            if all(
                start.at(bounds) + count.at(bounds) <= extent
                for start, count, extent in zip(chosen, counts, table.shape, strict=True)
            ):
                yield TablePart(table, chosen, counts)


def _before_end(extent: int, count: Count) -> Count:
    """The first of the last `count` places of a table that has `extent`."""
    return Count(tuple((name, -factor) for name, factor in count.terms), extent - count.offset)


def _tried(bounds: Sizes, open_ones: Sequence[str]) -> list[dict[str, int]]:
    """Sizes that tell whether constants are parts of one: large, small, and of unequal proportions."""
    tried = [dict(bounds)]
    for part in (2, 3, 5):
        tried.append({**bounds, **{n: max(bounds[n] // (part + i), 2) for i, n in enumerate(open_ones)}})
    tried += [{**bounds, name: 2} for name in open_ones]
    return tried

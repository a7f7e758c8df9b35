"""Constants of a model that sizes of its inputs decide: masks, positions, rotations."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from qglow.core.errors import QglowError, UnsupportedError
from qglow.core.kept_imports import KeptImports
from qglow.core.model_place import ModelPlace
from qglow.core.passes import PassLog
from qglow.core.types import Array, Given, Shape
from qglow.counts import ComputedConstant, Count
from qglow.graph.graph import Graph
from qglow.graph.verifier import verify_graph
from qglow.numerics.half import widen
from qglow.passes import canonical_pipeline
from qglow.passes.dequantize_constants import DequantizeConstants

if TYPE_CHECKING:
    from qglow.importer import ShapePart

Sizes = Mapping[str, int]


class ShapeConstants:
    """Constants for the sizes of a call, the very ones that the import of a model of that size has.

    Where all sizes that were tried show parts of one larger constant, which begin at a dimension or end where
    it does, others are cut out of it, and rows out of tables of the file; the rest is imported anew for each
    size.
    """

    def __init__(
        self,
        place: ModelPlace,
        constants: Mapping[str, ComputedConstant],
        sizes: Sequence[Sizes],
        shapes: Callable[[Sizes], Mapping[str, Shape]],
        open_ones: Sequence[str],
        kept: KeptImports | None = None,
        values: Mapping[str, Given] | None = None,
    ) -> None:
        """Raises UnsupportedError for constants that the file has no tensor for, and no table shows.

        place: the model's file or bytes. constants: what is known of them, by name. sizes: those of the
        graphs that their arrays are from, the bounds first. shapes: those of the inputs for sizes of the
        dimensions. open_ones: dimensions of several sizes. kept: what imports of the file have in common.
        values: of inputs that are constants.
        """
        self._constants = constants
        self._shapes = shapes
        self._table_parts: dict[str, TablePart] = {}
        self._part: ShapePart | None = None
        self._imported: list[str] = []
        if constants:
            self._part, self._imported = self._part_of(place, sizes, kept, values)
            self._table_parts |= self._found_parts(sizes[0], open_ones)

    def _part_of(
        self,
        place: ModelPlace,
        sizes: Sequence[Sizes],
        kept: KeptImports | None,
        values: Mapping[str, Given] | None,
    ) -> tuple[ShapePart | None, list[str]]:
        """The part of the file that computes constants, and their names.

        Others, such as positions that an operator has in itself, have to be parts of the largest one.
        """
        from qglow.importer import ShapePart  # needs onnx

        names = list(self._constants)
        try:
            return ShapePart(place, names, kept, values), names
        except UnsupportedError:
            self._table_parts = self._shown_parts(sizes)
            names = [name for name in names if name not in self._table_parts]
            try:
                return ShapePart(place, names, kept, values) if names else None, names
            except UnsupportedError as error:
                raise UnsupportedError(f"{self._reader(place, names, kept)}: {error}") from error

    def _reader(self, place: ModelPlace, names: Sequence[str], kept: KeptImports | None) -> str:
        """Words for the node that reads the first constant which the file has no tensor for."""
        from qglow.importer import missing_tensors  # needs onnx

        first = next(iter(missing_tensors(place, names, kept)), names[0])
        return f"{self._constants[first].reader} cannot have a run-time size"

    def _shown_parts(self, sizes: Sequence[Sizes]) -> dict[str, TablePart]:
        """Parts of constants of the bound that show those of all other sizes."""
        found = {}
        for name, known in self._constants.items():
            others = list(zip(known.arrays[1:], sizes[1:], strict=True))
            for part in _table_parts(known.arrays[0], known.counts, sizes[0]):
                if all(part.shows(array, smaller) for array, smaller in others):
                    found[name] = part
                    break
        return found

    @property
    def tables(self) -> Mapping[str, TablePart] | None:
        """The tables that all constants are parts of, by their names; None where some are parts of none."""
        return self._table_parts if len(self._table_parts) == len(self._constants) else None

    @property
    def described(self) -> str:
        """Name of the first constant that is part of no table, and how many more there are."""
        others = [name for name in self._constants if name not in self._table_parts]
        return f"'{others[0]}'" + (f" and {len(others) - 1} more constants" if others[1:] else "")

    def __call__(self, sizes: Sizes) -> dict[str, Array]:
        """Arrays by name."""
        if len(self._table_parts) == len(self._constants):
            return StoredConstants(self._table_parts)(sizes)
        others = {name: part for name, part in self._table_parts.items() if name not in self._imported}
        return self.imported(sizes) | StoredConstants(others)(sizes)

    def imported(self, sizes: Sizes) -> dict[str, Array]:
        """Arrays of those that the file computes, imported for these sizes.

        Raises UnsupportedError where data decide them.
        """
        if self._part is None:
            return {}
        found = part_arrays(self._part, self._shapes(sizes))
        return {name: self._as_read(name, array) for name, array in found.items()}

    def _as_read(self, name: str, array: Array) -> Array:
        """A constant of the file in the type that the program has it in."""
        return widen(array) if self._constants[name].kind.is_float else array

    def _found_parts(self, bounds: Sizes, open_ones: Sequence[str]) -> dict[str, TablePart]:
        """Parts for those constants of the file that all tried sizes show as parts of one table."""
        tried = [self._imported_at_least(sizes, bounds) for sizes in _tried(bounds, open_ones)]
        tables = list(self._tables(bounds))
        found = {}
        for name in self._imported:
            counts = self._constants[name].counts
            parts = itertools.chain(
                *(_table_parts(table[name], counts, bounds) for table in tables),
                self._rows(name, tried, open_ones),
            )
            shown = (part for part in parts if all(part.shows(arrays[name], at) for at, arrays in tried))
            part = next(shown, None)
            if part is not None:
                found[name] = part
        return found

    def _rows(
        self, name: str, tried: Sequence[tuple[Sizes, dict[str, Array]]], open_ones: Sequence[str]
    ) -> Iterator[TablePart]:
        """Rows of tables of the file, at places that follow a dimension, for a constant of one row.

        Where a call reads one token, the constants of no size show more of a table than the row of its place.
        """
        sizes, arrays = tried[0]
        row, counts = arrays[name], self._constants[name].counts
        if (
            self._part is None
            or row.ndim < 2
            or row.size != row.shape[-1]
            or not all(c.is_constant for c in counts)
        ):
            return
        for stored in self._part.tables(row.size):
            table = self._as_read(name, stored)
            for place in np.flatnonzero((table == row.reshape(-1)).all(axis=1)):
                for open_one in (one for one in open_ones if place >= sizes[one]):
                    start = Count(((open_one, 1),), int(place) - sizes[open_one])
                    starts = [Count()] * (len(counts) - 2) + [start, Count()]
                    yield TablePart(table.reshape((1,) * (len(counts) - 2) + table.shape), starts, counts)

    def _imported_at_least(self, sizes: Sizes, bounds: Sizes) -> tuple[Sizes, dict[str, Array]]:
        """Sizes and their constants, imported for larger ones where the model does not take these.

        A signal may be shorter than a window. Raises what `imported` raises for the bounds.
        """
        try:
            return sizes, self.imported(sizes)
        except QglowError:
            larger = {name: min(2 * size, bounds[name]) for name, size in sizes.items()}
            if larger == dict(sizes):
                raise
            return self._imported_at_least(larger, bounds)

    def _tables(self, bounds: Sizes) -> Iterator[dict[str, Array]]:
        """Constants of the largest sizes, and of those where one dimension stands for all of them."""
        total = sum(bounds.values())
        longest = ({other: total if other == name else 0 for other in bounds} for name in bounds)
        for sizes in ({**bounds}, *longest):
            try:
                yield self.imported(sizes)
            except QglowError:
                continue  # the model takes no such sizes: others may do


def part_arrays(part: ShapePart, shapes: Mapping[str, Shape]) -> dict[str, Array]:
    """Arrays that a part computes for these shapes of the model's inputs, by name.

    Raises UnsupportedError where data decide it.
    """
    graph = _folded(part.graph(shapes))
    found = {name: graph.outputs[place] for name, place in part.places.items()}
    for name, value in found.items():
        if value.data is None:
            raise UnsupportedError(f"'{name}' depends on sizes and on the data of a call")
    return {name: np.asarray(value.data) for name, value in found.items()}


def computed_array(graph: Graph) -> Array:
    """The only output of a graph without inputs."""
    (output,) = _folded(graph).outputs
    if output.data is None:
        raise UnsupportedError(f"'{output.name}' depends on more than sizes")
    return np.asarray(output.data)


def _folded(graph: Graph) -> Graph:
    canonical_pipeline().run(graph, verify_graph)
    DequantizeConstants().run(graph, PassLog())
    return graph


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

"""Constants that follow shapes, replaced by what an ONNX model computes for every shape."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np

from qglow.core.errors import UnsupportedError
from qglow.core.types import Array
from qglow.exporter.sized_parts import FindTensor, PartNodes, SizedPart
from qglow.exporter.sizes import AmbiguityError, SizeNodes

Parts = Callable[[str, Sequence[Array]], SizedPart | None]
"""What computes a constant from sizes, by its name and what it is in each export."""


class Replacements:
    """Replacements of constants that are others in every export of one graph.

    tables: gives arrays that constants may be cut out of. parts: gives what computes a constant of this name
    from sizes, where the float model has that. find: gives a tensor that has sizes at an axis.
    """

    def __init__(
        self, work: SizeNodes, tables: Callable[[], Iterable[Array]], parts: Parts, find: FindTensor
    ) -> None:
        self._work = work
        self._tables = tables
        self._parts = parts
        self._nodes = PartNodes(work, find)

    @property
    def parameters(self) -> Mapping[str, tuple[str, str]]:
        """Computed scales and zero points, by the constants of integers that have them."""
        return self._nodes.parameters

    def of(self, name: str, arrays: Sequence[Array]) -> str:
        """Name of the tensor that stands for a constant, of which `arrays` has that of each export.

        Raises UnsupportedError where there is none, AmbiguityError where exports of more sizes would tell.
        """
        try:
            return self._shown(name, arrays)
        except AmbiguityError:
            raise
        except UnsupportedError:
            part = self._parts(name, arrays)
            if part is None:
                raise
            return self._nodes.of(name, part)

    def _shown(self, name: str, arrays: Sequence[Array]) -> str:
        """Name of what the arrays show: sizes, repeated parts, grids, parts of tables."""
        first = arrays[0]
        if len({array.ndim for array in arrays}) == 1:
            if first.dtype == np.int64 and first.ndim <= 1 and len({array.shape for array in arrays}) == 1:
                sizes = self._work.list_of(name, [array.reshape(-1).tolist() for array in arrays])
                return sizes if first.ndim else self._work.emit("Squeeze", [sizes], f"{name}__number")
            extents = zip(*(array.shape for array in arrays), strict=True)
            axes = tuple(axis for axis, found in enumerate(extents) if len(set(found)) > 1)
            if axes and all(array.size for array in arrays):
                return self._along(name, arrays, axes)
        raise UnsupportedError(f"constant '{name}' depends on shapes")

    def _along(self, name: str, arrays: Sequence[Array], axes: tuple[int, ...]) -> str:
        """Name of what stands for arrays of different sizes along axes."""
        periods = {axis: _period(arrays, axis) for axis in axes}
        repeated = {axis: period for axis, period in periods.items() if period}
        once = [_first(array, repeated) for array in arrays]
        core = self._core(name, once, tuple(axis for axis in axes if axis not in repeated))
        if not repeated:
            return core
        if set(repeated.values()) == {1}:
            shape = self._work.list_of(f"{name}__shape", [list(array.shape) for array in arrays])
            return self._work.emit("Expand", [core, shape], f"{name}__repeated")
        counts = [
            [size // repeated.get(axis, size) for axis, size in enumerate(array.shape)] for array in arrays
        ]
        return self._work.emit(
            "Tile", [core, self._work.list_of(f"{name}__counts", counts)], f"{name}__repeated"
        )

    def _core(self, name: str, arrays: Sequence[Array], axes: tuple[int, ...]) -> str:
        """Name of what stands for arrays that repeat along none of the axes in which they differ."""
        if not axes:
            if all(np.array_equal(array, arrays[0]) for array in arrays):
                return self._work.constant(name, arrays[0])
        elif arrays[0].dtype == np.int64:
            steps = [_steps(array, axes) for array in arrays]
            if all(_is_grid(*pair, arrays[0], axes) for pair in zip(arrays, steps, strict=True)):
                return self._grid(name, arrays, axes, steps)
        for table, starts in _cuts(arrays, axes, self._tables()) if axes else ():
            return self._cut(name, arrays, axes, table, starts)
        raise UnsupportedError(f"constant '{name}' depends on shapes")

    def _grid(
        self,
        name: str,
        arrays: Sequence[Array],
        axes: tuple[int, ...],
        steps: Sequence[Sequence[int | None]],
    ) -> str:
        """Name of integers that grow by a step for every place along axes."""
        work = self._work
        result = work.constant(name, _first(arrays[0], dict.fromkeys(axes, 1)))
        zero, one = (work.constant(f"{name}__{value}", np.array(value, np.int64)) for value in (0, 1))
        for entry, axis in enumerate(axes):
            count = work.list_of(f"{name}__count", [[array.shape[axis]] for array in arrays])
            end = work.emit("Squeeze", [count], f"{name}__end")
            numbers = work.emit("Range", [zero, end, one], f"{name}__numbers")
            factor = work.list_of(f"{name}__step", [[found[entry]] for found in steps])
            scaled = work.emit("Mul", [numbers, factor], f"{name}__scaled")
            shape = [-1 if place == axis else 1 for place in range(arrays[0].ndim)]
            target = work.constant(f"{name}__target", np.array(shape, np.int64))
            turned = work.emit("Reshape", [scaled, target], f"{name}__along")
            result = work.emit("Add", [result, turned], f"{name}__grid")
        return result

    def _cut(
        self, name: str, arrays: Sequence[Array], axes: Sequence[int], table: Array, starts: Sequence[int]
    ) -> str:
        """Name of the part of a table that begins at `starts` along axes, as far as a shape goes."""
        work = self._work
        ends = [
            [start + array.shape[axis] for start, axis in zip(starts, axes, strict=True)] for array in arrays
        ]
        operands = [
            work.constant(f"{name}__table", table),
            work.constant(f"{name}__starts", np.array(starts, np.int64)),
            work.list_of(f"{name}__ends", ends),
            work.constant(f"{name}__axes", np.array(axes, np.int64)),
        ]
        return work.emit("Slice", operands, f"{name}__cut")


def _first(array: Array, counts: Mapping[int, int]) -> Array:
    """Return the first places along axes, as many as `counts` has for each."""
    return array[tuple(slice(counts.get(axis)) for axis in range(array.ndim))]


def _period(arrays: Sequence[Array], axis: int) -> int:
    """Places along an axis after which all arrays begin again, such as heads, repeated for each sample.

    0 where there is no such number that divides their sizes.
    """
    most = math.gcd(*(array.shape[axis] for array in arrays))
    periods = (period for period in range(1, most + 1) if most % period == 0)
    return next((period for period in periods if all(_repeats(array, axis, period) for array in arrays)), 0)


def _repeats(array: Array, axis: int, period: int) -> bool:
    parts = np.split(array, array.shape[axis] // period, axis)
    return all(np.array_equal(part, parts[0]) for part in parts)


def _steps(array: Array, axes: Sequence[int]) -> list[int | None]:
    """Return by how much the second place along each axis is more than the first; None without a second."""
    origin = (0,) * array.ndim
    steps: list[int | None] = []
    for axis in axes:
        second = tuple(int(place == axis) for place in range(array.ndim))
        steps.append(int(array[second] - array[origin]) if array.shape[axis] > 1 else None)
    return steps


def _is_grid(array: Array, steps: Sequence[int | None], first: Array, axes: Sequence[int]) -> bool:
    """Whether an array begins as the first one, and grows by these steps along axes."""
    expected = _first(first, dict.fromkeys(axes, 1))
    for axis, step in zip(axes, steps, strict=True):
        shape = [-1 if place == axis else 1 for place in range(array.ndim)]
        expected = expected + (step or 0) * np.arange(array.shape[axis]).reshape(shape)
    return np.array_equal(array, expected)


def _cuts(
    arrays: Sequence[Array], axes: Sequence[int], tables: Iterable[Array]
) -> Iterator[tuple[Array, tuple[int, ...]]]:
    """Tables that all arrays are cut out of, in the rank of the arrays, and where the parts begin."""
    first = arrays[0]
    single = [axis for axis, size in enumerate(first.shape) if size == 1 and axis not in axes]
    rest = [axis for axis in range(first.ndim) if axis not in single]
    for stored in tables:
        table = stored.squeeze()
        if stored.dtype != first.dtype or table.ndim != len(rest) or not table.size:
            continue
        table = np.expand_dims(table, tuple(single))
        starts = _starts(first, axes, table)
        if starts is not None and all(_is_cut(array, axes, table, starts) for array in arrays):
            yield table, starts


def _starts(array: Array, axes: Sequence[int], table: Array) -> tuple[int, ...] | None:
    """Return where an array begins in a table along axes; only one axis may begin later than at 0."""
    if len(axes) > 1:
        return (0,) * len(axes)
    axis = axes[0]
    shape = [size for place, size in enumerate(table.shape) if place != axis]
    if shape != [size for place, size in enumerate(array.shape) if place != axis]:
        return None
    rows = np.moveaxis(table, axis, 0).reshape(table.shape[axis], -1)
    places = np.flatnonzero((rows == np.moveaxis(array, axis, 0)[0].ravel()).all(axis=1))
    return next(((int(place),) for place in places if _is_cut(array, axes, table, (int(place),))), None)


def _is_cut(array: Array, axes: Sequence[int], table: Array, starts: Sequence[int]) -> bool:
    """Whether an array is the part of a table that begins at `starts`."""
    parts = [slice(None)] * table.ndim
    for axis, start in zip(axes, starts, strict=True):
        parts[axis] = slice(start, start + array.shape[axis])
    return np.array_equal(table[tuple(parts)], array)

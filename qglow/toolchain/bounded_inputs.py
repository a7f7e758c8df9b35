"""Sizes of the inputs of programs as sums of dimensions, which are bounded."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from qglow.core.errors import DataError, UsageError
from qglow.core.printable import printable
from qglow.core.types import Dimension, Shape
from qglow.counts import Count, parse_count

Bounds = Mapping[str, int | Sequence[int] | str]
"""Largest sizes of dimensions by name: one, or one for each program, or a sum of other dimensions as text."""
Counts = Mapping[str, tuple[Count, ...]]

Alike = Sequence[tuple[tuple[Count, ...], Sequence[str]]]
"""Names of tensors by their sizes: the caches of all layers have one shape, which is computed once a call."""

LEAST = 8
"""The least bound above 1: smaller sizes than the bound tell what depends on it."""


@dataclass(frozen=True)
class ProgramSizes:
    """Sizes of dimensions that one program takes: each from `least` to `sizes`."""

    sizes: Mapping[str, int]
    least: Mapping[str, int]

    @staticmethod
    def up_to(bounds: Mapping[str, int]) -> ProgramSizes:
        """All sizes up to bounds; a bound of 1 is the size itself."""
        return ProgramSizes(bounds, {name: 0 if bound > 1 else 1 for name, bound in bounds.items()})

    @property
    def open(self) -> tuple[str, ...]:
        """Dimensions of which the program takes several sizes."""
        return tuple(name for name, size in self.sizes.items() if self.least[name] < size)

    def takes(self, sizes: Mapping[str, int]) -> bool:
        """Whether the program takes these sizes."""
        return all(self.least[name] <= sizes[name] <= size for name, size in self.sizes.items())


@dataclass(frozen=True)
class BoundedInputs:
    """Sizes of the inputs as sums of dimensions, and the bounds of these, least first."""

    inputs: Counts
    bounds: Mapping[str, tuple[int, ...]]

    @cached_property
    def _alike(self) -> Alike:
        return alike(self.inputs)

    @property
    def declared(self) -> dict[str, tuple[Dimension, ...]]:
        """Dimensions of the inputs, as a file would declare them."""
        return {
            name: tuple(count.offset if count.is_constant else str(count) for count in counts)
            for name, counts in self.inputs.items()
        }

    def shapes(self, sizes: Mapping[str, int]) -> dict[str, Shape]:
        """Shapes of the inputs where dimensions have these sizes."""
        return {name: tuple(count.at(sizes) for count in counts) for name, counts in self.inputs.items()}

    def range_text(self, taken: ProgramSizes) -> str:
        """Shapes of the inputs that a program takes, as "x [1, 1..40]"."""
        low, high = (self.shapes(sizes) for sizes in (taken.least, taken.sizes))
        texts = []
        for name, shape in high.items():
            pairs = zip(low[name], shape, strict=True)
            sizes = [str(top) if top == bottom else f"{bottom}..{top}" for bottom, top in pairs]
            texts.append(f"{printable(name)} [{', '.join(sizes)}]")
        return ", ".join(texts)

    def perhaps_equal(self, bounds: Mapping[str, int], sizes: Mapping[str, int]) -> list[tuple[str, str]]:
        """Pairs of dimensions of one bound and different sizes, which inputs have as the same axis.

        Exporters that name dimensions by themselves give each input names of its own.
        """
        columns = itertools.zip_longest(*self.inputs.values())
        found = [dict.fromkeys(str(count) for count in column if count is not None) for column in columns]
        pairs = (pair for names in found for pair in itertools.combinations(names, 2))
        return [
            (one, other)
            for one, other in pairs
            if {one, other} <= sizes.keys() and bounds[one] == bounds[other] and sizes[one] != sizes[other]
        ]

    def bounded(self, programs: Iterable[Mapping[str, int]]) -> BoundedInputs:
        """The same where programs have these largest sizes."""
        known = list(programs)
        bounds = {name: tuple(sorted({sizes[name] for sizes in known})) for name in self.bounds}
        return BoundedInputs(self.inputs, bounds)

    def sizes(self, shapes: Mapping[str, Shape]) -> dict[str, int]:
        """Sizes of the dimensions where inputs have these shapes. Raises DataError where they do not fit."""
        found: dict[str, int] = {}
        for counts, (name, *_) in self._alike:
            shape = shapes[name]
            if len(shape) != len(counts):
                raise DataError(f"input '{name}' has shape {shape}, the program wants {_text(counts)}")
            for count, size in zip(counts, shape, strict=True):
                for dimension in count.shown:
                    found.setdefault(dimension, count.told(size))
        for dimension in self.bounds:
            given, bound = found.get(dimension), self.bounds[dimension][-1]
            if given is None or not (given == bound or 0 <= given < bound > 1):
                raise DataError(f"dimension '{dimension}' is {given}, the bound is {bound}")
        for counts, names in self._alike:
            wanted = tuple([count.at(found) for count in counts])
            for name in names:
                if shapes[name] != wanted:
                    raise DataError(
                        f"input '{name}' has shape {shapes[name]}, the program wants {_text(counts)}"
                    )
        return found


def alike(tensors: Counts) -> Alike:
    """Names of the tensors of each shape, in order."""
    names: dict[tuple[Count, ...], list[str]] = {}
    for name, counts in tensors.items():
        names.setdefault(counts, []).append(name)
    return list(names.items())


def dimensions_of(
    declared: Mapping[str, Sequence[Dimension] | None], own: Mapping[str, Shape], bounds: Bounds
) -> BoundedInputs:
    """Sizes of inputs whose shapes a file declares so.

    own: shapes of a call where they are known; a first dimension is else 1. Raises UsageError for a name that
    no dimension has, a bound that is none, and a dimension without a size.
    """
    numbers = {name: _numbers(name, bound) for name, bound in bounds.items() if not isinstance(bound, str)}
    sums = {name: bound for name, bound in bounds.items() if isinstance(bound, str)}
    return inputs_of(declared, own, numbers, sums)


def inputs_of(
    declared: Mapping[str, Sequence[Dimension] | None],
    own: Mapping[str, Shape],
    numbers: Mapping[str, tuple[int, ...]],
    totals: Mapping[str, str],
) -> BoundedInputs:
    """Sizes of inputs whose dimensions have these bounds, or are sums of them; see `dimensions_of`."""
    sums = {name: _sum(name, text, numbers) for name, text in totals.items()}
    used: set[str] = set()
    inputs: dict[str, tuple[Count, ...]] = {}
    for name, dimensions in declared.items():
        counts = []
        for axis, dimension in enumerate(dimensions if dimensions is not None else own.get(name, ())):
            count = _count(dimension, numbers, sums)
            if count is None and name in own:
                count = Count((), own[name][axis])
            if count is None and axis == 0:
                count = Count((), 1)
            if count is None:
                raise UsageError(
                    f"dimension '{dimension}' of input '{name}' has no size: bind it, or bound it"
                )
            used |= count.dimensions | {str(dimension)}
            counts.append(count)
        inputs[name] = tuple(counts)
    for name in (*numbers, *totals):
        if name not in used:
            known = sorted({d for dims in declared.values() for d in dims or () if isinstance(d, str)})
            raise UsageError(
                f"no dimension of an input is called '{name}'; there are {', '.join(known) or 'none'}"
            )
    shown = {name for counts in inputs.values() for count in counts for name in count.shown}
    hidden = [name for name in numbers if name not in shown]
    if hidden:
        raise UsageError(f"the inputs show no size of '{hidden[0]}': it is part of sums alone")
    return BoundedInputs(inputs, numbers)


def _numbers(name: str, bound: int | Sequence[int]) -> tuple[int, ...]:
    numbers = tuple(bound) if isinstance(bound, Sequence) else (bound,)
    wrong = [n for n in numbers if not isinstance(n, int) or isinstance(n, bool) or (n < LEAST and n != 1)]
    if wrong or not numbers:
        raise UsageError(f"the bound of '{name}' is {bound}, it must be 1 or at least {LEAST}")
    return tuple(sorted(set(numbers)))


def _sum(name: str, text: str, numbers: Mapping[str, object]) -> Count:
    count = parse_count(text, numbers)
    if count is None:
        raise UsageError(f"'{name}' is bounded by '{text}', which is no sum of bounded dimensions")
    return count


def _count(
    dimension: Dimension, numbers: Mapping[str, tuple[int, ...]], sums: Mapping[str, Count]
) -> Count | None:
    if isinstance(dimension, int):
        return Count((), dimension)
    if dimension is None:
        return None
    return sums.get(dimension) or parse_count(dimension, numbers)


def _text(counts: Sequence[Count]) -> str:
    return "[" + ", ".join(map(str, counts)) + "]"

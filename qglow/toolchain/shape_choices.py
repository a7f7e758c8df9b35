"""Shapes that a caller names for programs: sizes, ranges of sizes, and sums of dimensions."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from qglow.core.errors import UsageError
from qglow.core.types import Dimension, Shape
from qglow.toolchain.bounded_inputs import LEAST, BoundedInputs, ProgramSizes, inputs_of

ShapeChoice = Mapping[str, Sequence[int | str]]
"""For each input its sizes: a number, a range such as "1..512", or a sum of dimensions, "past + new"."""
ShapeChoices = ShapeChoice | Sequence[ShapeChoice]
"""Shapes of one program, or of several, each with those of its inputs."""

MOST = 16
"""The most programs that one range becomes where each takes one size."""
_RANGE = re.compile(r"\s*(\d{1,9})\s*\.\.\s*(\d{1,9})\s*")
_NUMBER = re.compile(r"\s*\d{1,9}\s*")

Range = tuple[int, int]
Named = Mapping[str, Sequence[Dimension]]


@dataclass(frozen=True)
class ChosenShapes:
    """Programs that a caller asks for. dimensions: what sizes of inputs are called."""

    dimensions: BoundedInputs
    wanted: tuple[ProgramSizes, ...]

    @property
    def largest(self) -> dict[str, Shape]:
        """Largest shapes of the inputs of the program with the most places."""
        return self.dimensions.shapes(
            max((one.sizes for one in self.wanted), key=lambda s: math.prod(s.values()))
        )


def chosen_shapes(
    declared: Mapping[str, Sequence[Dimension] | None], own: Mapping[str, Shape], choices: ShapeChoices
) -> ChosenShapes:
    """Programs for inputs whose shapes a file declares so.

    own: shapes of inputs that the caller has bound. A first dimension that nobody names is 1; others have
    to be named, where another input does not tell them. Raises UsageError for shapes that do not fit the
    file or each other.
    """
    each = [choices] if isinstance(choices, Mapping) else list(choices)
    if not each:
        raise UsageError("there is no shape", field="shapes")
    named = {name: _names(name, dims, own.get(name), each) for name, dims in declared.items()}
    read = [_read(choice, named) for choice in each]
    sums = {name: text for ranges in read for name, text in ranges.items() if isinstance(text, str)}
    bases = sorted({name for ranges in read for name in ranges if not _is_sum(name)} - set(sums))
    firsts = {dims[0] for dims in named.values() if dims}
    wanted = [taken for ranges in read for taken in _programs(ranges, bases, firsts)]
    kept = tuple({repr((taken.sizes, taken.least)): taken for taken in wanted}.values())
    bounds = {name: tuple(sorted({taken.sizes[name] for taken in kept})) for name in bases}
    dimensions = inputs_of(named, {}, bounds, sums)
    _check_sums(read, named, dimensions)
    return ChosenShapes(dimensions, kept)


def every_size(taken: ProgramSizes) -> list[ProgramSizes]:
    """Sizes one by one, of a program for several. Raises UsageError where they are too many."""
    if math.prod(taken.sizes[name] - taken.least[name] + 1 for name in taken.open) > MOST:
        sizes = ", ".join(f"{taken.least[name]}..{taken.sizes[name]} of {name}" for name in taken.open)
        raise UsageError(
            f"a program for each size of {sizes} would be more than {MOST}; name the sizes that you need",
            field="shapes",
        )
    names = list(taken.sizes)
    every = itertools.product(*(range(taken.least[name], taken.sizes[name] + 1) for name in names))
    found = [dict(zip(names, sizes, strict=True)) for sizes in every]
    return [ProgramSizes(sizes, sizes) for sizes in found]


def _names(
    name: str, dimensions: Sequence[Dimension] | None, bound: Shape | None, choices: Sequence[ShapeChoice]
) -> Sequence[Dimension]:
    """Dimensions of an input, of which those without a name get one."""
    if bound is not None:
        return bound
    if dimensions is None:
        ranks = {len(choice[name]) for choice in choices if name in choice}
        if len(ranks) != 1:
            raise UsageError(
                f"the file does not say how many axes '{name}' has: give its shape", field="shapes"
            )
        dimensions = [None] * ranks.pop()
    return [f"{name}[{axis}]" if d is None else d for axis, d in enumerate(dimensions)]


def _read(choice: ShapeChoice, named: Named) -> dict[str, Range | str]:
    """Ranges of dimensions by name, and sums as text."""
    found: dict[str, Range | str] = {}
    for name, sizes in choice.items():
        if name not in named:
            raise UsageError(f"no input is called '{name}'; there are {', '.join(named)}", field="shapes")
        dimensions = named[name]
        if isinstance(sizes, str) or len(sizes) != len(dimensions):
            raise UsageError(f"'{name}' has the axes {_listed(dimensions)}", field="shapes")
        for axis, (dimension, given) in enumerate(zip(dimensions, sizes, strict=True)):
            size = _size(name, given)
            if isinstance(dimension, str):
                if found.setdefault(dimension, size) != size:
                    other = _shown(found[dimension])
                    raise UsageError(
                        f"'{dimension}' of '{name}' is {_shown(size)}, and {other} elsewhere", field="shapes"
                    )
            elif size != (dimension, dimension):
                raise UsageError(
                    f"axis {axis} of '{name}' is {dimension}, not {_shown(size)}", field="shapes"
                )
    return found


def _size(name: str, given: int | str) -> Range | str:
    if isinstance(given, int) and not isinstance(given, bool) and given >= 0:
        return given, given
    if isinstance(given, str):
        if _NUMBER.fullmatch(given):
            return int(given), int(given)
        found = _RANGE.fullmatch(given)
        if found is not None and int(found[1]) <= int(found[2]):
            return int(found[1]), int(found[2])
        if found is None and "." not in given and given.strip():
            return given
    raise UsageError(f"'{name}' cannot have the size {given!r}: write 16, 1..512 or past+new", field="shapes")


def _programs(
    ranges: Mapping[str, Range | str], bases: Sequence[str], firsts: set[Dimension]
) -> list[ProgramSizes]:
    """Sizes of the programs of one choice: small ranges are taken size by size."""
    every: list[list[Range]] = []
    for name in bases:
        given = ranges.get(name, (1, 1) if name in firsts else None)
        if not isinstance(given, tuple):
            raise UsageError(f"dimension '{name}' has no size in one of the shapes", field="shapes")
        low, high = given
        small = low < high < LEAST
        every.append([(size, size) for size in range(low, high + 1)] if small else [given])
    if math.prod(map(len, every)) > MOST:
        raise UsageError(f"one shape becomes more than {MOST} programs; name fewer sizes", field="shapes")
    made = []
    for sizes in itertools.product(*every):
        pairs = dict(zip(bases, sizes, strict=True))
        made.append(ProgramSizes({n: p[1] for n, p in pairs.items()}, {n: p[0] for n, p in pairs.items()}))
    return made


def _check_sums(read: Sequence[Mapping[str, Range | str]], named: Named, dimensions: BoundedInputs) -> None:
    """Raise UsageError where a size is given for a sum of dimensions that is another one."""
    for name, names in named.items():
        for dimension, count in zip(names, dimensions.inputs[name], strict=True):
            for ranges in read:
                given = ranges.get(dimension) if isinstance(dimension, str) and _is_sum(dimension) else None
                tops = {term: _top(ranges.get(term)) for term in count.dimensions}
                if isinstance(given, tuple) and count.at(tops) != given[1]:
                    raise UsageError(f"'{name}': {dimension} is not {_shown(given)}", field="shapes")


def _is_sum(name: Dimension) -> bool:
    return isinstance(name, str) and ("+" in name or "*" in name)


def _top(size: Range | str | None) -> int:
    return size[1] if isinstance(size, tuple) else 1


def _listed(dimensions: Sequence[Dimension]) -> str:
    return f"[{', '.join(map(str, dimensions))}]"


def _shown(size: Range | str) -> str:
    if isinstance(size, str):
        return size
    return str(size[0]) if size[0] == size[1] else f"{size[0]}..{size[1]}"

"""Sizes as sums of named dimensions."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

_TERM = re.compile(r"(?:(\d+)\s*\*\s*)?([^\s*+]+)")


@dataclass(frozen=True)
class Count:
    """The size `offset + factor * dimension + ...`; `terms` has dimensions with their factors, none 0."""

    terms: tuple[tuple[str, int], ...] = ()
    offset: int = 0

    @property
    def is_constant(self) -> bool:
        """Whether no dimension changes it."""
        return not self.terms

    @property
    def shown(self) -> tuple[str, ...]:
        """The dimension that the size tells, if it is that of one alone."""
        return (self.terms[0][0],) if len(self.terms) == 1 and self.terms[0][1] == 1 else ()

    def at(self, sizes: Mapping[str, int]) -> int:
        """The size where dimensions have these sizes."""
        size = self.offset
        for name, factor in self.terms:
            size += factor * sizes[name]
        return size

    def __str__(self) -> str:
        terms = [name if factor == 1 else f"{factor} * {name}" for name, factor in self.terms]
        return " + ".join([*terms, *([str(self.offset)] if self.offset or not terms else [])])


def fitted_count(sizes: Sequence[Mapping[str, int]], found: Sequence[int]) -> Count | None:
    """The count that has the values `found` where dimensions have these sizes; None if there is none.

    `sizes` has more entries than dimensions, affinely independent ones.
    """
    if len(set(found)) == 1:
        return Count((), found[0])
    names = [name for name in sizes[0] if len({entry[name] for entry in sizes}) > 1]
    matrix = np.array([[*(entry[name] for name in names), 1] for entry in sizes], np.float64)
    solved = np.rint(np.linalg.lstsq(matrix, np.array(found, np.float64), rcond=None)[0]).astype(int)
    factors = {name: int(factor) for name, factor in zip(names, solved, strict=False)}
    count = Count(tuple((name, factor) for name, factor in factors.items() if factor), int(solved[-1]))
    return count if all(count.at(entry) == value for entry, value in zip(sizes, found, strict=True)) else None


def parse_count(text: str, known: Mapping[str, object]) -> Count | None:
    """The count of a text like `past + 2 * new + 1`; None if it is no sum of known dimensions and numbers."""
    terms: dict[str, int] = {}
    offset = 0
    for part in text.split("+"):
        found = _TERM.fullmatch(part.strip())
        if found is None:
            return None
        factor, name = int(found[1] or 1), found[2]
        if name.isdecimal():
            offset += factor * int(name)
        elif name in known:
            terms[name] = terms.get(name, 0) + factor
        else:
            return None
    return Count(tuple(terms.items()), offset)

"""Sizes as sums of named dimensions, and of whole parts of such sums."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

_TERM = re.compile(r"(?:(\d+)\s*\*\s*)?([^\s*+]+)")


@dataclass(frozen=True)
class Quotient:
    """The size `count // divisor`, rounded down."""

    count: Count
    divisor: int

    def at(self, sizes: Mapping[str, int]) -> int:
        """The size where dimensions have these sizes."""
        return self.count.at(sizes) // self.divisor

    def __str__(self) -> str:
        text = str(self.count)
        return f"({text} // {self.divisor})" if " " not in text else f"(({text}) // {self.divisor})"


Term = str | Quotient
"""The name of a dimension, or a part of a sum of dimensions."""


@dataclass(frozen=True)
class Count:
    """The size `offset + factor * term + ...`; `terms` has dimensions with their factors, none 0."""

    terms: tuple[tuple[Term, int], ...] = ()
    offset: int = 0

    @property
    def is_constant(self) -> bool:
        """Whether no dimension changes it."""
        return not self.terms

    @property
    def shown(self) -> tuple[str, ...]:
        """The dimension that the size tells, if it is a multiple of one alone, but for a number."""
        if len(self.terms) != 1 or self.terms[0][1] < 1:
            return ()
        term = self.terms[0][0]
        return () if isinstance(term, Quotient) else (term,)

    def told(self, size: int) -> int:
        """Size of the dimension that is shown, where the count is `size`; other sizes are rounded down."""
        return (size - self.offset) // self.terms[0][1]

    @property
    def quotients(self) -> tuple[Quotient, ...]:
        """Terms that are whole parts of sums."""
        return tuple(term for term, _ in self.terms if isinstance(term, Quotient))

    @property
    def dimensions(self) -> frozenset[str]:
        """Names of the dimensions that decide the size."""
        inner = (term.count.dimensions if isinstance(term, Quotient) else {term} for term, _ in self.terms)
        return frozenset().union(*inner)

    @property
    def may_be_negative(self) -> bool:
        """Whether some sizes of the dimensions make the sum less than 0."""
        parts = (term.count for term in self.quotients)
        return min((factor for _, factor in self.terms), default=0) < 0 or (
            self.offset < 0 or any(part.may_be_negative for part in parts)
        )

    def at(self, sizes: Mapping[str, int]) -> int:
        """The size where dimensions have these sizes."""
        size = self.offset
        for term, factor in self.terms:
            size += factor * _size(term, sizes)
        return size

    def times(self, factor: int) -> Count:
        """The count of as many places for each one."""
        return Count(tuple((term, own * factor) for term, own in self.terms), self.offset * factor)

    def scaled(self, share: Fraction) -> Count | None:
        """The count of as many places for each one; None where a factor would be no whole number."""
        factors = [factor * share for _, factor in self.terms]
        offset = self.offset * share
        if any(number.denominator > 1 for number in (*factors, offset)):
            return None
        terms = zip((term for term, _ in self.terms), map(int, factors), strict=True)
        return Count(tuple(terms), int(offset))

    def windows(self, added: int, stride: int) -> Count:
        """Windows that move by `stride` over as many places: `(count + added) // stride + 1`.

        added: places of padding without those of one window, mostly negative.
        """
        whole = tuple((term, factor // stride) for term, factor in self.terms if factor % stride == 0)
        terms = tuple((term, factor) for term, factor in self.terms if factor % stride)
        first, left = divmod(self.offset + added, stride)
        if not terms:
            return Count(whole, first + 1)
        if len(terms) == 1 and isinstance(terms[0][0], Quotient) and terms[0][1] == 1:
            inner = terms[0][0]
            numerator = Count(inner.count.terms, inner.count.offset + left * inner.divisor)
            part = Quotient(numerator, inner.divisor * stride)
        else:
            part = Quotient(Count(terms, left), stride)
        return Count((*whole, (part, 1)), first + 1)

    def __str__(self) -> str:
        terms = " + ".join(str(name) if factor == 1 else f"{factor} * {name}" for name, factor in self.terms)
        if not terms:
            return str(self.offset)
        return terms + (f" {'-' if self.offset < 0 else '+'} {abs(self.offset)}" if self.offset else "")


def _size(term: Term, sizes: Mapping[str, int]) -> int:
    return term.at(sizes) if isinstance(term, Quotient) else sizes[term]


def fitted_count(
    sizes: Sequence[Mapping[str, int]], found: Sequence[int], quotients: Iterable[Quotient] = ()
) -> Count | None:
    """The count that has the values `found` where dimensions have these sizes; None if there is none.

    `sizes` has more entries than dimensions, affinely independent ones. quotients: terms of which one may
    take the place of the dimensions. None also where several of them fit: other sizes may tell them apart.
    """
    if len(set(found)) == 1:
        return Count((), found[0])
    names = [name for name in sizes[0] if len({entry[name] for entry in sizes}) > 1]
    fitted = _fitted(names, sizes, found)
    if fitted is not None:
        return fitted
    others = {count for term in quotients if (count := _fitted([term], sizes, found)) is not None}
    return others.pop() if len(others) == 1 else None


def _fitted(terms: Sequence[Term], sizes: Sequence[Mapping[str, int]], found: Sequence[int]) -> Count | None:
    matrix = np.array([[*(_size(term, entry) for term in terms), 1] for entry in sizes], np.float64)
    solved = np.rint(np.linalg.lstsq(matrix, np.array(found, np.float64), rcond=None)[0]).astype(int)
    factors = [(term, int(factor)) for term, factor in zip(terms, solved, strict=False)]
    count = Count(tuple((term, factor) for term, factor in factors if factor), int(solved[-1]))
    return count if all(count.at(entry) == value for entry, value in zip(sizes, found, strict=True)) else None


def sum_of(counts: Iterable[Count]) -> Count:
    """The count of the places of several together."""
    terms: dict[Term, int] = {}
    offset = 0
    for count in counts:
        offset += count.offset
        for term, factor in count.terms:
            terms[term] = terms.get(term, 0) + factor
    return Count(tuple((term, factor) for term, factor in terms.items() if factor), offset)


def parse_count(text: str, known: Mapping[str, object]) -> Count | None:
    """The count of a text like `past + 2 * new + 1`; None if it is no sum of known dimensions and numbers."""
    terms: dict[Term, int] = {}
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

"""Sections of text, facts and tables, independent of the format they are shown in."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Paragraph:
    """Running text."""

    text: str


@dataclass(frozen=True, slots=True)
class Listing:
    """Text in a fixed-width font, kept as it is."""

    text: str


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table; numbers are aligned right."""

    title: str
    numeric: bool = False


@dataclass(frozen=True, slots=True)
class Grid:
    """Rows of formatted cells under titled columns. Raises ValueError for a row of another length."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str = ""

    def __post_init__(self) -> None:
        wrong = [row for row in self.rows if len(row) != len(self.columns)]
        if wrong:
            raise ValueError(f"{len(self.columns)} columns, but a row is {wrong[0]}")


@dataclass(frozen=True, slots=True)
class Picture:
    """A drawing as SVG, which HTML shows, and what it says in words, which stands for it elsewhere."""

    svg: str
    text: str


@dataclass(frozen=True, slots=True)
class Gallery:
    """Small pictures side by side. Formats without pictures leave them out: tables say the same."""

    pictures: tuple[Picture, ...]
    caption: str


Block = Paragraph | Listing | Grid | Picture | Gallery


@dataclass(frozen=True, slots=True)
class Section:
    """A titled part of a document. role: how a page sets it off, such as "verdict good"; else ""."""

    title: str
    blocks: tuple[Block, ...]
    role: str = ""


def facts(pairs: Iterable[tuple[str, str]]) -> Grid:
    """A table of names and values without titles."""
    return Grid((Column(""), Column("")), tuple(pairs))


def table(titles: Sequence[str], rows: Iterable[Sequence[str]], caption: str = "") -> Grid:
    """A table; a title that ends in ">" marks a numeric column."""
    columns = tuple(Column(title.removesuffix(">").rstrip(), title.endswith(">")) for title in titles)
    return Grid(columns, tuple(tuple(row) for row in rows), caption)


def percent(share: float) -> str:
    """A share of 0 to 1 in per cent: 93.4 %."""
    return f"{100.0 * share:.2f} %"


def decibels(value: float) -> str:
    """A level: 31.2 dB."""
    return "equal" if value == math.inf else f"{value:.2f} dB"


def significant(value: float, digits: int = 3) -> str:
    """A number with this many significant digits."""
    return f"{value:.{digits}g}"


def byte_count(size: int) -> str:
    """A size in bytes with a unit that people read: 4.95 MB (powers of ten)."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= factor:
            return f"{size / factor:.2f} {unit}"
    return f"{size} bytes"


def milliseconds(value: float) -> str:
    """A latency: 4.66 ms, or microseconds where it is below one."""
    return f"{value:.2f} ms" if value >= 1.0 else f"{value * 1000.0:.1f} µs"

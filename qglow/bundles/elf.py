"""Symbols of an object file in ELF, the format of Linux and of microcontrollers (System V ABI, chapter 4)."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from qglow.core.errors import InternalError

_MAGIC = b"\x7fELF"
_LITTLE = 1
_SYMBOL_TABLE = 2
_KIND, _FUNCTION = 15, 2
"""Bits of a symbol that say what it is, and their value for functions."""
_CONTENTS, _LOADED = 1, 2
"""Type of sections with contents, and flag of those that are in memory when the program runs."""
_HEADER = {
    1: (struct.Struct("<16x2H5I6H"), struct.Struct("<10I"), struct.Struct("<IIIBBH")),
    2: (struct.Struct("<16x2HI3QI6H"), struct.Struct("<2I4Q2I2Q"), struct.Struct("<IBBHQQ")),
}
"""Structures of the file header, of section headers and of symbols, by the class: 32 or 64 bits."""


@dataclass(frozen=True)
class Symbols:
    """Global symbols of an object file: those that it defines, and those that it needs."""

    defined: tuple[str, ...]
    undefined: tuple[str, ...]


def symbols(content: bytes) -> Symbols:
    """Read the global symbols. Raises InternalError for what is no little-endian object file in ELF."""
    _check_format(content)
    defined: list[str] = []
    undefined: list[str] = []
    for entry in _entries(content):
        if entry.info >> 4:
            (defined if entry.section else undefined).append(entry.name)
    return Symbols(tuple(defined), tuple(undefined))


def function_bytes(content: bytes) -> dict[str, int]:
    """Bytes of every function that an object file defines, by name. Raises InternalError as `symbols`."""
    _check_format(content)
    return {e.name: e.size for e in _entries(content) if e.section and e.info & _KIND == _FUNCTION}


@dataclass(frozen=True)
class _Entry:
    """A symbol: its binding and kind are bits of `info`, `section` is 0 where it is not defined."""

    name: str
    size: int
    info: int
    section: int


def _entries(content: bytes) -> Iterator[_Entry]:
    sections, symbol = _sections(content), _HEADER[content[4]][2]
    for kind, offset, length, link in ((s[1], s[4], s[5], s[6]) for s in sections):
        if kind != _SYMBOL_TABLE:
            continue
        for place in range(offset, offset + length, symbol.size):
            entry = symbol.unpack_from(content, place)
            size, info, index = (
                (entry[2], entry[3], entry[5]) if content[4] == 1 else (entry[5], entry[1], entry[3])
            )
            yield _Entry(_text(content, sections[link][4] + entry[0]), size, info, index)


def code_bytes(content: bytes) -> int:
    """Bytes of an object file that a program loads and nothing writes: code and the constants in it."""
    _check_format(content)
    return sum(s[5] for s in _sections(content) if s[1] == _CONTENTS and s[2] & _LOADED)


def _check_format(content: bytes) -> None:
    if content[:4] != _MAGIC or content[4] not in _HEADER or content[5] != _LITTLE:
        raise InternalError("LLVM gave no object file in little-endian ELF")


def _sections(content: bytes) -> list[tuple[int, ...]]:
    header, section, _ = _HEADER[content[4]]
    fields = header.unpack_from(content)
    start, size, count = fields[5], fields[10], fields[11]
    return [section.unpack_from(content, start + number * size) for number in range(count)]


def _text(content: bytes, start: int) -> str:
    return content[start : content.index(b"\0", start)].decode()

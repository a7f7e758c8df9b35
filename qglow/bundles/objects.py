"""Symbols of an object file in WebAssembly (tool conventions, "Linking"), beside those in ELF."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from qglow.bundles import elf
from qglow.bundles.elf import Symbols
from qglow.core.errors import InternalError

_WASM = b"\0asm"
_CUSTOM = 0
_SYMBOL_TABLE = 8
_FUNCTION, _DATA, _SECTION = 0, 1, 3
_LOCAL, _UNDEFINED, _EXPLICIT_NAME = 0x02, 0x10, 0x40
_IMPORTS = 2
_CODE = 10
_CODE_AND_DATA = (_CODE, 11)


def symbols(content: bytes) -> Symbols:
    """Global symbols of an object file. Raises InternalError for an unknown format."""
    return _wasm_symbols(content) if content.startswith(_WASM) else elf.symbols(content)


def code_bytes(content: bytes) -> int:
    """Bytes of code, and of constants in it, of an object file. Raises InternalError as `symbols`."""
    if not content.startswith(_WASM):
        return elf.code_bytes(content)
    return sum(s.end - s.place for kind, s in _sections(content) if kind in _CODE_AND_DATA)


def function_bytes(content: bytes) -> dict[str, int]:
    """Bytes of every function that an object file defines, by name. Raises InternalError as `symbols`."""
    if not content.startswith(_WASM):
        return elf.function_bytes(content)
    sizes: list[int] = []
    imported: list[str] = []
    found: dict[str, int] = {}
    for kind, section in _sections(content):
        if kind == _IMPORTS:
            imported = _imported_functions(section)
        elif kind == _CODE:
            sizes = [body.end - body.place for body in (section.part() for _ in range(section.number()))]
        elif kind == _CUSTOM and section.name() == "linking":
            for symbol in _linked_symbols(section, imported):
                if symbol.kind == _FUNCTION and not symbol.flags & _UNDEFINED:
                    found[symbol.name] = sizes[symbol.index - len(imported)]
    return found


def _sections(content: bytes) -> Iterator[tuple[int, _Reader]]:
    module = _Reader(content, len(_WASM) + 4, len(content))
    while module.place < module.end:
        yield module.byte(), module.part()


class _Reader:
    """Reads numbers and names of a module from a place on."""

    def __init__(self, content: bytes, place: int, end: int) -> None:
        self.content, self.place, self.end = content, place, end

    def number(self) -> int:
        """An unsigned number in LEB128."""
        value = shift = 0
        while True:
            byte = self.content[self.place]
            self.place += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def byte(self) -> int:
        """One byte."""
        self.place += 1
        return self.content[self.place - 1]

    def name(self) -> str:
        """A name with its length before it."""
        size = self.number()
        self.place += size
        return self.content[self.place - size : self.place].decode()

    def part(self) -> _Reader:
        """The bytes of a part whose size comes first; this reader goes on behind it."""
        size = self.number()
        self.place += size
        return _Reader(self.content, self.place - size, self.place)


def _wasm_symbols(content: bytes) -> Symbols:
    imported: list[str] = []
    defined: list[str] = []
    undefined: list[str] = []
    for kind, section in _sections(content):
        if kind == _IMPORTS:
            imported = _imported_functions(section)
        if kind == _CUSTOM and section.name() == "linking":
            for symbol in _linked_symbols(section, imported):
                if symbol.name and not symbol.flags & _LOCAL:
                    (undefined if symbol.flags & _UNDEFINED else defined).append(symbol.name)
    return Symbols(tuple(defined), tuple(undefined))


@dataclass(frozen=True)
class _Symbol:
    """A symbol: sections have no name; index: of a function."""

    kind: int
    flags: int
    name: str
    index: int = 0


def _linked_symbols(section: _Reader, imported: list[str]) -> Iterator[_Symbol]:
    """Symbols of a section "linking" behind its name."""
    section.number()  # version of the conventions
    while section.place < section.end:
        number, part = section.byte(), section.part()
        if number == _SYMBOL_TABLE:
            for _ in range(part.number()):
                yield _symbol(part, imported)


def _symbol(part: _Reader, imported: list[str]) -> _Symbol:
    kind, flags = part.byte(), part.number()
    if kind == _SECTION:
        part.number()
        return _Symbol(kind, flags, "")
    if kind == _DATA:
        name = part.name()
        if not flags & _UNDEFINED:
            for _ in range(3):  # segment, offset and size
                part.number()
        return _Symbol(kind, flags, name)
    index = part.number()
    if flags & _UNDEFINED and not flags & _EXPLICIT_NAME:
        return _Symbol(kind, flags, imported[index] if index < len(imported) else "", index)
    return _Symbol(kind, flags, part.name(), index)


def _imported_functions(section: _Reader) -> list[str]:
    found = []
    for _ in range(section.number()):
        section.name()
        name, kind = section.name(), section.byte()
        if kind == 0:
            section.number()
            found.append(name)
        elif kind == 1:
            section.byte()
            _limits(section)
        elif kind == 2:
            _limits(section)
        elif kind == 3:
            section.byte()
            section.byte()
        else:
            raise InternalError(f"an import of kind {kind} in an object file of WebAssembly")
    return found


def _limits(section: _Reader) -> None:
    has_most = section.number() & 1
    for _ in range(1 + has_most):
        section.number()

"""Symbols of an object file in WebAssembly (tool conventions, "Linking"), beside those in ELF."""

from __future__ import annotations

from qglow.bundles import elf
from qglow.bundles.elf import Symbols
from qglow.core.errors import InternalError

_WASM = b"\0asm"
_CUSTOM = 0
_SYMBOL_TABLE = 8
_DATA, _SECTION = 1, 3
_LOCAL, _UNDEFINED, _EXPLICIT_NAME = 0x02, 0x10, 0x40
_IMPORTS = 2
_CODE_AND_DATA = (10, 11)


def symbols(content: bytes) -> Symbols:
    """Global symbols of an object file. Raises InternalError for an unknown format."""
    return _wasm_symbols(content) if content.startswith(_WASM) else elf.symbols(content)


def code_bytes(content: bytes) -> int:
    """Bytes of code, and of constants in it, of an object file. Raises InternalError as `symbols`."""
    if not content.startswith(_WASM):
        return elf.code_bytes(content)
    module, found = _Reader(content, len(_WASM) + 4, len(content)), 0
    while module.place < module.end:
        kind, section = module.byte(), module.part()
        found += section.end - section.place if kind in _CODE_AND_DATA else 0
    return found


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
    module = _Reader(content, len(_WASM) + 4, len(content))
    imported: list[str] = []
    defined: list[str] = []
    undefined: list[str] = []
    while module.place < module.end:
        kind = module.byte()
        section = module.part()
        if kind == _IMPORTS:
            imported = _imported_functions(section)
        if kind != _CUSTOM or section.name() != "linking":
            continue
        section.number()  # version of the conventions
        while section.place < section.end:
            number, part = section.byte(), section.part()
            if number != _SYMBOL_TABLE:
                continue
            for _ in range(part.number()):
                name, flags = _symbol(part, imported)
                if name and not flags & _LOCAL:
                    (undefined if flags & _UNDEFINED else defined).append(name)
    return Symbols(tuple(defined), tuple(undefined))


def _symbol(part: _Reader, imported: list[str]) -> tuple[str, int]:
    """Name and flags of a symbol; sections have no names."""
    kind, flags = part.byte(), part.number()
    if kind == _SECTION:
        part.number()
        return "", flags
    if kind == _DATA:
        name = part.name()
        if not flags & _UNDEFINED:
            for _ in range(3):  # segment, offset and size
                part.number()
        return name, flags
    index = part.number()
    if flags & _UNDEFINED and not flags & _EXPLICIT_NAME:
        return imported[index] if index < len(imported) else "", flags
    return part.name(), flags


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

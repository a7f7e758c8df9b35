"""Static libraries: the `ar` format with the symbol table of System V and GNU, which linkers read.

No time, owner or mode is stored, so that equal members give equal bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping

from qglow.bundles.objects import symbols
from qglow.core.errors import ArtefactError

_MAGIC = b"!<arch>\n"
_HEADER_BYTES = 60
_END = b"`\n"
_LONGEST = 15
"""Most characters of a name that stands in a member's header, where "/" ends it."""


def write_library(members: Mapping[str, bytes]) -> bytes:
    """Put object files into a library, in their order, with a table of the symbols that they define."""
    long_names = b"".join(f"{name}/\n".encode() for name in members if len(name) > _LONGEST)
    found = {name: symbols(content).defined for name, content in members.items()}
    texts = b"".join(symbol.encode() + b"\0" for defined in found.values() for symbol in defined)
    count = sum(map(len, found.values()))
    table_bytes = 4 + 4 * count + len(texts)
    place = len(_MAGIC) + _size(table_bytes) + (_size(len(long_names)) if long_names else 0)
    places: list[int] = []
    body = []
    for name, content in members.items():
        places += [place] * len(found[name])
        body.append(_member(_written(name, long_names), content))
        place += len(body[-1])
    table = struct.pack(f">{count + 1}I", count, *places) + texts
    names = _member("//", long_names) if long_names else b""
    return b"".join([_MAGIC, _member("/", table), names, *body])


def read_library(content: bytes) -> dict[str, bytes]:
    """The members of a library by name. Raises ArtefactError if it is damaged."""
    try:
        return dict(_members(content))
    except (ValueError, IndexError) as error:
        raise ArtefactError(f"the library is damaged: {error}") from error


def _members(content: bytes) -> Iterator[tuple[str, bytes]]:
    if not content.startswith(_MAGIC):
        raise ValueError("it is no ar archive")
    place, long_names = len(_MAGIC), b""
    while place < len(content):
        header = content[place : place + _HEADER_BYTES]
        name, size = header[:16].decode("ascii").rstrip(), int(header[48:58])
        start = place + _HEADER_BYTES
        data = content[start : start + size]
        if len(data) != size or not header.endswith(_END):
            raise ValueError("a member is cut off")
        place = start + size + size % 2
        if name == "//":
            long_names = data
        elif name != "/":
            yield _read(name, long_names), data


def _written(name: str, long_names: bytes) -> str:
    if len(name) <= _LONGEST:
        return f"{name}/"
    return f"/{long_names.index(f'{name}/'.encode())}"


def _read(name: str, long_names: bytes) -> str:
    if not name.startswith("/"):
        return name.rstrip("/")
    start = int(name[1:])
    return long_names[start : long_names.index(b"/\n", start)].decode()


def _size(data_bytes: int) -> int:
    return _HEADER_BYTES + data_bytes + data_bytes % 2


def _member(name: str, data: bytes) -> bytes:
    header = f"{name:<16}{0:<12}{0:<6}{0:<6}{644:<8}{len(data):<10}".encode()
    return header + _END + data + b"\n" * (len(data) % 2)

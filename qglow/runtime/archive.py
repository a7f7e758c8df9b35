"""A ZIP archive of stored members, read in place from a file that is mapped into memory.

A member is checked against its digest in the manifest when it is first read. Members that are not read
are not even loaded from disk. The pages are shared with every process that has mapped the file; replace
it, as `atomic_writer` does, and do not write into it.
"""

from __future__ import annotations

import json
import mmap
import struct
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from qglow.core.errors import ArtefactError
from qglow.core.files import sha256_hex
from qglow.core.reading import open_regular, parse_json

MANIFEST = "manifest.json"
PAGE = 4096
_EPOCH = (1980, 1, 1, 0, 0, 0)
_HEADER = struct.Struct("<4s22xHH")
_SIGNATURE = b"PK\x03\x04"
_EXTRA = struct.Struct("<HH")
_FILLER = 0xD935
"""The extra field of filling bytes, as Android's zipalign writes it."""


class Archive:
    """The members of one file. `manifest` is its parsed manifest."""

    def __init__(self, path: Path) -> None:
        """Map the file.

        Raises OSError, RuntimeError, BadZipFile, KeyError and ValueError for a file that is no such
        archive.
        """
        self.path = path
        with open_regular(path) as stream, zipfile.ZipFile(stream) as archive:
            self._members = {info.filename: info for info in archive.infolist()}
            self._map = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
            self._bytes = memoryview(self._map)
            self._stored(MANIFEST)
            self.manifest: Mapping[str, Any] = parse_json(archive.read(MANIFEST))
        self._checked: set[str] = set()

    def read(self, name: str) -> memoryview:
        """The bytes of a member, checked against its digest.

        Raises KeyError for one that is missing, ValueError for one that is compressed, encrypted or cut
        off, ArtefactError for one that does not match.
        """
        digest = str(self.manifest["sha256"][name])
        data = self._stored(name)
        if name not in self._checked and sha256_hex(data) != digest:
            raise ArtefactError(
                f"{self.path} is damaged: {name} does not match its digest; quantize the model again"
            )
        self._checked.add(name)
        return data

    @property
    def sizes(self) -> dict[str, int]:
        """Bytes of the members by name."""
        return {name: info.file_size for name, info in self._members.items()}

    def check(self, names: Iterable[str]) -> None:
        """Check the digests of members, keeping none of them in memory. Raises the errors of `read`."""
        for name in names:
            self.read(name)
        self._map.madvise(mmap.MADV_DONTNEED)

    def _stored(self, name: str) -> memoryview:
        info = self._members[name]
        if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 1:
            raise ValueError(f"member {name} is not stored as it should be")
        header = self._bytes[info.header_offset :][: _HEADER.size]
        if len(header) == _HEADER.size:
            signature, name_size, extra_size = _HEADER.unpack(header)
            data = self._bytes[info.header_offset + _HEADER.size + name_size + extra_size :][: info.file_size]
            if signature == _SIGNATURE and len(data) == info.file_size:
                return data
        raise ValueError(f"member {name} lies beyond the end")


def write_archive(
    stream: BinaryIO,
    manifest: Mapping[str, Any],
    members: Mapping[str, bytes | memoryview],
    aligned: Iterable[str],
    known: Mapping[str, str] | None = None,
) -> None:
    """Write the manifest with a digest of every member under "sha256", then the members in order.

    The same members give the same bytes. Those that are `aligned` begin at the edge of a page. `known`
    has digests that were already computed.
    """
    known = known or {}
    digests = {name: known.get(name) or sha256_hex(data) for name, data in sorted(members.items())}
    content = json.dumps({**manifest, "sha256": digests}, indent=1, sort_keys=True).encode()
    wanted = frozenset(aligned)
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
        for name, data in {MANIFEST: content, **members}.items():
            info = zipfile.ZipInfo(name, _EPOCH)
            info.external_attr = 0o644 << 16
            if name in wanted:
                info.extra = _filler(stream.tell() + _HEADER.size + len(name.encode()))
            archive.writestr(info, data)


def _filler(position: int) -> bytes:
    """An extra field at `position` behind which a page begins."""
    size = -(position + _EXTRA.size) % PAGE
    return _EXTRA.pack(_FILLER, size) + bytes(size)

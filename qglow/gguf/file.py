"""A GGUF file of version 2 or 3: metadata and tensors. It is untrusted: every defect is a ModelError.

https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from qglow.core.errors import ModelError, UnsupportedError
from qglow.core.inputs import note_input
from qglow.core.memory import require_more_memory
from qglow.core.reading import read_or_map
from qglow.core.types import Shape
from qglow.gguf.formats import FORMATS, NAMES, Format
from qglow.gguf.wire import Cursor, Entry

VERSIONS = (2, 3)
MAGIC = b"GGUF"
ALIGNMENT = 32
"""Bytes that tensors are aligned to where metadata does not tell."""
_MOST_ALIGNMENT = 1 << 20
_MOST_AXES = 4
_LEAST_ENTRY, _LEAST_TENSOR = 13, 32
"""Least bytes of an entry of metadata and of what is told of a tensor."""


@dataclass(frozen=True)
class GgufTensor:
    """A tensor as it is stored. shape: the axis whose elements lie side by side is the last one."""

    name: str
    shape: Shape
    kind: int
    data: memoryview = field(repr=False)

    @property
    def format(self) -> Format:
        """The form of its elements. Raises UnsupportedError for a format that is not read."""
        if self.kind not in FORMATS:
            known = ", ".join(known.name for known in FORMATS.values())
            raise UnsupportedError(
                f"tensor '{self.name}' is {NAMES.get(self.kind, f'of type {self.kind}')}; read are {known}"
            )
        return FORMATS[self.kind]


@dataclass(frozen=True)
class GgufFile:
    """Metadata and tensors by name."""

    path: Path
    metadata: Mapping[str, Entry]
    tensors: Mapping[str, GgufTensor]


def read_gguf(path: Path) -> GgufFile:
    """Read a GGUF file; data of a large one is mapped.

    Raises ModelError for a file that cannot be read, is none or is damaged.
    """
    note_input(path)
    try:
        require_more_memory(path.stat().st_size, str(path))
        data = read_or_map(path)
    except (OSError, ValueError) as error:
        raise ModelError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error
    cursor = Cursor(data, str(path))
    if bytes(data[: len(MAGIC)]) != MAGIC:
        raise ModelError(f"{path} is no GGUF file")
    cursor.take(len(MAGIC))
    _check_version(path, cursor.number("I"))
    tensors = cursor.count("tensors", _LEAST_TENSOR)
    metadata: dict[str, Entry] = {}
    for _ in range(cursor.count("entries of metadata", _LEAST_ENTRY)):
        key = cursor.text()
        if key in metadata:
            raise cursor.fault(f"'{key}' is twice in its metadata")
        metadata[key] = cursor.entry()
    told = [_Told.read(cursor) for _ in range(tensors)]
    alignment = _alignment(cursor, metadata)
    begin = -(-cursor.place // alignment) * alignment
    found: dict[str, GgufTensor] = {}
    for one in told:
        if one.name in found:
            raise cursor.fault(f"two tensors are called '{one.name}'")
        found[one.name] = one.tensor(cursor, data, begin, alignment)
    return GgufFile(path, metadata, found)


def _check_version(path: Path, version: int) -> None:
    if version in VERSIONS:
        return
    swapped = int.from_bytes(version.to_bytes(4, "little"), "big")
    if swapped in VERSIONS:
        raise UnsupportedError(f"{path} has its numbers in big-endian order; little-endian files are read")
    raise UnsupportedError(f"{path} is of version {version} of GGUF; versions 2 and 3 are read")


def _alignment(cursor: Cursor, metadata: Mapping[str, Entry]) -> int:
    alignment = metadata.get("general.alignment", ALIGNMENT)
    if type(alignment) is not int or not 0 < alignment <= _MOST_ALIGNMENT or alignment % 8:
        raise cursor.fault(f"its alignment is {alignment!r:.40}, no multiple of 8")
    return alignment


@dataclass(frozen=True)
class _Told:
    """Place and form of a tensor, as the file tells them.

    extents: those that lie closest come first. offset: within the data.
    """

    name: str
    extents: Shape
    kind: int
    offset: int

    @classmethod
    def read(cls, cursor: Cursor) -> _Told:
        name, axes = cursor.text(), cursor.number("I")
        if axes > _MOST_AXES:
            raise cursor.fault(f"tensor '{name}' has {axes} axes, more than {_MOST_AXES}")
        extents = tuple(cursor.number("Q") for _ in range(axes))
        return cls(name, extents, cursor.number("I"), cursor.number("Q"))

    def tensor(self, cursor: Cursor, data: memoryview, begin: int, alignment: int) -> GgufTensor:
        """The tensor with its bytes; none where its format is not read."""
        shape = self.extents[::-1]
        if self.kind not in FORMATS:
            return GgufTensor(self.name, shape, self.kind, memoryview(b""))
        form = FORMATS[self.kind]
        row = self.extents[0] if self.extents else 1
        if self.offset % alignment:
            raise cursor.fault(f"tensor '{self.name}' begins at {self.offset}, no multiple of {alignment}")
        if row % form.block:
            raise cursor.fault(f"rows of {row} of tensor '{self.name}' are no blocks of {form.block}")
        size = math.prod(shape) // form.block * form.size
        if begin + self.offset + size > len(data):
            raise cursor.fault(f"tensor '{self.name}' {list(shape)} of {form.name} ends beyond its end")
        start = begin + self.offset
        return GgufTensor(self.name, shape, self.kind, data[start : start + size])

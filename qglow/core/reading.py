"""Files that are not trusted: whatever is wrong with one is an OSError or a ValueError."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import math
import mmap
import os
import stat
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, BinaryIO, cast

import numpy as np

from qglow.core.errors import MemoryLimitError
from qglow.core.memory import size_text
from qglow.core.types import Array, Shape

MALFORMED = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""What a document raises where it has not the form that its reader takes, an infinite number included."""

MAPPED = 256 << 20
"""Bytes above which a file of weights is mapped, not read: who cuts short a mapped file ends the process."""

_ODD = (
    *(ArithmeticError, AssertionError, AttributeError, EOFError, LookupError, NotImplementedError),
    *(RecursionError, RuntimeError, SyntaxError, TypeError),
    *(struct.error, tokenize.TokenError, zipfile.BadZipFile, zlib.error),
)
"""What numpy and zipfile raise besides for archives and headers that are damaged."""

_HEADERS: dict[tuple[int, int], Callable[[Any], tuple[Shape, bool, np.dtype[Any]]]] = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file to read. Raises OSError for anything else: a FIFO would wait for ever."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except ValueError as error:  # a path with NUL
        raise OSError(errno.EINVAL, str(error), str(path)) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is no regular file", str(path))
    return cast(BinaryIO, os.fdopen(descriptor, "rb"))


def read_bytes(path: Path) -> bytes:
    """The content of a regular file. Raises OSError."""
    with open_regular(path) as stream:
        return stream.read()


def size_of(stream: BinaryIO) -> int:
    """Bytes of an open file. Raises OSError."""
    return os.fstat(stream.fileno()).st_size


def map_part(stream: BinaryIO, offset: int, size: int) -> memoryview:
    """So many bytes of a file, mapped to be read.

    Raises OSError, ValueError beyond the end, and MemoryLimitError where the process gets no more addresses.
    """
    if not size:
        return memoryview(b"")
    before = offset % mmap.ALLOCATIONGRANULARITY
    try:
        mapped = mmap.mmap(stream.fileno(), before + size, access=mmap.ACCESS_READ, offset=offset - before)
    except OSError as error:
        if error.errno != errno.ENOMEM:
            raise
        raise MemoryLimitError(
            f"{size_text(size)} of {stream.name} cannot be mapped: this process gets no more addresses"
        ) from error
    return memoryview(mapped)[before:]


def read_or_map(path: Path) -> memoryview:
    """The content of a regular file, mapped where it has more than MAPPED bytes. Raises OSError."""
    with open_regular(path) as stream:
        size = size_of(stream)
        return map_part(stream, 0, size) if size > MAPPED else memoryview(stream.read())


def read_text(path: Path) -> str:
    """The UTF-8 text of a regular file. Raises OSError and ValueError."""
    with io.TextIOWrapper(open_regular(path), encoding="utf-8") as stream:
        return stream.read()


def parse_json(text: str | bytes) -> Any:
    """The document of a JSON text. Raises ValueError, also for keys that occur twice and absurd depth."""
    try:
        return json.loads(text, object_pairs_hook=_unique)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


@contextlib.contextmanager
def damaged_arrays() -> Iterator[None]:
    """Errors of the body about archives and headers of arrays become ValueError, one line."""
    try:
        yield
    except _ODD as error:
        raise ValueError(f"it is damaged: {' '.join(str(error).split())[:120]}") from error


def load_array(path: Path, *, mapped: bool = False) -> Array:
    """The array of an .npy file, read or mapped. Raises OSError and ValueError."""
    with open_regular(path) as stream, damaged_arrays():
        if stream.read(len(np.lib.format.MAGIC_PREFIX)) == np.lib.format.MAGIC_PREFIX:
            stream.seek(0)
            read_header(stream, os.fstat(stream.fileno()).st_size)
        array = np.load(path, mmap_mode="r" if mapped else None, allow_pickle=False)
    if not isinstance(array, np.ndarray):
        raise ValueError("it holds several arrays; name it .npz")
    return array


def read_header(stream: IO[bytes], size: int) -> tuple[Shape, bool, np.dtype[Any]]:
    """Shape, whether columns come first, and type of an .npy file of `size` bytes, checked against them.

    Call it within `damaged_arrays`. Raises ValueError for another format, for elements that are no numbers
    and for more elements than the file has.
    """
    version = np.lib.format.read_magic(stream)
    if version not in _HEADERS:
        raise ValueError(f"it has format version {version}; 1.0 and 2.0 are read")
    shape, by_columns, dtype = _HEADERS[version](stream)
    if dtype.hasobject or dtype.names or not all(type(extent) is int and extent >= 0 for extent in shape):
        raise ValueError("it is no array of numbers")
    if math.prod(shape) * dtype.itemsize > size:
        raise ValueError(f"{list(shape)} {dtype} is more than the file has; it is damaged")
    return shape, by_columns, dtype


def load_arrays(path: Path) -> dict[str, Array]:
    """The arrays of an .npz file by name, whole. Raises OSError and ValueError."""
    with open_regular(path) as stream, damaged_arrays(), np.load(stream, allow_pickle=False) as archive:
        return {name: np.asarray(archive[name]) for name in archive.files}


def _unique(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(name for name in names if names.count(name) > 1)!r} twice")
    return found

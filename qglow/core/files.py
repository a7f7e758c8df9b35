"""Writing files so that a killed process never leaves half of one under its final name."""

from __future__ import annotations

import hashlib
import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, cast

from qglow.core.errors import InputFileError

_UMASK = threading.Lock()


@contextmanager
def atomic_writer(path: Path) -> Iterator[BinaryIO]:
    """Open a temporary file beside `path`; on success it is flushed and renamed to `path`.

    On any error the temporary file is removed and `path` is untouched.
    Raises InputFileError where the folder cannot be written or the disk is full.
    """
    folder = path.parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=folder)
    except OSError as error:
        raise InputFileError(f"cannot write {path}: {error.strerror or error}") from error
    try:
        with os.fdopen(descriptor, "wb") as stream:
            yield cast(BinaryIO, stream)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(name, 0o666 & ~_umask())
        os.replace(name, path)
    except OSError as error:
        _remove(name)
        raise InputFileError(f"cannot write {path}: {error.strerror or error}") from error
    except BaseException:
        _remove(name)
        raise


def write_atomically(path: Path, data: bytes | str) -> None:
    """Write `data` (text as UTF-8) to `path`, whole or not at all."""
    with atomic_writer(path) as stream:
        stream.write(data.encode("utf-8") if isinstance(data, str) else data)


def sha256_hex(data: bytes | memoryview) -> str:
    """SHA-256 of `data` as 64 hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def file_sha256(path: Path) -> str:
    """SHA-256 of a file's content, which is never in memory as a whole. Raises InputFileError."""
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise InputFileError(f"cannot read {path}: {error.strerror or error}") from error


def _umask() -> int:
    """The process's mask. It can only be read by setting it, so one thread at a time."""
    with _UMASK:
        mask = os.umask(0)
        os.umask(mask)
    return mask


def _remove(name: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(name)

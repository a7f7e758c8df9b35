"""Writing files so that a killed process never leaves half of one under its final name."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, cast

from qglow.core.errors import InputFileError
from qglow.core.inputs import check_no_input
from qglow.core.temporary import remove_stale, temporary_file

_UMASK = threading.Lock()


@contextmanager
def atomic_writer(path: Path, flush: bool = True) -> Iterator[BinaryIO]:
    """Open a temporary file beside `path`; on success it is flushed and renamed to `path`.

    On any error the temporary file is removed and `path` is untouched, and those of killed processes are
    removed before. Without `flush` nobody waits for the disk or looks for these: for files in large folders
    whose damage is found when they are read.
    Raises InputFileError if the folder cannot be written, the disk is full, or `path` is there and no
    regular file; UsageError if it is an input of the command at hand.
    """
    folder = path.parent
    if path.exists() and not path.is_file():
        raise InputFileError(f"cannot write {path}: it is no regular file")
    check_no_input(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if flush:
            remove_stale(path)
        descriptor, name = temporary_file(path)
    except OSError as error:
        raise InputFileError(f"cannot write {path}: {error.strerror or error}") from error
    try:
        with os.fdopen(descriptor, "wb") as stream:
            yield cast(BinaryIO, stream)
            stream.flush()
            if flush:
                os.fsync(stream.fileno())
        os.chmod(name, 0o666 & ~_umask())
        os.replace(name, path)
    except OSError as error:
        _remove(name)
        raise InputFileError(f"cannot write {path}: {error.strerror or error}") from error
    except BaseException:
        _remove(name)
        raise


def write_atomically(path: Path, data: bytes | str, flush: bool = True) -> None:
    """Write `data` (text as UTF-8) to `path`, whole or not at all. `flush` as `atomic_writer` has it.

    Halves of surrogate pairs, which UTF-8 does not have, become escapes as JSON and YAML write them.
    """
    with atomic_writer(path, flush) as stream:
        stream.write(data.encode("utf-8", "backslashreplace") if isinstance(data, str) else data)


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


def _remove(name: Path) -> None:
    with suppress(FileNotFoundError):
        os.unlink(name)

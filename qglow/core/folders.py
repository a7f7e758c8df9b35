"""Folders that appear whole: what is written goes into a temporary one first."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from qglow.core.errors import InputFileError
from qglow.core.temporary import remove_stale, temporary_folder


@contextlib.contextmanager
def staging_folder(target: Path) -> Iterator[Path]:
    """A temporary folder beside `target`, removed at the end whatever happens, by the next one if killed.

    Raises InputFileError if it cannot be made.
    """
    target = target.resolve()
    if target.exists() and not target.is_dir():
        raise InputFileError(f"cannot write the directory {target}: it is a file")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        remove_stale(target)
        lock, folder = temporary_folder(target)
    except OSError as error:
        raise InputFileError(f"cannot write beside {target}: {error.strerror or error}") from error
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


@contextlib.contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """A folder to write into, which becomes `target` when the body ends without an error.

    Raises InputFileError if `target` is there and not empty, or if it cannot be written.
    """
    if target.is_dir() and any(target.iterdir()):
        raise InputFileError(f"cannot write the directory {target}: it is not empty; name another")
    with staging_folder(target) as folder:
        made = folder / "made"
        made.mkdir()  # with the permissions of new folders, which a temporary one does not have
        yield made
        try:
            os.replace(made, target)
        except OSError as error:
            raise InputFileError(f"cannot write to {target}: {error.strerror or error}") from error

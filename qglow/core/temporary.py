"""Temporary files and folders beside what they will become, and those that killed processes left there.

Whoever makes one holds a lock on it, which ends with the process: what is not locked has no owner any more.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import stat
import tempfile
from pathlib import Path

_SUFFIX = ".tmp"
_RANDOM = r"[a-z0-9_]{8}"


def temporary_file(target: Path) -> tuple[int, Path]:
    """A new file beside `target`, locked: its descriptor, open to write, and its path. Raises OSError."""
    while True:
        descriptor, name = tempfile.mkstemp(prefix=_prefix(target), suffix=_SUFFIX, dir=target.parent)
        if _locked(descriptor, Path(name)):
            return descriptor, Path(name)
        os.close(descriptor)


def temporary_folder(target: Path) -> tuple[int, Path]:
    """A new folder beside `target`, locked: its descriptor, to be closed in the end, and its path.

    Raises OSError.
    """
    while True:
        path = Path(tempfile.mkdtemp(prefix=_prefix(target), suffix=_SUFFIX, dir=target.parent))
        with contextlib.suppress(FileNotFoundError):
            descriptor = os.open(path, os.O_RDONLY)
            if _locked(descriptor, path):
                return descriptor, path
            os.close(descriptor)


def remove_stale(target: Path) -> None:
    """Remove what killed processes of this user left beside `target` on their way to it."""
    pattern = re.compile(re.escape(_prefix(target)) + _RANDOM + re.escape(_SUFFIX))
    with contextlib.suppress(OSError):
        for name in os.listdir(target.parent):
            if pattern.fullmatch(name):
                _remove_if_stale(target.parent / name)


def _prefix(target: Path) -> str:
    return f".{target.name}."


def _locked(descriptor: int, path: Path) -> bool:
    """Lock what is new; False if somebody took it for stale before. File systems without locks do without."""
    with contextlib.suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return path.exists()


def _remove_if_stale(path: Path) -> None:
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            found = os.fstat(descriptor)
            if found.st_uid != os.geteuid():
                return
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # refused while the owner lives
            if stat.S_ISDIR(found.st_mode):
                shutil.rmtree(path)
            elif stat.S_ISREG(found.st_mode):
                path.unlink()
        finally:
            os.close(descriptor)

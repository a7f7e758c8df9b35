"""Files that the work at hand reads: nothing that it writes may take their place."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path

from qglow.core.errors import UsageError

_Identity = tuple[int, int]
_READ: ContextVar[dict[_Identity, Path] | None] = ContextVar("files that are read", default=None)


@contextlib.contextmanager
def guarding_inputs() -> Iterator[None]:
    """Remember in the body what `note_input` is told, and refuse outputs that would replace it."""
    token = _READ.set({})
    try:
        yield
    finally:
        _READ.reset(token)


def note_input(path: Path) -> None:
    """Say that a file is read; a folder or a file that is missing is nothing to guard."""
    known, identity = _READ.get(), _identity(path)
    if known is not None and identity is not None and path.is_file():
        known[identity] = path


def check_no_input(path: Path) -> None:
    """Raise UsageError if `path` is, by whatever name, a file that `note_input` was told of."""
    known = _READ.get()
    identity = _identity(path) if known else None
    if known and identity in known:
        raise UsageError(
            f"{path} is read as {known[identity]}: writing it would destroy it; name another file"
        )


def _identity(path: Path) -> _Identity | None:
    """Device and inode of what a path leads to."""
    try:
        found = path.stat()
    except (OSError, ValueError):
        return None
    return found.st_dev, found.st_ino

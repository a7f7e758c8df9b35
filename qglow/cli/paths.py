"""Files and folders that a command line names: outputs that would replace an input are refused at once."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from qglow.core.errors import UsageError
from qglow.core.inputs import guarding_inputs, note_input
from qglow.core.options import Declared, Writes


class _Named(NamedTuple):
    """A path that an option names."""

    item: Declared
    path: Path

    @property
    def writes(self) -> Writes:
        """Kind of what is written there."""
        return self.item.option.writes

    @property
    def is_read(self) -> bool:
        """Whether the command reads it."""
        return self.writes in (Writes.NOTHING, Writes.UPDATE, Writes.STATE)


@contextlib.contextmanager
def checked_paths(values: Iterable[tuple[Declared, Any]]) -> Iterator[None]:
    """Check the paths among the values of a command's options, and guard its inputs in the body.

    Raises UsageError for an input that is neither a file nor a folder, and for an output that is an input,
    another output, or no place for what is written.
    """
    named = [_Named(item, path) for item, value in values for path in _paths(item, value)]
    inputs = [each for each in named if each.is_read]
    outputs = [each for each in named if each.writes is not Writes.NOTHING]
    for each in inputs:
        _check_input(each)
    for number, each in enumerate(outputs):
        _check_place(each)
        for other in (*inputs, *outputs[:number]):
            if other.item is not each.item:
                _check_apart(each, other)
    with guarding_inputs():
        for each in inputs:
            if each.writes is Writes.NOTHING:
                note_input(each.path)
        yield


def check_word(word: str) -> None:
    """Raise UsageError for a word that no file of ours can hold: bytes that are no text, and NUL."""
    if "\0" in word or any("\ud800" <= character <= "\udfff" for character in word):
        raise UsageError(f"{word!r} is no UTF-8 text; give the file another name")


def _paths(item: Declared, value: Any) -> Iterator[Path]:
    if isinstance(value, Path):
        yield value
    elif item.option.reads and isinstance(value, str):
        whole = Path(value)
        renamed = re.fullmatch(r"(.+)\[[^\[\]]*\]", value)  # FILE[input=key]
        yield Path(renamed[1]) if renamed and not whole.exists() else whole
    elif isinstance(value, Sequence) and not isinstance(value, str):
        yield from (path for path in value if isinstance(path, Path))


def _check_input(named: _Named) -> None:
    path = named.path
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise _refused(named, "is neither a file nor a folder; name a file")


def _check_place(named: _Named) -> None:
    path, writes = named.path, named.writes
    if not path.exists():
        return
    if path.is_dir():
        if not writes.takes_folder:
            raise _refused(named, "is a folder; name a file")
    elif not path.is_file():
        raise _refused(named, "is neither a file nor a folder; name a new file")
    elif not writes.takes_file:
        raise _refused(named, "is a file; name a folder")


def _check_apart(output: _Named, other: _Named) -> None:
    what = _spelled(other.item)
    if _same(output.path, other.path):
        if output.writes is not Writes.REPORTS or not other.path.is_dir():
            raise _refused(output, f"is {what} too; name another place")
    elif (
        other.is_read and other.path.is_dir() and output.path.is_file() and _is_below(output.path, other.path)
    ):
        raise _refused(output, f"is a file of {what}, {other.path}; name another place")


def _same(path: Path, other: Path) -> bool:
    """Whether two paths lead to one file or folder, or will when it is made."""
    if path.exists() and other.exists():
        return path.samefile(other)
    return path.resolve() == other.resolve()


def _is_below(path: Path, folder: Path) -> bool:
    return path.resolve().is_relative_to(folder.resolve())


def _refused(named: _Named, problem: str) -> UsageError:
    return UsageError(f"{named.item.name} {named.path}: it {problem}", field=named.item.name)


def _spelled(item: Declared) -> str:
    """An option as people write it."""
    return item.flags[0] if item.flags else str(item.option.metavar).strip("[].")

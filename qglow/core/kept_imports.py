"""Content that imports of one model file in several sizes have in common: read, decoded and packed once."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from qglow.core.model_place import ModelPlace
from qglow.core.types import Array

_Parsed = TypeVar("_Parsed")
Made = TypeVar("Made", Array, Array | None)
"""An array, or an array or None."""
_State = tuple[int, ...]


class KeptImports:
    """The content of a model file, and arrays that depend on nothing else, for one import after the other.

    Arrays are not to be written to: several graphs have them. They stay until `forget`, or until the file is
    another one. One thread may use it at a time.
    """

    def __init__(self) -> None:
        self._file: tuple[ModelPlace, _State, Any] | None = None
        self._arrays: dict[Hashable, Array] = {}
        self._kept: set[int] = set()

    def parsed(self, place: ModelPlace, parse: Callable[[ModelPlace], _Parsed]) -> _Parsed:
        """The result of `parse` for a file or for bytes, which has to be always the same function.

        A file of another size, time or identity than before is read anew, and nothing of it is known.
        """
        state = _state(place)
        if self._file is None or self._file[:2] != (place, state):
            self.forget()
            self._file = (place, state, parse(place))
        parsed: _Parsed = self._file[2]
        return parsed

    def initializer(self, name: str, decode: Callable[[], Array]) -> Array:
        """The array of this name in the file, which `decode` makes where it is new."""
        return self._found(name, decode)

    def derived(self, how: Hashable, sources: Sequence[Array], make: Callable[[], Made]) -> Made:
        """The result of a computation from arrays in the stated way; kept where all of them are kept."""
        if not sources or not all(id(array) in self._kept for array in sources):
            return make()
        return self._found((how, *map(id, sources)), make)

    @property
    def held(self) -> int:
        """Bytes of all arrays."""
        return sum(array.nbytes for array in self._arrays.values())

    def forget(self) -> None:
        """Let go of the file and of all arrays; whoever has one may go on with it."""
        self._file = None
        self._arrays.clear()
        self._kept.clear()

    def _found(self, key: Hashable, make: Callable[[], Made]) -> Made:
        known = self._arrays.get(key)
        if known is not None:
            return known
        array = make()
        if array is not None:
            array.flags.writeable = False
            self._arrays[key] = array
            self._kept.add(id(array))
        return array


def _state(place: ModelPlace) -> _State:
    """Numbers that tell whether a file is still the same; none for bytes, and for what cannot be read."""
    if isinstance(place, Path):
        with suppress(OSError):
            found = place.stat()
            return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
    return ()

"""Bytes of a GGUF file, read in order; sizes in them are compared with the file before they are used.

https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import struct

import numpy as np

from qglow.core.errors import ModelError
from qglow.core.types import Array

Entry = bool | int | float | str | Array | tuple[str, ...]
"""A value of metadata: a number, a text, an array of numbers, or texts."""

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
"""Codes of numbers in metadata, as `struct` calls them."""
_TEXT, _ARRAY = 8, 9
_TEXT_BYTES = 8
"""Least bytes of a text: its length."""


class Cursor:
    """A place in the bytes of a file that is called `name` in errors. Everything raises ModelError."""

    def __init__(self, data: memoryview, name: str) -> None:
        self._data = data
        self._name = name
        self.place = 0

    def fault(self, what: str) -> ModelError:
        """An error about the file."""
        return ModelError(f"{self._name} is damaged: {what}; copy it again if it was cut short")

    def take(self, size: int) -> memoryview:
        """The next bytes."""
        if size > len(self._data) - self.place:
            raise self.fault(f"it ends at byte {len(self._data)}, within what begins at {self.place}")
        begin = self.place
        self.place += size
        return self._data[begin : self.place]

    def number(self, code: str) -> int:
        """The next integer, of a code of `struct`."""
        (value,) = struct.unpack(f"<{code}", self.take(struct.calcsize(code)))
        return int(value)

    def count(self, what: str, least: int) -> int:
        """The next number of things, each of which takes at least so many bytes."""
        count = self.number("Q")
        if count * least > len(self._data) - self.place:
            raise self.fault(f"it says that it has {count} {what}, which are more than its bytes")
        return count

    def text(self) -> str:
        """The next text; bytes that are no UTF-8 become replacement characters."""
        return str(self.take(self.count("bytes of a text", 1)), "utf-8", "replace")

    def entry(self) -> Entry:
        """The next value of metadata, behind the number of its type."""
        kind = self.number("I")
        if kind == _TEXT:
            return self.text()
        if kind == _ARRAY:
            return self._array()
        (value,) = struct.unpack(f"<{self._code(kind)}", self.take(struct.calcsize(self._code(kind))))
        return value  # type: ignore[no-any-return]

    def _array(self) -> Array | tuple[str, ...]:
        kind = self.number("I")
        if kind == _TEXT:
            return tuple(self.text() for _ in range(self.count("texts", _TEXT_BYTES)))
        code = self._code(kind)
        size = struct.calcsize(code)
        count = self.count("numbers", size)
        return np.frombuffer(self.take(count * size), np.dtype(code).newbyteorder("<"))

    def _code(self, kind: int) -> str:
        if kind not in _SCALARS:
            what = "an array of arrays" if kind == _ARRAY else f"a value of type {kind}"
            raise self.fault(f"{what} before byte {self.place} is none of its metadata")
        return _SCALARS[kind]

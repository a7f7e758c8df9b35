"""The constants of a program as one block of bytes."""

from __future__ import annotations

import numpy as np

from qglow.codegen.memory import ALIGNMENT, aligned_bytes
from qglow.core.files import sha256_hex
from qglow.core.types import Array

READ_SLACK = 64
"""Kernels may read this many bytes past the end of a block of memory."""


class WeightBlob:
    """Collects arrays at 64-byte boundaries.

    shared: whether equal contents are stored once; else offsets depend on the sizes of arrays alone.
    """

    def __init__(self, shared: bool = True) -> None:
        self._shared = shared
        self._offsets: dict[str, int] = {}
        self._parts: list[Array] = []
        self._size = 0

    def add(self, array: Array) -> int:
        """Add an array unless its contents are stored already; return their offset in bytes."""
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        key = sha256_hex(data.data) if self._shared else str(len(self._parts))
        if key not in self._offsets:
            self._offsets[key] = self._size
            self._parts.append(data)
            self._size += data.size + -data.size % ALIGNMENT
        return self._offsets[key]

    @property
    def size(self) -> int:
        """Bytes so far."""
        return self._size

    def contents(self) -> list[str]:
        """A digest of every array, in order."""
        return list(self._offsets) if self._shared else [sha256_hex(part.data) for part in self._parts]

    def finish(self) -> Array:
        """All bytes (uint8) at an aligned address, with room behind the last for reads past its end."""
        block = aligned_bytes(self._size + READ_SLACK)
        for offset, data in zip(self._offsets.values(), self._parts, strict=True):
            block[offset : offset + data.size] = data
        return block

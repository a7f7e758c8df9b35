"""The constants of a program as one block of bytes."""

from __future__ import annotations

import numpy as np

from qglow.core.files import sha256_hex
from qglow.core.types import Array

ALIGNMENT = 64
READ_SLACK = 64
"""Kernels may read this many bytes past the end of a block of memory."""


class WeightBlob:
    """Collects arrays at 64-byte boundaries; equal contents are stored once."""

    def __init__(self) -> None:
        self._offsets: dict[str, int] = {}
        self._parts: list[bytes] = []
        self._size = 0

    def add(self, array: Array) -> int:
        """Offset in bytes at which the array's contents are."""
        data = np.ascontiguousarray(array).tobytes()
        key = sha256_hex(data)
        if key not in self._offsets:
            self._offsets[key] = self._size
            padded = data + bytes(-len(data) % ALIGNMENT)
            self._parts.append(padded)
            self._size += len(padded)
        return self._offsets[key]

    def finish(self) -> Array:
        """All bytes (uint8), with room behind the last for reads past its end."""
        data = b"".join([*self._parts, bytes(READ_SLACK)])
        return np.frombuffer(data, np.uint8)

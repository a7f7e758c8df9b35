"""Aligned memory for arenas, weights and placeholders."""

from __future__ import annotations

import numpy as np

from qglow.core.types import Array, TensorType

ALIGNMENT = 64


def aligned_bytes(size: int) -> Array:
    """`size` zero bytes whose first address is a multiple of 64."""
    raw = np.zeros(size + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + size]


def aligned_copy(data: bytes | memoryview | Array) -> Array:
    """The bytes of `data` at an aligned address."""
    source = (
        np.frombuffer(data, np.uint8) if not isinstance(data, np.ndarray) else data.reshape(-1).view(np.uint8)
    )
    target = aligned_bytes(source.size)
    target[:] = source
    return target


def aligned_tensor(kind: TensorType) -> Array:
    """A zeroed dense array of this type at an aligned address."""
    return aligned_bytes(kind.byte_size).view(kind.element.dtype).reshape(kind.shape)

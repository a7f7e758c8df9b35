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


def aligned(data: Array) -> Array:
    """Return the bytes (uint8) themselves if their address is aligned, else an aligned copy."""
    if data.ctypes.data % ALIGNMENT == 0:
        return data
    target = aligned_bytes(data.size)
    target[:] = data
    return target


def aligned_tensor(kind: TensorType) -> Array:
    """A zeroed dense array of this type at an aligned address."""
    return aligned_bytes(kind.byte_size).view(kind.element.dtype).reshape(kind.shape)

"""Constants of float32 that kernels store in 16 bits, because these hold every number of them.

Widening is exact, so that no bit of a result changes. A product of few rows fetches half of the bytes, and
memory holds half of them. Models that were stored in 16 bits, then widened, have such constants.
"""

from __future__ import annotations

from weakref import ref

from qglow.core.types import Array
from qglow.instructions.program import Buffer
from qglow.kernels.emit.target import VectorTarget
from qglow.numerics.half import exact_element

LEAST_BYTES = 1 << 16
"""Bytes of float32 below which a constant stays in the nearest caches, where fewer bytes gain nothing."""

_KNOWN: dict[int, tuple[ref[Array], str]] = {}
"""What was found for arrays that still are: kernels are chosen several times, for programs of many sizes."""


def exact_half(buffer: Buffer, target: VectorTarget) -> str:
    """Name of the type of 16 bits to store a constant of float32 in, as its element type is called.

    "" where none holds all of it, where it is small, and on targets that widen float16 by many instructions.
    """
    data = buffer.data
    if data is None or not buffer.type.is_float or not target.converts_half:
        return ""
    return _found(data) if data.nbytes >= LEAST_BYTES else ""


def _found(data: Array) -> str:
    key = id(data)
    known = _KNOWN.get(key)
    if known is None or known[0]() is not data:
        element = exact_element(data)
        known = ref(data, lambda _: _KNOWN.pop(key, None)), "" if element is None else element.value
        _KNOWN[key] = known
    return known[1]

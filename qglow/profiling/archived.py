"""Members of an .npz file of which only the rows that are asked for are unpacked."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Callable
from typing import IO, Any

import numpy as np

from qglow.core.memory import require_memory
from qglow.core.reading import damaged_arrays, read_header
from qglow.core.types import Array, Shape


class FirstRows:
    """The first rows of an array. shape: of the whole array, which is not held."""

    def __init__(self, held: Array, shape: Shape) -> None:
        self.held, self.shape = held, shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the elements."""
        return self.held.dtype

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def is_whole(self) -> bool:
        """Whether all rows are held."""
        return self.held.shape == self.shape

    def __getitem__(self, index: int) -> Array:
        row: Array = self.held[index]
        return row


def read_rows(archive: zipfile.ZipFile, name: str, needed: Callable[[int], int]) -> FirstRows:
    """The first `needed(N)` of the N rows of a member.

    Raises KeyError for a member that is not there, OSError and ValueError for a damaged one,
    MemoryLimitError where the rows do not fit.
    """
    info = archive.getinfo(f"{name}.npy")
    with damaged_arrays(), archive.open(info) as stream:
        try:
            shape, by_columns, dtype = read_header(stream, info.file_size)
        except ValueError as error:
            raise ValueError(f"array {name!r}: {error}") from error
        rows = shape if by_columns or not shape else (min(needed(shape[0]), shape[0]), *shape[1:])
        size = math.prod(rows) * dtype.itemsize
        require_memory(size, f"array {name!r} of {archive.filename}")
        held = np.frombuffer(_read(stream, size, name), dtype).reshape(rows, order="F" if by_columns else "C")
    return FirstRows(held, shape)


def _read(stream: IO[bytes], size: int, name: str) -> bytes:
    data = stream.read(size)
    if len(data) != size:
        raise ValueError(f"array {name!r} is cut short")
    return data

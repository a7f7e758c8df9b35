"""Named arrays in one .npz file. Equal arrays give equal bytes: unlike numpy.savez, no time is stored."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from typing import BinaryIO

import numpy as np

from qglow.core.reading import damaged_arrays
from qglow.core.types import Array, ElementType

_NO_TIME = (1980, 1, 1, 0, 0, 0)
_LARGEST_PLAIN = 2**31 - 2**16
"""Bytes of an array above which its archive member needs the larger header of ZIP64."""


def pack_arrays(stream: BinaryIO, arrays: Mapping[str, Array]) -> None:
    """Write arrays by name as an .npz file, which numpy.load reads. Their data is not copied."""
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
        for name in sorted(arrays):
            array = np.asarray(arrays[name], order="C")
            info, large = zipfile.ZipInfo(f"{name}.npy", _NO_TIME), array.nbytes > _LARGEST_PLAIN
            with archive.open(info, "w", force_zip64=large) as member:
                np.lib.format.write_array_header_1_0(member, np.lib.format.header_data_from_array_1_0(array))
                member.write(array.reshape(-1).view(np.uint8).data)


def unpack_arrays(data: bytes) -> dict[str, Array]:
    """Read what `pack_arrays` wrote. Raises ValueError for anything else."""
    with damaged_arrays(), np.load(io.BytesIO(data), allow_pickle=False) as archive:
        return {name: _typed(archive[name]) for name in archive.files}


def _typed(array: Array) -> Array:
    """The array; numpy reads bfloat16, which it has no name for, as nameless elements of two bytes."""
    bfloat16 = ElementType.BFLOAT16.dtype
    return array.view(bfloat16) if array.dtype == np.dtype("V2") else array

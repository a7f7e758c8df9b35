"""Named arrays in one .npz file, the same bytes for the same content: numpy.savez notes the time."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping

import numpy as np

from qglow.core.types import Array

_NO_TIME = (1980, 1, 1, 0, 0, 0)


def pack_arrays(arrays: Mapping[str, Array]) -> bytes:
    """Arrays by name as the bytes of an .npz file, which numpy.load reads."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
        for name in sorted(arrays):
            member = io.BytesIO()
            array = np.asarray(arrays[name], order="C")
            np.lib.format.write_array(member, array, version=(1, 0), allow_pickle=False)
            archive.writestr(zipfile.ZipInfo(f"{name}.npy", _NO_TIME), member.getvalue())
    return stream.getvalue()


def unpack_arrays(data: bytes) -> dict[str, Array]:
    """What `pack_arrays` packed. Raises ValueError or zipfile.BadZipFile for anything else."""
    with np.load(io.BytesIO(data), allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}

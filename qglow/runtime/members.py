"""Members of artefacts: opened, read, and refused in one way."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from qglow.core.errors import ArtefactError, TextError, UsageError, VerificationError
from qglow.core.files import sha256_hex
from qglow.core.reading import MALFORMED, damaged_arrays
from qglow.core.types import Array
from qglow.runtime.archive import Archive


def opened(path: Path, formats: Sequence[int]) -> Archive:
    """Map a file of one of these formats. Raises ArtefactError, and what `refusing` turns into one."""
    try:
        archive = Archive(path)
    except RuntimeError as error:  # from zipfile: an archive that is encrypted, or of a later version
        raise ArtefactError(f"{path} is not a readable artefact: {error}") from error
    if archive.manifest["format"] not in formats:
        known = ", ".join(map(str, formats))
        raise ArtefactError(f"{path} has format {archive.manifest['format']}; this qglow reads {known}")
    return archive


@contextmanager
def refusing(path: Path) -> Iterator[None]:
    """Turn errors in the body into an ArtefactError that names the file."""
    try:
        yield
    except FileNotFoundError as error:
        raise ArtefactError(f"{path}: no such file") from error
    except (OSError, zipfile.BadZipFile, EOFError) as error:
        raise ArtefactError(f"{path} is not a readable artefact: {_instead(path) or error}") from error
    except (*MALFORMED, TextError, UsageError, VerificationError) as error:
        raise ArtefactError(f"{path} is damaged: {error}; quantize the model again") from error


def _instead(path: Path) -> str:
    """Say what opens a file that people take for an artefact; "" for any other one."""
    if path.suffix.lower() == ".onnx":
        return "it is an ONNX model; open it with `qglow.load_model`, whose `compile` gives a program"
    if path.is_dir():
        return (
            "it is a directory; open a quantized model with `qglow.load_quantized`, or the model.qglow in it"
        )
    return ""


def identity_of(digests: Mapping[str, str]) -> str:
    """The digest of members whose digests these are, by name."""
    return sha256_hex(json.dumps(dict(sorted(digests.items()))).encode())


def to_npy(array: Array) -> bytes:
    """An array as an .npy file."""
    stream = io.BytesIO()
    # Unlike ascontiguousarray, this keeps a scalar without axes.
    plain = np.asarray(array, order="C")
    np.lib.format.write_array(stream, plain, version=(1, 0), allow_pickle=False)
    return stream.getvalue()


def from_npy(data: memoryview) -> Array:
    """The inverse of `to_npy`. Raises ValueError for what is damaged."""
    with damaged_arrays():
        array: Array = np.lib.format.read_array(io.BytesIO(data), allow_pickle=False)
    return array

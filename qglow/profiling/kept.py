"""Calibration samples that are kept beside a profile, so that a quantized model can be measured on them.

They lie in an .npz of their own: one array for each input, under its name, samples along the first axis
in ascending order of their digests. numpy.load reads it, and so does everything that takes data.
"""

from __future__ import annotations

import bisect
import io
import math
import re
import stat
import struct
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from qglow.core.arrays import pack_arrays
from qglow.core.batch import batch_of, sample_shapes
from qglow.core.errors import ProfileError, UsageError
from qglow.core.files import sha256_hex
from qglow.core.types import Array, Shape
from qglow.profiling.samples import Sample, sample_digest
from qglow.recipe.data import MOST_KEPT

LARGEST_KEPT = 2**24
"""Bytes of the elements of all kept samples together."""
_LARGEST_FILE = LARGEST_KEPT + 2**20
_LONGEST_NAME = 1000
_HEADER = re.compile(
    rb"\x93NUMPY\x01\x00..\{'descr': '([<|](?:f[248]|[iu][1248]|b1))', 'fortran_order': False, "
    rb"'shape': \(([0-9, ]{0,400})\), \} *\n",
    re.DOTALL,
)
"""What stands before the elements of an .npy file as numpy writes it; matched, never evaluated."""
_ERRORS = (ValueError, KeyError, EOFError, OverflowError, RuntimeError, struct.error, zipfile.BadZipFile)


@dataclass(frozen=True)
class KeptRecord:
    """Facts of a samples file, as its profile has them: the number of samples, and the file's digest."""

    count: int = 0
    sha256: str = ""


SAMPLES = ".samples.npz"
"""End of the names of files with samples."""


class Keeper:
    """Collects, of all samples that it is given, those with the smallest digests, in any order.

    limit: how many. As many are kept as have at most `LARGEST_KEPT` bytes together; samples of one model
    have equal sizes. Equal samples are kept once. Raises UsageError for a wrong limit.
    """

    def __init__(self, limit: int) -> None:
        if not 0 <= limit <= MOST_KEPT:
            raise UsageError(f"keep_samples {limit}: a number from 0 to {MOST_KEPT}", field="keep_samples")
        self.limit = limit
        self.note = ""
        self._digests: list[str] = []
        self._samples: dict[str, Sample] = {}

    def add(self, sample: Sample, digest: str) -> None:
        """Keep a sample with this digest, if it is one of the smallest."""
        room = min(self.limit, self._room(sample)) if self.limit else 0
        place = bisect.bisect_left(self._digests, digest)
        if place >= room or digest in self._samples:
            return
        # Copies: the arrays may be views of much more, or buffers that are written again.
        inputs = {name: np.array(array, order="C") for name, array in sample.inputs.items()}
        self._digests.insert(place, digest)
        self._samples[digest] = Sample(digest, inputs, whole=sample.whole)
        for dropped in self._digests[room:]:
            del self._samples[dropped]
        del self._digests[room:]

    @property
    def samples(self) -> tuple[Sample, ...]:
        """Samples that are kept, in ascending order of digests, which are the keys; without labels."""
        return tuple(self._samples[digest] for digest in self._digests)

    def _room(self, sample: Sample) -> int:
        """Number of samples like this one that fit."""
        size = sum(array.nbytes for array in sample.inputs.values())
        unusual = [name for name in sample.inputs if "\0" in name or len(name) > _LONGEST_NAME]
        if unusual:
            self.note = f"no sample is kept: no archive holds an array called {unusual[0][:40]!r}"
            return 0
        if size > LARGEST_KEPT:
            self.note = f"no sample is kept: one has {size} bytes, and at most {LARGEST_KEPT} are kept"
        return LARGEST_KEPT // max(size, 1)


def merge_kept(parts: Iterable[Sequence[Sample]], limit: int) -> tuple[Sample, ...]:
    """The samples that one run over all the data would have kept."""
    keeper = Keeper(limit)
    for samples in parts:
        for sample in samples:
            keeper.add(sample, sample.key)
    return keeper.samples


def samples_path(profile: Path) -> Path:
    """Path of the samples of a profile file: NAME.samples.npz beside NAME.yaml."""
    return profile.with_name(f"{profile.stem}{SAMPLES}")


def pack_kept(samples: Sequence[Sample]) -> bytes:
    """The samples file; the same samples give the same bytes."""
    stream = io.BytesIO()
    names = samples[0].inputs if samples else ()
    pack_arrays(stream, {name: np.stack([sample.inputs[name] for sample in samples]) for name in names})
    return stream.getvalue()


def read_kept(path: Path, record: KeptRecord, shapes: Mapping[str, Shape]) -> tuple[Sample, ...]:
    """Read the samples file of a profile whose inputs have these shapes, the batch first.

    Nothing in it is believed, and sizes are checked before anything is allocated. Raises
    FileNotFoundError if it is missing, ProfileError, one line, if it is not what the profile was
    written with.
    """
    data = _read_bytes(path)
    if sha256_hex(data) != record.sha256:
        raise ProfileError(
            f"{path}: not the samples that the profile was written with; profile the model again"
        )
    try:
        return _unpack(data, record.count, shapes)
    except _ERRORS as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0][:120]
        raise ProfileError(f"{path}: not samples of the profile: {reason}") from error


def _read_bytes(path: Path) -> bytes:
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            raise ProfileError(f"{path}: not a file")
        if found.st_size > _LARGEST_FILE:
            raise ProfileError(f"{path}: {found.st_size} bytes, and samples have at most {_LARGEST_FILE}")
        return path.read_bytes()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ProfileError(f"cannot read {path}: {error.strerror or error}") from error


def _unpack(data: bytes, count: int, shapes: Mapping[str, Shape]) -> tuple[Sample, ...]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = {info.filename: info for info in archive.infolist()}
        if members.keys() != {f"{name}.npy" for name in shapes} or len(members) != len(archive.infolist()):
            raise ValueError(f"it does not hold one array for each of {list(shapes)}"[:120])
        if any(info.compress_type or info.file_size > len(data) for info in members.values()):
            raise ValueError("an array in it is compressed")
        content = {name: archive.read(members[f"{name}.npy"]) for name in shapes}
    forms, whole = sample_shapes(shapes), False
    if batch_of(shapes) > 1 and all(map(_has_shape, content.values(), _stacked(count, shapes))):
        forms, whole = dict(shapes), True
    arrays = {name: _array(content[name], (count, *form)) for name, form in forms.items()}
    samples = []
    for row in range(count):
        inputs = {name: array[row] for name, array in arrays.items()}
        samples.append(Sample(sample_digest(inputs).hex(), inputs, whole=whole))
    keys = [sample.key for sample in samples]
    if keys != sorted(set(keys)):
        raise ValueError("its samples are not in the order of their digests")
    return tuple(samples)


def _stacked(count: int, shapes: Mapping[str, Shape]) -> list[Shape]:
    return [(count, *shape) for shape in shapes.values()]


def _has_shape(content: bytes, shape: Shape) -> bool:
    """Whether the header of an .npy file says this shape."""
    header = _HEADER.match(content)
    return header is not None and header[2].decode().rstrip(",") == ", ".join(map(str, shape))


def _array(content: bytes, shape: Shape) -> Array:
    """The array in the bytes of an .npy file, which has to have this shape; not copied."""
    header = _HEADER.match(content)
    if header is None:
        raise ValueError("an array in it is not numbers as qglow writes them")
    if not _has_shape(content, shape):
        raise ValueError(f"an array has another shape than {list(shape)}")
    dtype = np.dtype(header[1].decode())
    if dtype.itemsize * math.prod(shape) != len(content) - header.end():
        raise ValueError("an array in it has too few or too many bytes")
    return np.frombuffer(content, dtype, offset=header.end()).reshape(shape)

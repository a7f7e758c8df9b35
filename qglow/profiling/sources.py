"""Sources of samples: one class for each kind of data, all read lazily in a fixed order."""

from __future__ import annotations

import importlib
import itertools
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from qglow.core.errors import DataError, UsageError
from qglow.core.types import Array
from qglow.profiling.archived import FirstRows
from qglow.profiling.images import load_image, preprocess_pixels
from qglow.profiling.labels import FileLabels, label_of
from qglow.profiling.samples import InputSpecs, Sample, are_inputs
from qglow.recipe.data import Preprocessing

T = TypeVar("T")
ReadTensor = Callable[[Path], Array]
Rows = Array | FirstRows
"""Samples along the first axis."""


class SampleSource(ABC):
    """Samples in a fixed order, as the data has them: shapes and types are checked by the caller."""

    @property
    @abstractmethod
    def size(self) -> int | None:
        """Number of samples; None if only reading them all would tell."""

    @abstractmethod
    def samples(self, selection: slice) -> Iterator[Sample]:
        """The samples that a slice of the whole would hold, read one by one."""


class IndexedSource(SampleSource):
    """A source that can read any sample alone."""

    @property
    @abstractmethod
    def size(self) -> int:
        """Number of samples."""

    @abstractmethod
    def read(self, index: int) -> Sample:
        """The sample at 0 <= index < size."""

    def samples(self, selection: slice) -> Iterator[Sample]:
        """The selected samples, in the order of the slice."""
        return map(self.read, range(self.size)[selection])


class ImageSource(IndexedSource):
    """Image files for the one image input of a model, decoded when they are asked for."""

    def __init__(
        self,
        root: Path,
        files: Sequence[Path],
        input_name: str,
        preprocessing: Preprocessing,
        labels: FileLabels | None,
    ) -> None:
        # Text, not Path: a Path remembers what was asked of it, so memory would grow with every read.
        self._root, self._input = root, input_name
        self._files = [file.relative_to(root).as_posix() for file in files]
        self._preprocessing, self._labels = preprocessing, labels

    @property
    def size(self) -> int:
        """Number of files."""
        return len(self._files)

    def read(self, index: int) -> Sample:
        """Decode and preprocess one file; its key is the path below the root."""
        key = self._files[index]
        path = self._root / key
        label = self._labels.of(path) if self._labels is not None else None
        return Sample(key, {self._input: load_image(path, self._preprocessing)}, label)


class ArraySource(IndexedSource):
    """Arrays by input name, samples along the first axis, as many in each.

    uint8 images go through the recipe's preprocessing, where it has one; other arrays are inputs. labels:
    int64 [samples] or [samples, positions]; positions that are labelled `ignored`, or negative, do not count.
    """

    def __init__(
        self,
        name: str,
        arrays: Mapping[str, Rows],
        labels: Array | None,
        preprocessing: Preprocessing | None,
        ignored: int | None = None,
    ) -> None:
        self._name, self._arrays, self._labels = name, arrays, labels
        self._preprocessing, self._ignored = preprocessing, ignored
        self._size = next((array.shape[0] if array.ndim else 0 for array in arrays.values()), 0)

    @property
    def size(self) -> int:
        """Length of the first axis."""
        return self._size

    def read(self, index: int) -> Sample:
        """Slices of the arrays, preprocessed where they are images."""
        key = f"{self._name}[{index}]"
        inputs = {name: self._input(array[index], key) for name, array in self._arrays.items()}
        label = None if self._labels is None else label_of(np.asarray(self._labels[index]), self._ignored)
        return Sample(key, inputs, label)

    def _input(self, value: Array, key: str) -> Array:
        if self._preprocessing is None or value.dtype != np.uint8:
            return value
        return preprocess_pixels(value, self._preprocessing, key)


class TensorDirectorySource(IndexedSource):
    """ONNX test data: directories test_data_set_N with one input_I.pb for each model input.

    Each element along the batch axes of the tensors is a sample. A directory is one sample where its tensors
    have just the shapes of inputs that hold several samples, or none has a batch axis. One directory is held
    at a time.
    """

    def __init__(self, folders: Sequence[Path], specs: InputSpecs, read_tensor: ReadTensor) -> None:
        self._specs, self._names, self._read_tensor = specs, list(specs), read_tensor
        self._held: tuple[Path, dict[str, Array]] | None = None
        self._places = [(folder, row) for folder in folders for row in range(self._count(folder))]

    @property
    def size(self) -> int:
        """Number of samples of all directories together."""
        return len(self._places)

    def read(self, index: int) -> Sample:
        """One element along the batch axes of a directory's tensors."""
        folder, row = self._places[index]
        tensors = self._load(folder)
        batched = self._batched(tensors)
        rows = {name: tensor[row] if name in batched else tensor for name, tensor in tensors.items()}
        return Sample(f"{folder.name}[{row}]", rows)

    def _load(self, folder: Path) -> dict[str, Array]:
        if self._held is None or self._held[0] != folder:
            tensors = {name: self._tensor(folder, place) for place, name in enumerate(self._names)}
            batched = self._batched(tensors)
            lengths = {len(tensor) if name in batched else 1 for name, tensor in tensors.items()}
            if len(lengths) != 1:
                raise DataError(f"{folder}: inputs differ in their batch size")
            self._held = (folder, tensors)
        return self._held[1]

    def _count(self, folder: Path) -> int:
        tensors = self._load(folder)
        return next((len(tensors[name]) for name in self._batched(tensors)), 1)

    def _batched(self, tensors: Mapping[str, Array]) -> list[str]:
        """Names of the tensors with samples along the first axis."""
        if are_inputs(tensors, self._specs):
            return []
        return [name for name, t in tensors.items() if t.ndim and t.ndim != len(self._specs[name].shape)]

    def _tensor(self, folder: Path, place: int) -> Array:
        path = folder / f"input_{place}.pb"
        if not path.is_file():
            raise DataError(f"{path} is missing: the model has {len(self._names)} inputs")
        return self._read_tensor(path)


class SeriesSource(SampleSource):
    """Sources one after the other, each opened when it is its turn: array files of a folder, for one."""

    def __init__(self, name: str, parts: Sequence[Callable[[], SampleSource]]) -> None:
        self._name, self._parts = name, parts

    @property
    def size(self) -> int | None:
        """Unknown: only opening them all would tell."""
        return None

    def samples(self, selection: slice) -> Iterator[Sample]:
        """The selected samples; those between are read and dropped. Only forward slices."""
        parts = (part().samples(slice(None)) for part in self._parts)
        return selected_forwards(itertools.chain.from_iterable(parts), selection, self._name)


def selected_forwards(samples: Iterable[T], selection: slice, name: str) -> Iterator[T]:
    """Elements that a slice selects while they are read.

    Raises UsageError for a slice that counts from the end.
    """
    bounds = (selection.start, selection.stop, selection.step)
    if any(bound is not None and bound < 0 for bound in bounds):
        raise UsageError(f"{name}: read forwards only, so `select` takes no negative numbers")
    return itertools.islice(samples, *bounds)


def find_function(spec: str, field: str = "data") -> Callable[..., Any]:
    """The function that "package.module:function" names; modules of the working directory are found.

    Raises UsageError, naming the argument, where there is none.
    """
    module_name, _, name = spec.partition(":")
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise UsageError(f"{field} {spec}: cannot import {module_name}: {error}", field=field) from error
    finally:
        sys.path.remove(here)
    function = getattr(module, name, None)
    if not callable(function):
        raise UsageError(f"{field} {spec}: {module_name} has no function {name!r}", field=field)
    result: Callable[..., Any] = function
    return result

"""Opening data: what `data` names becomes a lazy sequence of checked samples."""

from __future__ import annotations

import dataclasses
import itertools
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from qglow.core.errors import DataError, UsageError
from qglow.core.reading import damaged_arrays, load_array, open_regular
from qglow.core.types import Array
from qglow.profiling.archived import read_rows
from qglow.profiling.images import SUFFIXES, find_images
from qglow.profiling.items import ItemSource
from qglow.profiling.kept import SAMPLES
from qglow.profiling.labels import FileLabels, check_label_array, find_labels, read_file_labels
from qglow.profiling.plugins import open_plugin
from qglow.profiling.samples import (
    DataDigest,
    InputSpec,
    InputSpecs,
    Sample,
    check_counts,
    fit_sample,
    forms_text,
    remedy,
    shape_text,
)
from qglow.profiling.sources import (
    ArraySource,
    ImageSource,
    ReadTensor,
    Rows,
    SampleSource,
    SeriesSource,
    TensorDirectorySource,
    find_function,
)
from qglow.recipe.data import DataMapping, Preprocessing
from qglow.recipe.schema import Recipe

_LARGEST = 2**63 - 1
_LABEL_KEYS = ("label", "labels")


@dataclass(frozen=True)
class DataSet:
    """Samples that fit the model, read one by one and in the same order on every pass.

    Iterating holds one sample, so that memory does not grow with their number. (An .npz member is
    read up to the last selected sample when the set is opened, because it is compressed; .npy files are
    mapped.) fit: makes what is used of a sample, None of one that is left out; the number of samples, which
    is that before, is not known then.
    """

    name: str
    source: SampleSource
    specs: InputSpecs
    selection: slice
    limit: int | None
    fit: Callable[[Sample], Sample | None] | None = None

    @property
    def size(self) -> int | None:
        """Number of samples; None for a generator, whose length only a whole pass would tell."""
        if self.source.size is None or self.fit is not None:
            return None
        selected = len(range(self.source.size)[self.selection])
        return selected if self.limit is None else min(selected, self.limit)

    def __iter__(self) -> Iterator[Sample]:
        count = 0
        for sample in itertools.islice(self.source.samples(self.selection), self.limit):
            count += 1
            checked = fit_sample(sample, self.specs)
            used = checked if self.fit is None else self.fit(checked)
            if used is not None:
                yield used
        if count == 0:
            raise DataError(f"{self.name}: no samples")

    def digest(self) -> DataDigest:
        """The digest of all samples; reads them all."""
        digest = DataDigest()
        for sample in self:
            digest.add(sample.inputs)
        return digest


def open_data(
    data: str | Path,
    specs: InputSpecs,
    *,
    recipe: Recipe | None = None,
    select: str | None = None,
    samples: int | None = None,
    labels: Path | None = None,
    read_tensor: ReadTensor | None = None,
) -> DataSet:
    """Open a directory of images, an image, .npy, .npz, ONNX test data, "package.module:function", or
    "name:rest" where another package declares the data source `name`.

    `specs` are the model's inputs in order. `select` is START:STOP:STEP over the sorted samples,
    `samples` the number of the first of those to keep. `labels` overrides labels found beside the
    data. `read_tensor` reads a TensorProto file. A suffix "[input=key,label=key]" of `data` renames
    the arrays of a file as the recipe's `data` section does, and takes precedence over it.

    Raises DataError if there are no samples or they do not fit the model, UsageError for a wrong
    option.
    """
    recipe = recipe or Recipe()
    path, mapping = _split_mapping(str(data), recipe.data)
    recipe = dataclasses.replace(recipe, data=mapping)
    if samples is not None and samples < 1:
        raise UsageError(f"samples {samples}: at least 1", field="samples")
    selection = parse_selection(select)

    def needed(rows: int) -> int:
        chosen = range(rows)[selection][:samples]
        return max(chosen[0], chosen[-1]) + 1 if chosen else 0

    source = _open_source(path, specs, recipe, labels, read_tensor, needed)
    result = DataSet(str(data), source, specs, selection, samples)
    if result.size == 0:
        reason = f"`select={select}` leaves none of {source.size} samples" if source.size else "no samples"
        raise DataError(f"{path}: {reason}")
    return result


def parse_selection(text: str | None) -> slice:
    """START:STOP:STEP as Python has it, each part optional. Raises UsageError."""
    if text is None:
        return slice(None)
    parts = text.split(":")
    try:
        numbers = [int(part) if part else None for part in parts]
    except ValueError:
        numbers = []
    if any(number is not None and abs(number) > _LARGEST for number in numbers):
        numbers = []
    if len(numbers) not in (2, 3) or numbers[2:] == [0]:
        raise UsageError(f"select {text!r}: write START:STOP:STEP, such as 0:100 or ::10", field="select")
    return slice(*numbers)


def _split_mapping(data: str, mapping: DataMapping) -> tuple[str, DataMapping]:
    """The path, and the mapping with what a suffix "[input=key,...]" changes."""
    match = re.fullmatch(r"(.+)\[([^\[\]]*)\]", data)
    if match is None or Path(data).exists():
        return data, mapping
    inputs, label = dict(mapping.inputs), mapping.label
    for part in match[2].split(","):
        name, equals, key = (piece.strip() for piece in part.partition("="))
        if not (name and equals and key):
            raise UsageError(f"data {data}: write FILE[input=key,label=key]", field="data")
        if name == "label":
            label = key
        else:
            inputs[name] = key
    return match[1], dataclasses.replace(mapping, inputs=inputs, label=label)


def _open_source(
    data: str,
    specs: InputSpecs,
    recipe: Recipe,
    labels: Path | None,
    read_tensor: ReadTensor | None,
    needed: Callable[[int], int],
) -> SampleSource:
    path = Path(data)
    if path.is_dir():
        folders = _test_data_folders(path)
        if folders:
            if read_tensor is None:
                raise DataError(f"{path}: ONNX test data cannot be read here")
            return TensorDirectorySource(folders, specs, read_tensor)
        images, arrays = find_images(path), _array_files(path)
        if arrays and not images:
            if labels is not None:
                raise DataError(f"{path}: labels of array files are in the .npz files themselves")
            opened = [partial(_open_file, file, specs, recipe, None, _all_rows) for file in arrays]
            return SeriesSource(str(path), opened)
        return _open_images(path, images, specs, recipe, labels)
    if path.is_file():
        return _open_file(path, specs, recipe, labels, needed)
    plugin = open_plugin(data, specs)
    if plugin is not None:
        return plugin
    if re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", data):
        return ItemSource(data, find_function(data), specs, recipe.data.ignore_label)
    raise DataError(f"{data}: no such file or directory")


def _array_files(folder: Path) -> list[Path]:
    """Return the .npy and .npz files in a folder, sorted by name, without samples that a profile keeps."""
    found = (path for path in folder.iterdir() if path.suffix.lower() in (".npy", ".npz"))
    return sorted(path for path in found if path.is_file() and not path.name.endswith(SAMPLES))


def _all_rows(rows: int) -> int:
    return rows


def _open_file(
    path: Path, specs: InputSpecs, recipe: Recipe, labels: Path | None, needed: Callable[[int], int]
) -> SampleSource:
    suffix = path.suffix.lower()
    if suffix in SUFFIXES:
        return _open_images(path.parent, [path], specs, recipe, labels)
    if suffix not in (".npy", ".npz"):
        raise DataError(
            f"{path}: data is a directory of images, an image ({', '.join(sorted(SUFFIXES))}), .npy, .npz, "
            "ONNX test_data_set directories or package.module:function"
        )
    try:
        if suffix == ".npy":
            arrays, found_labels = _read_npy(path, specs), None
        else:
            arrays, found_labels = _read_npz(path, specs, recipe.data, needed)
        is_run = recipe.preprocessing is None and _are_of_one_run(arrays, specs)
        if is_run:
            arrays = _of_one_run(path, arrays, specs, recipe.data)
    except (OSError, ValueError) as error:
        raise DataError(f"cannot read {path}: {error}") from error
    _check_arrays(path, arrays, specs, recipe.preprocessing)
    check_counts(path.name, {name: array.shape for name, array in arrays.items()}, specs)
    count = next(iter(arrays.values())).shape[0]
    if labels is not None:
        found_labels = _label_file(labels)
    if found_labels is not None and found_labels.ndim == 0 and is_run:
        found_labels = found_labels[None]
    if found_labels is not None:
        found_labels = check_label_array(found_labels, count, str(labels or path))
    ignored = recipe.data.ignore_label
    return ArraySource(path.name, arrays, found_labels, recipe.preprocessing, ignored)


def _read_npy(path: Path, specs: InputSpecs) -> Mapping[str, Rows]:
    if len(specs) != 1:
        raise DataError(f"{path}: one array, but the model takes {list(specs)}; use an .npz")
    return {next(iter(specs)): load_array(path, mapped=True)}


def _read_npz(
    path: Path, specs: InputSpecs, mapping: DataMapping, needed: Callable[[int], int]
) -> tuple[Mapping[str, Rows], Array | None]:
    unknown = [name for name in mapping.inputs if name not in specs]
    if unknown:
        raise DataError(f"{path}: data.inputs names {unknown}, the model takes {list(specs)}")
    with open_regular(path) as stream, damaged_arrays(), zipfile.ZipFile(stream) as archive:
        files = [name.removesuffix(".npy") for name in archive.namelist()]
        keys = [mapping.key(name) for name in specs]
        if any(key not in files for key in keys):
            raise DataError(
                f"{path}: holds {files}, the model takes {keys}; name other keys in the recipe "
                f"(data.inputs) or as `data='{path.name}[{next(iter(specs))}=KEY]'`"
            )
        if mapping.label is not None and mapping.label not in files:
            raise DataError(f"{path}: holds {files}, not the label key '{mapping.label}'")
        free = (key for key in _LABEL_KEYS if key in files and key not in keys)
        label = mapping.label or next(free, None)
        arrays = {name: read_rows(archive, key, needed) for name, key in zip(specs, keys, strict=True)}
        if label is None:
            return arrays, None
        count = max((array.shape[0] for array in arrays.values() if array.ndim), default=0)
        labels = read_rows(archive, label, lambda rows: min(rows, count + 1))
        if not labels.is_whole:
            raise DataError(f"{path}: {labels.shape[0]} labels '{label}' of {count} samples")
        return arrays, labels.held


def _are_of_one_run(arrays: Mapping[str, Rows], specs: InputSpecs) -> bool:
    """Whether arrays are the inputs of one run, and not all with an axis of samples in front."""
    return any(array.ndim - 1 not in specs[name].ranks for name, array in arrays.items()) and all(
        array.ndim == len(specs[name].shape) if specs[name].whole is None else array.shape[:1] == (1,)
        for name, array in arrays.items()
    )


def _of_one_run(
    path: Path, arrays: Mapping[str, Rows], specs: InputSpecs, mapping: DataMapping
) -> Mapping[str, Rows]:
    """Arrays of one run with an axis of samples in front, of which all elements are read."""
    lacking = [name for name in arrays if specs[name].whole is None]
    if path.suffix.lower() == ".npy":
        return {name: np.asarray(array)[None] if name in lacking else array for name, array in arrays.items()}
    with open_regular(path) as stream, damaged_arrays(), zipfile.ZipFile(stream) as archive:
        read = {name: read_rows(archive, mapping.key(name), _all_rows).held[None] for name in lacking}
    return {name: read.get(name, array) for name, array in arrays.items()}


def _check_arrays(
    path: Path, arrays: Mapping[str, Rows], specs: InputSpecs, preprocessing: Preprocessing | None
) -> None:
    """A wrong rank is told at once, before any work; every sample is checked again when it is read."""
    for name, array in arrays.items():
        becomes_image = preprocessing is not None and array.dtype == np.uint8
        if not becomes_image and array.ndim - 1 not in specs[name].ranks:
            raise DataError(
                f"{path}: input '{name}' has shape {list(array.shape)}, "
                f"the model takes {forms_text(specs[name], batch=True)}, with N samples"
                f"{remedy({each: rows.shape[1:] for each, rows in arrays.items()}, specs)}"
            )


def _label_file(path: Path) -> Array:
    if path.suffix.lower() != ".npy":
        raise DataError(f"{path}: labels of an array file are an .npy of class numbers")
    try:
        return load_array(path)
    except (OSError, ValueError) as error:
        raise DataError(f"cannot read the labels {path}: {error}") from error


def _open_images(
    root: Path, files: Sequence[Path], specs: InputSpecs, recipe: Recipe, labels: Path | None
) -> SampleSource:
    if not files:
        raise DataError(f"{root}: no images ({', '.join(sorted(SUFFIXES))}) and no test_data_set_N")
    name, spec = _image_input(root, specs)
    if recipe.preprocessing is None:
        raise DataError(
            f"{root}: images need a recipe with a 'preprocessing' section (`recipe`) that makes "
            f"{_image_text(spec)} of them; recipes/ has examples"
        )
    found_labels = _image_labels(root, files, labels, recipe.data.ignore_label)
    return ImageSource(root, files, name, recipe.preprocessing, found_labels)


def _image_labels(
    root: Path, files: Sequence[Path], labels: Path | None, ignored: int | None
) -> FileLabels | None:
    """Labels that were asked for cover every file; those found beside the data cover what they cover."""
    if labels is None:
        return find_labels(root, ignored)
    result = read_file_labels(labels, root, ignored)
    missing = [path for path in files if result.of(path) is None]
    if missing:
        raise DataError(f"{labels}: no label for {len(missing)} of {len(files)} images, first {missing[0]}")
    return result


def _image_input(root: Path, specs: InputSpecs) -> tuple[str, InputSpec]:
    """The one input of the model, where an image fits it."""
    if len(specs) != 1:
        raise DataError(f"{root}: images feed one input, but the model takes {list(specs)}; use an .npz")
    name, spec = next(iter(specs.items()))
    if 3 not in spec.ranks or spec.dtype.kind not in "fiu":
        raise DataError(f"{root}: the model takes {spec.dtype} {forms_text(spec)}, no image becomes that")
    return name, spec


def _image_text(spec: InputSpec) -> str:
    """The form that an image becomes."""
    return shape_text(spec.shape if len(spec.shape) == 3 or spec.whole is None else spec.whole)


def _test_data_folders(path: Path) -> list[Path]:
    """test_data_set_N directories in the order of N; `path` may be one itself."""
    if (path / "input_0.pb").is_file():
        return [path]
    found = [folder for folder in path.glob("test_data_set_*") if (folder / "input_0.pb").is_file()]
    return sorted(found, key=lambda folder: (len(folder.name), folder.name))

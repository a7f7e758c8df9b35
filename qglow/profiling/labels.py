"""Labels: a class of each sample, or of each position of it, from a labels.csv beside images or an array.

Negative labels of positions do not count.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from qglow.core.errors import DataError
from qglow.core.reading import open_regular
from qglow.core.types import Array

Label = int | tuple[int, ...]
"""The class of a sample, or the classes of its positions."""

IGNORED = -100
"""Label that is kept for a position that does not count, as PyTorch has it; any negative one is read so."""

FILE_NAME = "labels.csv"
_LARGEST = 2**63 - 1
_COLUMNS = ("class_index", "label")


@dataclass(frozen=True)
class FileLabels:
    """Labels by file, from the columns `file` and `class_index` (or `label`) of a CSV file.

    `file` is relative to the directory of the CSV file. Several class numbers with spaces between them are
    the labels of positions.
    """

    path: Path
    by_file: Mapping[Path, Label]

    def of(self, image: Path) -> Label | None:
        """The label of an image file, None if it is not listed."""
        return self.by_file.get(image.resolve())


def find_labels(directory: Path, ignored: int | None = None) -> FileLabels | None:
    """labels.csv of a directory or of the one above, None if there is neither; see `read_file_labels`."""
    for folder in (directory, directory.resolve().parent):
        if (folder / FILE_NAME).is_file():
            return read_file_labels(folder / FILE_NAME, ignored=ignored)
    return None


def read_file_labels(path: Path, root: Path | None = None, ignored: int | None = None) -> FileLabels:
    """Read a labels.csv; files that are not below its own directory are looked for below `root`.

    ignored: a class that does not count where it labels a position.

    Raises DataError, naming the line, for anything that is not a label.
    """
    by_file: dict[Path, Label] = {}
    try:
        with io.TextIOWrapper(open_regular(path), encoding="utf-8-sig", newline="") as stream:
            rows = csv.DictReader(stream)
            column = _label_column(rows.fieldnames or (), path)
            for row in rows:
                name, label = row["file"] or "", _label(row[column], path, rows.line_num, ignored)
                folder = root if root is not None and not (path.parent / name).exists() else path.parent
                file = (folder / name).resolve()
                if file in by_file:
                    raise DataError(f"{path}, line {rows.line_num}: {name!r} has a label already; keep one")
                by_file[file] = label
    except (OSError, ValueError, csv.Error) as error:
        raise DataError(f"cannot read the labels {path}: {error}") from error
    return FileLabels(path, by_file)


def _label_column(columns: Sequence[str], path: Path) -> str:
    column = next((name for name in _COLUMNS if name in columns), None)
    if column is None or "file" not in columns:
        found = ", ".join(columns) or "none"
        raise DataError(f"{path}: needs the columns 'file' and 'class_index' (or 'label'), found {found}")
    return column


def _label(text: str | None, path: Path, line: int, ignored: int | None) -> Label:
    try:
        classes = [int(part) for part in (text or "").split()]
    except ValueError:
        classes = []
    if not classes or max(map(abs, classes)) > _LARGEST:
        raise DataError(f"{path}, line {line}: the label {(text or '')[:40]!r} is not a class number")
    return classes[0] if len(classes) == 1 else label_of(np.array(classes, np.int64), ignored)


def check_label_array(labels: Array, samples: int, where: str) -> Array:
    """Labels as int64 [samples], or [samples, positions].

    Raises DataError for anything but one integer, or one row of integers, a sample.
    """
    if not isinstance(labels, np.ndarray):  # a member of an archive that is no array
        raise DataError(f"{where}: labels are no array; name the right key in the recipe (data.label)")
    if labels.shape == (samples, 1):
        labels = labels[:, 0]
    if labels.ndim not in (1, 2) or len(labels) != samples or labels.dtype.kind not in "iu":
        raise DataError(
            f"{where}: labels are {labels.dtype} {list(labels.shape)}, not one class number for each of "
            f"{samples} samples, or one for each of their positions; name the right key in the recipe "
            "(data.label)"
        )
    if labels.dtype.kind == "u" and labels.size and int(labels.max()) > _LARGEST:
        raise DataError(f"{where}: label {labels.max()} is not a class number")
    return labels.astype(np.int64)


def label_of(labels: Array, ignored: int | None = None) -> Label:
    """The label of one sample from integers, [] of a class and [positions] of positions.

    Positions that are labelled `ignored`, or negative, become IGNORED.

    >>> label_of(np.array(3)), label_of(np.array([3, 0, -1]), ignored=0)
    (3, (3, -100, -100))
    """
    if labels.ndim == 0:
        return int(labels)
    return tuple(IGNORED if value < 0 or value == ignored else value for value in labels.tolist())

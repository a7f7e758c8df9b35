"""Class labels: a labels.csv beside images, or an array of integers."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from qglow.core.errors import DataError
from qglow.core.types import Array

FILE_NAME = "labels.csv"
_COLUMNS = ("class_index", "label")


@dataclass(frozen=True)
class FileLabels:
    """Labels by file, from the columns `file` and `class_index` (or `label`) of a CSV file.

    `file` is relative to the directory of the CSV file.
    """

    path: Path
    by_file: Mapping[Path, int]

    def of(self, image: Path) -> int | None:
        """The label of an image file, None where it is not listed."""
        return self.by_file.get(image.resolve())


def find_labels(directory: Path) -> FileLabels | None:
    """labels.csv of a directory or of the one above, None where there is neither."""
    for folder in (directory, directory.resolve().parent):
        if (folder / FILE_NAME).is_file():
            return read_file_labels(folder / FILE_NAME)
    return None


def read_file_labels(path: Path, root: Path | None = None) -> FileLabels:
    """Read a labels.csv; files that are not below its own directory are looked for below `root`.

    Raises DataError, naming the line, for anything that is not a label.
    """
    by_file: dict[Path, int] = {}
    try:
        with path.open(newline="", encoding="utf-8-sig") as stream:
            rows = csv.DictReader(stream)
            column = _label_column(rows.fieldnames or (), path)
            for row in rows:
                name, label = row["file"] or "", _label(row[column], path, rows.line_num)
                folder = root if root is not None and not (path.parent / name).exists() else path.parent
                by_file[(folder / name).resolve()] = label
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"cannot read the labels {path}: {error}") from error
    return FileLabels(path, by_file)


def _label_column(columns: Sequence[str], path: Path) -> str:
    column = next((name for name in _COLUMNS if name in columns), None)
    if column is None or "file" not in columns:
        found = ", ".join(columns) or "none"
        raise DataError(f"{path}: needs the columns 'file' and 'class_index' (or 'label'), found {found}")
    return column


def _label(text: str | None, path: Path, line: int) -> int:
    try:
        return int(text or "")
    except ValueError:
        raise DataError(f"{path}, line {line}: the label {text!r} is not a class number") from None


def check_label_array(labels: Array, samples: int, where: str) -> Array:
    """Labels as int64 [samples]. Raises DataError where they are not one integer a sample."""
    if labels.shape == (samples, 1):
        labels = labels[:, 0]
    if labels.shape != (samples,) or labels.dtype.kind not in "iu":
        raise DataError(
            f"{where}: labels are {labels.dtype} {list(labels.shape)}, not one class number for each of "
            f"{samples} samples; name the right key in the recipe (data.label)"
        )
    return labels.astype(np.int64)

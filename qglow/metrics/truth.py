"""Truth of samples beyond a class: true boxes in COCO's format, and true sequences.

A truth file takes the place of class labels for a metric that asks for photos or sequences.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

import numpy as np

from qglow.core.errors import DataError, UsageError
from qglow.core.files import sha256_hex
from qglow.core.reading import load_array, parse_json, read_bytes, read_text
from qglow.core.types import Array
from qglow.metrics.boxes import Boxes

T = TypeVar("T")


@dataclass(frozen=True)
class Photo:
    """An image of the evaluation data: its name, width and height in pixels, and true boxes."""

    name: str
    width: int
    height: int
    boxes: Boxes


class Truth:
    """A truth file, read when it is first asked; every error names the file."""

    def __init__(self, path: Path | None) -> None:
        self._path = path

    @property
    def has_file(self) -> bool:
        """Whether a file is given."""
        return self._path is not None

    def photos(self, keys: Sequence[str]) -> list[Photo]:
        """The photos of samples in COCO's format, found by `file_name`.

        Raises UsageError without a file, DataError for one of another kind or that lacks a sample.
        """
        return self._of_keys(self._photos, keys, "image")

    def sequences(self, keys: Sequence[str]) -> list[tuple[int, ...]]:
        """The sequences of samples: a JSON object of lists by name, or an integer array .npy [N, length]
        whose rows end at the first negative number.

        Raises UsageError without a file, DataError for one of another kind or that lacks a sample.
        """
        return self._of_keys(self._sequences, keys, "sequence")

    @cached_property
    def sha256(self) -> str:
        """SHA-256 of the file. Raises UsageError without one, DataError if it cannot be read."""
        try:
            return sha256_hex(read_bytes(self._file))
        except OSError as error:
            raise DataError(f"cannot read {self._file}: {error}") from error

    @property
    def _file(self) -> Path:
        if self._path is None:
            what = "the metric needs `labels`: a file with what is true of every sample"
            raise UsageError(what, field="labels")
        return self._path

    @cached_property
    def _photos(self) -> dict[str, Photo]:
        document = _read_json(self._file)
        try:
            return read_coco(document)
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"{self._file} is not in COCO's format: {_reason(error)}") from error

    @cached_property
    def _sequences(self) -> dict[str, tuple[int, ...]]:
        try:
            if self._file.suffix == ".npy":
                return _rows_of(_read_array(self._file))
            found = _read_json(self._file)
            if not isinstance(found, dict):
                raise TypeError("it is no object of lists by name")
            return {str(name): tuple(map(_integer, symbols)) for name, symbols in found.items()}
        except (TypeError, ValueError) as error:
            raise DataError(f"{self._file} has no sequences of integers: {error}") from error

    def _of_keys(self, found: Mapping[str, T], keys: Iterable[str], kind: str) -> list[T]:
        """Find the truth of each sample by its name, its place in an array, or the end of its path.

        Raises DataError for a sample without one.
        """
        by_base: dict[str, list[str]] = {}
        for name in found:
            by_base.setdefault(PurePosixPath(name).name, []).append(name)
        result = []
        for key in keys:
            place = re.search(r"\[\d+\]$", key)
            same = by_base.get(PurePosixPath(key).name, [])
            names = [key, *([place[0]] if place else []), *(same if len(same) == 1 else [])]
            known = [name for name in names if name in found]
            if not known:
                why = f"more than one {kind} is called so" if same else f"no {kind} is called so"
                raise DataError(f"{self._file} does not know sample {key}: {why}")
            result.append(found[known[0]])
        return result


def read_coco(document: Any) -> dict[str, Photo]:
    """Photos by `file_name` of annotations in COCO's format; boxes are [x, y, width, height] there.

    Classes count categories in the order of their ids, from 0, as detectors do. Raises KeyError, TypeError
    or ValueError for other documents.
    """
    identifiers = sorted(category["id"] for category in document["categories"])
    classes = {identifier: index for index, identifier in enumerate(identifiers)}
    if len(classes) != len(identifiers):
        raise ValueError("two categories have one id")
    of_image: dict[Any, list[Mapping[str, Any]]] = {image["id"]: [] for image in document["images"]}
    for annotation in document["annotations"]:
        if annotation["image_id"] not in of_image:
            raise ValueError(f"an annotation is of image {annotation['image_id']}, which is not listed")
        if annotation["category_id"] not in classes:
            raise ValueError(f"an annotation is of category {annotation['category_id']}, which is not listed")
        of_image[annotation["image_id"]].append(annotation)
    if len(of_image) != len(document["images"]):
        raise ValueError("two images have one id")
    photos: dict[str, Photo] = {}
    for image in document["images"]:
        if str(image["file_name"]) in photos:
            raise ValueError(f"{image['file_name']!r} is listed twice; keep one")
        boxes = _boxes(of_image[image["id"]], classes)
        photos[str(image["file_name"])] = Photo(
            str(image["file_name"]), int(image["width"]), int(image["height"]), boxes
        )
    return photos


def _boxes(annotations: Sequence[Mapping[str, Any]], classes: Mapping[Any, int]) -> Boxes:
    rows = np.array([annotation["bbox"] for annotation in annotations], np.float64).reshape(-1, 4)
    if len(rows) != len(annotations) or not np.isfinite(rows).all() or (rows[:, 2:] < 0).any():
        raise ValueError("a bbox is not [x, y, width, height]")
    corners = np.concatenate([rows[:, :2], rows[:, :2] + rows[:, 2:]], axis=1)
    chosen = np.array([classes[annotation["category_id"]] for annotation in annotations], np.int64)
    crowd = np.array([bool(annotation.get("iscrowd", 0)) for annotation in annotations], bool)
    return Boxes.true(corners, chosen, crowd)


def _rows_of(array: Array) -> dict[str, tuple[int, ...]]:
    """Rows up to the first negative number, by their place: "[3]"."""
    if array.ndim != 2 or not np.issubdtype(array.dtype, np.integer):
        raise ValueError(f"it has {array.dtype} {list(array.shape)}, not integers [N, length]")
    ends = [int(np.argmax(row < 0)) if (row < 0).any() else len(row) for row in array]
    return {f"[{i}]": tuple(row[:end].tolist()) for i, (row, end) in enumerate(zip(array, ends, strict=True))}


def _integer(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{value!r} is no integer")
    return value


def _reason(error: Exception) -> str:
    return f"{error} is missing" if isinstance(error, KeyError) else str(error)


def _read_json(path: Path) -> Any:
    try:
        return parse_json(read_text(path))
    except (OSError, ValueError) as error:
        raise DataError(f"cannot read {path} as JSON: {error}") from error


def _read_array(path: Path) -> Array:
    try:
        return load_array(path)
    except (OSError, ValueError) as error:
        raise DataError(f"cannot read {path}: {error}") from error

"""Values of a model's inputs that became constants, as a profile's file has them.

Python numbers are numbers and lists of them; an array has its type, its shape and its elements as text, since
numbers convert to the type of the input, and arrays do not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from qglow.core.types import Array, Given

_TYPES = ("bool", "int8", "uint8", "int16", "uint16", "int32", "int64", "float16", "float32", "float64")
_KEYS = {"type", "shape", "elements"}
_MOST = 2**22
"""Elements of an array that are read."""
_DEEPEST = 6


def written_values(given: Mapping[str, Given]) -> dict[str, Any]:
    """Plain data of values by input name, for JSON."""
    return {name: _written(value) for name, value in sorted(given.items())}


def read_values(entries: Mapping[str, Any]) -> dict[str, Given]:
    """The inverse of `written_values`. Raises ValueError, which names the input, for anything else."""
    return {name: _read(name, entry) for name, entry in entries.items()}


def _written(value: Given) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        array = np.asarray(value)
        elements = " ".join(str(each) for each in array.reshape(-1).tolist())
        return {"type": array.dtype.name, "shape": list(array.shape), "elements": elements}
    return value if isinstance(value, bool | int | float) else [_written(each) for each in value]  # type: ignore[arg-type]


def _read(name: str, entry: Any) -> Given:
    if isinstance(entry, dict):
        return _array(name, entry)
    if not _is_of_numbers(entry, _DEEPEST):
        raise ValueError(f"settings.values: {name[:60]!r} has no numbers and no array")
    found: Given = entry
    return found


def _is_of_numbers(entry: Any, deepest: int) -> bool:
    if isinstance(entry, list):
        return deepest > 0 and all(_is_of_numbers(each, deepest - 1) for each in entry)
    return isinstance(entry, bool | int | float)


def _array(name: str, entry: Mapping[str, Any]) -> Array:
    where = f"settings.values: {name[:60]!r}"
    shape, elements = entry.get("shape"), entry.get("elements")
    if set(entry) != _KEYS or entry["type"] not in _TYPES or not isinstance(elements, str):
        raise ValueError(f"{where} has no type, shape and elements of an array")
    if not isinstance(shape, list) or not all(type(size) is int and 0 <= size <= _MOST for size in shape):
        raise ValueError(f"{where} has no shape of an array")
    if math.prod(shape) > _MOST:
        raise ValueError(f"{where} has more than {_MOST} elements")
    words, kind = elements.split(), np.dtype(entry["type"])
    if len(words) != math.prod(shape):
        raise ValueError(f"{where} has {len(words)} elements, and its shape {math.prod(shape)}")
    try:
        array = np.array([_element(word, kind) for word in words], kind)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{where} has elements that are no {kind.name}") from error
    return array.reshape(shape)


def _element(word: str, kind: np.dtype[Any]) -> bool | int | float:
    """Raises ValueError for text that is no element of the type."""
    if kind.kind == "b":
        return bool(("False", "True").index(word))
    return float(word) if kind.kind == "f" else int(word)

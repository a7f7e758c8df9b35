"""Results as what JSON has, and back."""

from __future__ import annotations

import dataclasses
import enum
import json
import math
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import numpy as np

from qglow.core.files import write_atomically
from qglow.core.types import TensorType

T = TypeVar("T")
_PLAIN = frozenset({str, int, bool, type(None)})
"""Types that JSON has: most of what a report holds."""


def to_plain(value: Any) -> Any:
    """Dataclasses, enumerations and tensors' types as mappings, lists, names and numbers.

    Infinities and NaN become text.
    """
    if type(value) in _PLAIN:
        return value
    if isinstance(value, TensorType):
        return str(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return to_plain(value.tolist())
    if isinstance(value, list | tuple):
        return [to_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write plain data as a JSON file, whole or not at all. Raises InputFileError."""
    write_atomically(path, json.dumps(content, indent=1, sort_keys=True, ensure_ascii=False) + "\n")


def from_plain(kind: type[T], value: Any) -> T:
    """Restore a `kind` from what `to_plain` made of it. Raises ValueError, KeyError, TypeError."""
    restored: T = _restore(kind, value)
    return restored


def _restore(kind: Any, value: Any) -> Any:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is types.UnionType:
        return _optional(arguments, value)
    if origin is tuple:
        return tuple(_restore(arguments[0], item) for item in _checked(value, list))
    if origin is not None and issubclass(origin, Mapping):
        return {str(key): _restore(arguments[1], item) for key, item in _checked(value, dict).items()}
    if dataclasses.is_dataclass(kind):
        return _restore_fields(kind, _checked(value, dict))
    if issubclass(kind, enum.Enum):
        return kind[value]
    if kind is float:
        return float(value)
    return _checked(value, kind)


def _optional(arguments: tuple[Any, ...], value: Any) -> Any:
    (inner,) = (argument for argument in arguments if argument is not types.NoneType)
    return None if value is None else _restore(inner, value)


def _restore_fields(kind: Any, value: Mapping[str, Any]) -> Any:
    hints = get_type_hints(kind)
    # A field with a default may be younger than what was written.
    wanted = [f for f in dataclasses.fields(kind) if f.name in value or not _has_default(f)]
    return kind(**{f.name: _restore(hints[f.name], value[f.name]) for f in wanted})


def _has_default(field: dataclasses.Field[Any]) -> bool:
    missing = dataclasses.MISSING
    return field.default is not missing or field.default_factory is not missing


def _checked(value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise TypeError(f"{value!r} is no {kind.__name__}")
    return value

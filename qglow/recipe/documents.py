"""YAML documents whose keys are all known: an unknown one is an error that names the nearest."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import yaml

Convert = Callable[[object], Any]


def read_text(path: Path) -> str:
    """A text file's content. Raises ValueError that says why it cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(str(error)) from error


def parse_document(text: str) -> object:
    """YAML text as plain objects; None where it is empty. Raises ValueError."""
    try:
        return yaml.load(text, Loader=_StrictLoader)
    except yaml.YAMLError as error:
        raise ValueError(f"not a YAML file: {_one_line(error)}") from error


class _StrictLoader(yaml.SafeLoader):
    """Safe YAML in which a key may occur once: plain YAML keeps the last and drops the others."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if key.value in seen:
                raise yaml.constructor.ConstructorError(None, None, f"{key.value!r} twice", key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def _one_line(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or "cannot be parsed"
    return f"{problem}, line {mark.line + 1}" if mark is not None else problem


class Placed(ValueError):
    """A mistake whose message names the key already."""


@dataclass(frozen=True)
class Section:
    """The keys of one mapping of the file, and the object that they make."""

    make: Callable[..., object]
    keys: Mapping[str, Convert | Section]

    def build(self, document: object, prefix: str) -> object:
        """The object of a mapping; `prefix` leads to it in messages. Raises Placed."""
        if not isinstance(document, dict):
            raise Placed(f"{prefix.rstrip('.') or 'a recipe'} holds keys and values, found {document!r}")
        values = {}
        for key, value in document.items():
            if key not in self.keys:
                raise Placed(self._unknown(prefix, str(key)))
            values[key] = self._convert(prefix + key, self.keys[key], value)
        try:
            return self.make(**values)
        except ValueError as error:
            raise Placed(f"{prefix.rstrip('.')}: {error}" if prefix else str(error)) from error

    def _convert(self, name: str, convert: Convert | Section, value: object) -> object:
        if isinstance(convert, Section):
            return convert.build(value, f"{name}.")
        try:
            return convert(value)
        except Placed:
            raise
        except ValueError as error:
            raise Placed(f"{name}: {error}") from error

    def _unknown(self, prefix: str, key: str) -> str:
        nearest = get_close_matches(key, self.keys, 1, cutoff=0.5)
        hint = f"did you mean '{prefix}{nearest[0]}'?" if nearest else f"valid are {', '.join(self.keys)}"
        return f"unknown key '{prefix}{key}'; {hint}"


def as_number(value: object) -> float:
    """A number, or a fraction such as 1/255, or text that YAML does not take for a number (1e-3)."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"needs a number, found {value!r}")
    if not isinstance(value, str):
        return float(value)
    numerator, slash, denominator = value.partition("/")
    try:
        result = float(numerator) / float(denominator) if slash else float(numerator)
    except (ValueError, ZeroDivisionError):
        result = math.nan
    if not math.isfinite(result):
        raise ValueError(f"needs a number or a fraction such as 1/255, found {value!r}")
    return result


def as_text(value: object) -> str:
    """Text, as it is."""
    if not isinstance(value, str):
        raise ValueError(f"needs text, found {value!r}; put it in quotes if it is a name")
    return value


def as_texts(value: object) -> tuple[str, ...]:
    """A list of texts."""
    if not isinstance(value, list):
        raise ValueError(f"needs a list of names, found {value!r}")
    return tuple(as_text(item) for item in value)


def as_flag(value: object) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise ValueError(f"needs true or false, found {value!r}")
    return value


def optional(convert: Convert) -> Convert:
    """The same, or none."""
    return lambda value: None if value is None else convert(value)


def as_count(value: object) -> int:
    """A whole number, at least 0."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"needs a whole number, at least 0, found {value!r}")
    return value

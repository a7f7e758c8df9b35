"""Mappings whose keys are all known: an unknown one is an error that names the nearest."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from qglow.core.options import options_of
from qglow.recipe.readers import Convert


class Placed(ValueError):
    """A mistake whose message names the key already."""


@dataclass(frozen=True)
class FileSection:
    """The keys of one mapping of the file, and the object that they make."""

    make: Callable[..., object]
    keys: Mapping[str, Convert | FileSection]

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

    def _convert(self, name: str, convert: Convert | FileSection, value: object) -> object:
        if isinstance(convert, FileSection):
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


def section_of(kind: type, make: Callable[..., object] | None = None, **more: Convert) -> FileSection:
    """The section whose keys are the options of a dataclass, and `more`; `make` takes names of fields."""
    keys: dict[str, Convert | FileSection] = {}
    names = {}
    for declared in options_of(kind):
        nested = declared.option.nested
        keys[declared.key] = section_of(nested) if nested else declared.option.read or _as_it_is
        names[declared.key] = declared.name

    def build(**values: Any) -> object:
        return (make or kind)(**{names.get(key, key): value for key, value in values.items()})

    return FileSection(build, keys | more)


def _as_it_is(value: object) -> object:
    return value

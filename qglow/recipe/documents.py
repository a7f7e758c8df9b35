"""YAML files as plain objects."""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from qglow.core import reading

DEEPEST = 32
"""Levels of a file that people write; none of qglow's needs half as many."""


def read_text(path: Path) -> str:
    """A text file's content. Raises ValueError that says why it cannot be read."""
    try:
        return reading.read_text(path)
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(str(error)) from error


def parse_document(text: str, *, deepest: int = DEEPEST, aliases: bool = True) -> object:
    """YAML text as plain objects; None if it is empty.

    deepest: the most levels of lists and mappings. aliases: whether a part may stand in several places,
    which lets a small file stand for a huge one.

    Raises ValueError, one line, for text that is not such YAML and for a key that occurs twice.
    """
    try:
        _check_structure(text, deepest, aliases)
        return _loaded(text)
    except yaml.YAMLError as error:
        # The scanner reads ahead, and newer ones have a limit of their own, 1,000 levels.
        deep = "nesting depth" in _one_line(error)
        raise ValueError("nested too deeply" if deep else f"not a YAML file: {_one_line(error)}") from error
    except ValueError as error:  # a number of too many digits, a day that no month has
        raise ValueError(f"not a file of qglow: {str(error).splitlines()[0][:80]}") from error


def _loaded(text: str) -> object:
    try:
        return yaml.load(text, Loader=_StrictLoader)
    except (AttributeError, LookupError) as error:  # a time that is none, a number without digits
        raise ValueError("a value is not what its tag says") from error


class _StrictLoader(yaml.CSafeLoader):
    """Safe YAML in which a key may occur once: plain YAML keeps the last and drops the others."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[Hashable] = set()
        for key, _ in node.value:
            name = key.value if isinstance(key.value, str) else id(key)  # lists are refused further on
            if name in seen:
                raise yaml.constructor.ConstructorError(None, None, f"{key.value!r} twice", key.start_mark)
            seen.add(name)
        return super().construct_mapping(node, deep)


def _check_structure(text: str, deepest: int, aliases: bool) -> None:
    depth = 0
    for event in yaml.parse(text, Loader=yaml.CSafeLoader):
        if isinstance(event, yaml.AliasEvent) and not aliases:
            raise ValueError("aliases are not allowed")
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > deepest:
            raise ValueError("nested too deeply")


def _one_line(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = str(getattr(error, "problem", None) or "cannot be parsed").splitlines()[0]
    return f"{problem}, line {mark.line + 1}" if mark is not None else problem

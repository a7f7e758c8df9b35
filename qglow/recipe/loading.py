"""Reading a recipe file. A key that qglow does not know is an error, never ignored."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import yaml

from qglow.core.errors import RecipeError
from qglow.recipe.choices import Calibration
from qglow.recipe.rules import Match, Rule
from qglow.recipe.schema import DataMapping, Preprocessing, Recipe

_Convert = Callable[[object], Any]


def load_recipe(path: Path) -> Recipe:
    """The recipe in a YAML file. Raises RecipeError that names the file and the key."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RecipeError(f"cannot read the recipe {path}: {error}") from error
    return parse_recipe(text, str(path))


def parse_recipe(text: str, where: str = "recipe") -> Recipe:
    """The recipe in YAML text; an empty one is all defaults. `where` is named in errors."""
    try:
        document = yaml.load(text, Loader=_StrictLoader)
    except yaml.YAMLError as error:
        raise RecipeError(f"{where}: not a YAML file: {_one_line(error)}") from error
    if document is None:
        return Recipe()
    try:
        recipe = _RECIPE.build(document, "")
    except ValueError as error:
        raise RecipeError(f"{where}: {error}") from error
    assert isinstance(recipe, Recipe)
    return recipe


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


class _Placed(ValueError):
    """A mistake whose message names the key already."""


@dataclass(frozen=True)
class _Section:
    """The keys of one mapping of the file, and the object that they make."""

    make: Callable[..., object]
    keys: Mapping[str, _Convert | _Section]

    def build(self, document: object, prefix: str) -> object:
        if not isinstance(document, dict):
            raise _Placed(f"{prefix.rstrip('.') or 'a recipe'} holds keys and values, found {document!r}")
        values = {}
        for key, value in document.items():
            if key not in self.keys:
                raise _Placed(self._unknown(prefix, str(key)))
            values[key] = self._convert(prefix + key, self.keys[key], value)
        try:
            return self.make(**values)
        except ValueError as error:
            raise _Placed(f"{prefix.rstrip('.')}: {error}" if prefix else str(error)) from error

    def _convert(self, name: str, convert: _Convert | _Section, value: object) -> object:
        if isinstance(convert, _Section):
            return convert.build(value, f"{name}.")
        try:
            return convert(value)
        except _Placed:
            raise
        except ValueError as error:
            raise _Placed(f"{name}: {error}") from error

    def _unknown(self, prefix: str, key: str) -> str:
        nearest = get_close_matches(key, self.keys, 1, cutoff=0.5)
        hint = f"did you mean '{prefix}{nearest[0]}'?" if nearest else f"valid are {', '.join(self.keys)}"
        return f"unknown key '{prefix}{key}'; {hint}"


def _number(value: object) -> float:
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


def _numbers(value: object) -> tuple[float, ...]:
    return tuple(_number(item) for item in value) if isinstance(value, list) else (_number(value),)


def _size(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"needs a whole number of pixels, found {value!r}")
    return value


def _sides(value: object) -> tuple[int, int]:
    if not isinstance(value, list):
        return _size(value), _size(value)
    if len(value) != 2:
        raise ValueError(f"needs one size or [height, width], found {value!r}")
    return _size(value[0]), _size(value[1])


def _resize(value: object) -> int | tuple[int, int]:
    return _sides(value) if isinstance(value, list) else _size(value)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"needs text, found {value!r}; put it in quotes if it is a name")
    return value


def _texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise ValueError(f"needs a list of names, found {value!r}")
    return tuple(_text(item) for item in value)


def _names(value: object) -> dict[str, str]:
    if not isinstance(value, dict):
        raise ValueError(f"needs 'model input: key of the data file', found {value!r}")
    return {_text(name): _text(key) for name, key in value.items()}


def _rules(value: object) -> tuple[Rule, ...]:
    if not isinstance(value, list):
        raise ValueError(f"needs a list of rules, found {value!r}")
    rules = []
    for number, document in enumerate(value, start=1):
        rule = _RULE.build(document, f"rules {number}.")
        assert isinstance(rule, Rule)
        rules.append(rule)
    return tuple(rules)


def _rule(keep_float: bool | None = None, **values: Any) -> Rule:
    """A rule of its keys; `keep_float` is another way to write a dtype."""
    if "match" not in values:
        raise ValueError("match has to say what the rule is about")
    if keep_float is not None:
        dtype = "float" if keep_float else "int8"
        if values.setdefault("dtype", dtype) != dtype:
            raise ValueError(f"keep_float: {str(keep_float).lower()} contradicts dtype: {values['dtype']}")
    return Rule(**values)


def _match(**values: str) -> Match:
    return Match(values.get("name"), values.get("operator"), values.get("from"), values.get("to"))


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"needs true or false, found {value!r}")
    return value


def _optional(convert: _Convert) -> _Convert:
    return lambda value: None if value is None else convert(value)


_PREPROCESSING = _Section(
    Preprocessing,
    {
        "resize": _optional(_resize),
        "interpolation": _text,
        "crop": _optional(_sides),
        "layout": _text,
        "channels": _text,
        "scale": _number,
        "mean": _numbers,
        "std": _numbers,
    },
)
_DATA = _Section(DataMapping, {"inputs": _names, "label": _optional(_text)})
_MATCH = _Section(_match, {"name": _text, "operator": _text, "from": _text, "to": _text})
_RULE = _Section(
    _rule,
    {
        "match": _MATCH,
        "dtype": _text,
        "keep_float": _flag,
        "schema": _text,
        "calibration": lambda value: Calibration.parse(_text(value)),
        "granularity": _text,
    },
)
_RECIPE = _Section(
    Recipe,
    {
        "preprocessing": _PREPROCESSING,
        "data": _DATA,
        "schema": _text,
        "calibration": lambda value: Calibration.parse(_text(value)),
        "per_tensor": _flag,
        "keep_float": _texts,
        "assert_all_quantized": _flag,
        "equalize": _flag,
        "correct_bias": _flag,
        "io": _text,
        "rules": _rules,
        "strict": _flag,
    },
)

"""Reading a recipe file. A key that qglow does not know is an error, never ignored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from qglow.core.errors import RecipeError
from qglow.recipe.choices import SECONDS, Calibration, parse_time
from qglow.recipe.documents import (
    Section,
    as_count,
    as_flag,
    as_number,
    as_text,
    as_texts,
    optional,
    parse_document,
    read_text,
)
from qglow.recipe.rules import Match, Rule
from qglow.recipe.schema import DataMapping, Preprocessing, Recipe


def load_recipe(path: str | Path) -> Recipe:
    """The recipe in a YAML file. Raises RecipeError that names the file and the key."""
    try:
        text = read_text(Path(path))
    except ValueError as error:
        raise RecipeError(f"cannot read the recipe {path}: {error}") from error
    return parse_recipe(text, str(path))


def parse_recipe(text: str, where: str = "recipe") -> Recipe:
    """The recipe in YAML text; an empty one is all defaults. `where` is named in errors."""
    try:
        document = parse_document(text)
        recipe = Recipe() if document is None else _RECIPE.build(document, "")
    except ValueError as error:
        raise RecipeError(f"{where}: {error}") from error
    assert isinstance(recipe, Recipe)
    return recipe


def _numbers(value: object) -> tuple[float, ...]:
    return tuple(as_number(item) for item in value) if isinstance(value, list) else (as_number(value),)


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


def _names(value: object) -> dict[str, str]:
    if not isinstance(value, dict):
        raise ValueError(f"needs 'model input: key of the data file', found {value!r}")
    return {as_text(name): as_text(key) for name, key in value.items()}


def _seconds(value: object) -> float:
    return parse_time(value, SECONDS) if isinstance(value, str) else as_number(value)


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
        dtype = values.setdefault("dtype", "float" if keep_float else "int8")
        if (dtype == "float") is not keep_float:
            raise ValueError(f"keep_float: {str(keep_float).lower()} contradicts dtype: {values['dtype']}")
    return Rule(**values)


def _match(**values: str) -> Match:
    return Match(values.get("name"), values.get("operator"), values.get("from"), values.get("to"))


_PREPROCESSING = Section(
    Preprocessing,
    {
        "resize": optional(_resize),
        "interpolation": as_text,
        "crop": optional(_sides),
        "letterbox": optional(_sides),
        "fill": as_number,
        "layout": as_text,
        "channels": as_text,
        "scale": as_number,
        "mean": _numbers,
        "std": _numbers,
    },
)
_DATA = Section(DataMapping, {"inputs": _names, "label": optional(as_text)})
_MATCH = Section(_match, {"name": as_text, "operator": as_text, "from": as_text, "to": as_text})
_RULE = Section(
    _rule,
    {
        "match": _MATCH,
        "dtype": as_text,
        "keep_float": as_flag,
        "schema": as_text,
        "calibration": lambda value: Calibration.parse(as_text(value)),
        "granularity": as_text,
    },
)
_RECIPE = Section(
    Recipe,
    {
        "preprocessing": _PREPROCESSING,
        "data": _DATA,
        "schema": as_text,
        "calibration": lambda value: Calibration.parse(as_text(value)),
        "per_tensor": as_flag,
        "keep_float": as_texts,
        "assert_all_quantized": as_flag,
        "equalize": as_flag,
        "smooth": lambda value: value if isinstance(value, bool) else as_number(value),
        "profile_again": as_flag,
        "correct_bias": as_flag,
        "io": as_text,
        "activation_type": as_text,
        "rounding": as_text,
        "weight_range": as_text,
        "split_channels": as_number,
        "group_size": as_count,
        "rounding_budget": optional(_seconds),
        "rules": _rules,
        "strict": as_flag,
    },
)

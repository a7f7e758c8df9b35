"""Readers of single values: of a recipe file, a Python keyword or a word of the command line."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any, SupportsIndex

from qglow.recipe.choices import SECONDS, BlockFormat, Calibration, parse_time

Convert = Callable[[object], Any]


def as_number(value: object) -> float:
    """A finite number, or a fraction such as 1/255, or text that YAML does not take for a number (1e-3)."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"needs a number, found {value!r}")
    try:
        numerator, slash, denominator = str(value).partition("/")
        result = float(numerator) / float(denominator) if slash else float(numerator)
    except (ValueError, ZeroDivisionError):
        result = math.nan
    if not math.isfinite(result):
        raise ValueError(f"needs a number or a fraction such as 1/255, found {str(value)[:40]}")
    return result


def as_numbers(value: object) -> tuple[float, ...]:
    """A number, or a list of them."""
    return tuple(as_number(item) for item in value) if isinstance(value, list) else (as_number(value),)


def as_text(value: object) -> str:
    """Text, as it is."""
    if not isinstance(value, str):
        raise ValueError(f"needs text, found {value!r}; put it in quotes if it is a name")
    if "\0" in value:
        raise ValueError(f"{value!r} holds NUL, which no name has")
    return value


def as_texts(value: object) -> tuple[str, ...]:
    """A list of texts."""
    if not isinstance(value, list):
        raise ValueError(f"needs a list of names, found {value!r}")
    return tuple(as_text(item) for item in value)


def as_states(value: object) -> tuple[tuple[str, str], ...]:
    """Inputs with the output that each takes in the next call: a mapping, or texts such as "h=next_h".

    >>> as_states(["h=next_h"]) == as_states({"h": "next_h"}) == (("h", "next_h"),)
    True
    """
    if isinstance(value, Mapping):
        return tuple((as_text(name), as_text(output)) for name, output in value.items())
    if not isinstance(value, list | tuple):
        raise ValueError(f"needs inputs and their outputs, as h: next_h, found {value!r}")
    states: dict[str, str] = {}
    for text in map(as_text, value):
        name, equals, output = text.partition("=")
        if not (name and equals and output):
            raise ValueError(f"{text}: write INPUT=OUTPUT")
        if name in states:
            raise ValueError(f"{name} is given twice")
        states[name] = output
    return tuple(states.items())


def as_flag(value: object) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise ValueError(f"needs true or false, found {value!r}")
    return value


def as_count(value: object) -> int:
    """A whole number, at least 0."""
    if isinstance(value, bool) or not isinstance(value, SupportsIndex) or operator.index(value) < 0:
        raise ValueError(f"needs a whole number, at least 0, found {value!r}")
    return operator.index(value)


def as_calibration(value: object) -> Calibration:
    """A way to choose ranges, or its text."""
    return value if isinstance(value, Calibration) else Calibration.parse(as_text(value))


def as_block_format(value: object) -> BlockFormat:
    """A format of weights in blocks, or its text."""
    return value if isinstance(value, BlockFormat) else BlockFormat.parse(as_text(value))


def as_seconds(value: object) -> float:
    """A number of seconds, or a time such as "10m"."""
    return parse_time(value, SECONDS) if isinstance(value, str) else as_number(value)


def as_smoothing(value: object) -> bool | float:
    """True, false or an exponent."""
    if isinstance(value, bool):
        return value
    if value in ("true", "false"):
        return value == "true"
    try:
        return as_number(value)
    except ValueError as error:
        raise ValueError(f"needs true, false or an exponent from 0 to 1, found {value!r}") from error


def as_size(value: object) -> int:
    """A number of pixels."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"needs a whole number of pixels, found {value!r}")
    return value


def as_sides(value: object) -> tuple[int, int]:
    """Height and width; one number is both."""
    if not isinstance(value, list):
        return as_size(value), as_size(value)
    if len(value) != 2:
        raise ValueError(f"needs one size or [height, width], found {value!r}")
    return as_size(value[0]), as_size(value[1])


def as_resize(value: object) -> int | tuple[int, int]:
    """The length of the short side, or height and width."""
    return as_sides(value) if isinstance(value, list) else as_size(value)


def as_names(value: object) -> dict[str, str]:
    """Names of a data file's arrays by names of the model's inputs."""
    if not isinstance(value, Mapping):
        raise ValueError(f"needs 'model input: key of the data file', found {value!r}")
    return {as_text(name): as_text(key) for name, key in value.items()}


def optional(convert: Convert) -> Convert:
    """The same, or none."""
    return lambda value: None if value is None else convert(value)

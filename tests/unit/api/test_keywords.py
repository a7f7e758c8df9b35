"""Keywords of Python functions and options of commands: one type and one default for each name."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import pytest

import qglow
import qglow.cli
from qglow.core.options import Declared, options_of

# Names of files and texts whose content the functions take instead.
READ_BY_COMMANDS = {"recipe", "profile", "profiles", "shapes", "model", "layers", "data", "calibration_data"}


def commands() -> Iterator[type]:
    """Every dataclass of options of the command line."""
    for found in pkgutil.iter_modules(qglow.cli.__path__):
        module = importlib.import_module(f"qglow.cli.{found.name}")
        yield from (v for v in vars(module).values() if isinstance(v, type) and dataclasses.is_dataclass(v))


OTHER_DEFAULT = {
    "tolerance": "per cent for people, a fraction in Python",
    "time_limit": "a command comes to an end by itself, a function when it is told to",
}

OPTIONS: dict[str, list[tuple[type, Declared]]] = {}
for _kind in dict.fromkeys(commands()):
    for _declared in options_of(_kind):
        OPTIONS.setdefault(_declared.name, []).append((_kind, _declared))


def functions() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Every public function, and every public method of the public classes of models."""
    for name in qglow.__all__:
        value = getattr(qglow, name)
        if inspect.isfunction(value):
            yield name, value
    for owner in (qglow.Model, qglow.QuantizedModel):
        for name, value in inspect.getmembers(owner, inspect.isfunction):
            if not name.startswith("_"):
                yield f"{owner.__name__}.{name}", value


SHARED = [
    pytest.param(function, parameter, id=f"{name}-{parameter.name}")
    for name, function in functions()
    for parameter in inspect.signature(function).parameters.values()
    if parameter.name in OPTIONS and parameter.name not in READ_BY_COMMANDS
]


def members(kind: Any) -> set[Any]:
    """The types of a union, or the one type."""
    return set(get_args(kind)) if get_origin(kind) in (Union, UnionType) else {kind}


def test_there_are_shared_names() -> None:
    names = {param.values[1].name for param in SHARED}  # type: ignore[union-attr]
    assert {"isa", "threads", "select", "samples", "batch_size", "engine", "effort", "metric"} <= names


@pytest.mark.parametrize(("function", "parameter"), SHARED)
def test_keyword_takes_what_the_option_takes(function: Any, parameter: inspect.Parameter) -> None:
    taken = members(get_type_hints(function)[parameter.name])
    for kind, declared in OPTIONS[parameter.name]:
        given = members(get_type_hints(kind)[parameter.name]) - {NoneType}
        assert given <= taken, f"{kind.__name__}.{parameter.name}"
        defaults = {declared.default, parameter.default} - {dataclasses.MISSING, inspect.Parameter.empty}
        assert len(defaults) <= 1 or parameter.name in OTHER_DEFAULT, f"{kind.__name__}.{parameter.name}"

"""Keywords of Python functions: they derive from the declared options, which commands take too."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, TypedDict, Union, Unpack, get_args, get_origin, get_type_hints

import pytest

import qglow
import qglow.cli
from qglow.api import options as declarations
from qglow.core.errors import UsageError
from qglow.core.keywords import taking
from qglow.core.options import Bounds, Declared, option, options_of
from qglow.recipe import Recipe
from scripts.write_keywords import MODULES

# Names of files and texts whose content the functions take instead, and what has no declared default.
NOT_DERIVED = {
    "recipe",
    "profile",
    "profiles",
    "shapes",
    "values",
    "states",
    "model",
    "encoder",
    "first",
    "layers",
    "data",
    "calibration_data",
}
NOT_DERIVED |= {"stage", "node", "calibration", "schema", "inputs", "output"}

DECODED = ("prefill", "decode", "texts", "piece", "cache")
OTHER_ON_THE_COMMAND_LINE = {
    **dict.fromkeys(DECODED, "a command without them measures latency"),
    "context": "a command without it compiles the model as it is",
    "tolerance": "per cent for people, a fraction in Python",
    "time_limit": "a command comes to an end by itself, a function when it is told to",
}


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


def dataclasses_of(module: Any) -> Iterator[type]:
    """The dataclasses of a module."""
    yield from (v for v in vars(module).values() if isinstance(v, type) and dataclasses.is_dataclass(v))


def of_commands() -> dict[str, list[tuple[type, Declared]]]:
    """Every option of the command line by its name."""
    found: dict[str, list[tuple[type, Declared]]] = {}
    modules = [
        importlib.import_module(f"qglow.cli.{m.name}") for m in pkgutil.iter_modules(qglow.cli.__path__)
    ]
    for kind in dict.fromkeys(kind for module in modules for kind in dataclasses_of(module)):
        for declared in options_of(kind):
            found.setdefault(declared.name, []).append((kind, declared))
    return found


COMMANDS = of_commands()
FUNCTIONS = dict(functions())
TAKING = {name: function for name, function in FUNCTIONS.items() if hasattr(function, "__wrapped__")}
DECLARED: dict[str, list[Declared]] = {}
for _kind in dict.fromkeys(dataclasses_of(declarations)):
    for _item in options_of(_kind):
        DECLARED.setdefault(_item.name, []).append(_item)


def members(kind: Any) -> set[Any]:
    """The types of a union, or the one type."""
    return set(get_args(kind)) if get_origin(kind) in (Union, UnionType) else {kind}


def members_of_sequence(kind: Any) -> set[Any]:
    """The types that elements of a sequence type may have; none for another type."""
    return members(get_args(kind)[0]) if get_origin(kind) is Sequence else set()


def keywords_of(function: Any) -> dict[str, Any]:
    """The types of the typed dictionary that the last parameter of a function unpacks."""
    (last,) = [
        get_type_hints(function)[p.name]
        for p in inspect.signature(function.__wrapped__).parameters.values()
        if p.kind is inspect.Parameter.VAR_KEYWORD
    ]
    return get_type_hints(get_args(last)[0])


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.parent.name)
def test_the_modules_are_what_the_script_writes(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == MODULES[path](), "scripts/write_keywords.py writes it"


def test_there_are_functions_that_take_options() -> None:
    assert {"compare", "tune", "Model.quantize", "Model.profile", "QuantizedModel.compile"} <= set(TAKING)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_no_function_writes_an_option_out(name: str) -> None:
    function = getattr(FUNCTIONS[name], "__wrapped__", FUNCTIONS[name])
    written = inspect.signature(function).parameters
    assert not [p for p in written if (p in COMMANDS or p in DECLARED) and p not in NOT_DERIVED]


@pytest.mark.parametrize("name", TAKING)
def test_the_signature_has_the_keywords_of_the_type_with_the_declared_defaults(name: str) -> None:
    function = TAKING[name]
    shown, types = inspect.signature(function).parameters, keywords_of(function)
    own = set(inspect.signature(function.__wrapped__).parameters)  # type: ignore[attr-defined]
    assert set(shown) - own == set(types)
    choices = {item.name for item in options_of(Recipe)}
    for option_name in types:
        # Few names mean another thing elsewhere: a bundle's threads are a number, with a default of its own.
        defaults = [None] if option_name in choices else [item.default for item in DECLARED[option_name]]
        assert shown[option_name].default in defaults, option_name


@pytest.mark.parametrize("name", sorted(set(DECLARED) & set(COMMANDS)))
def test_commands_take_the_same_values_with_the_same_default(name: str) -> None:
    taken = {kind for function in TAKING.values() for kind in members(keywords_of(function).get(name))}
    taken |= {Sequence[kind] for listed in taken for kind in members_of_sequence(listed)}
    defaults = [item.default for item in DECLARED[name]]
    for kind, declared in COMMANDS[name]:
        given = members(get_type_hints(kind)[name]) - {NoneType}
        assert given <= taken, kind.__name__
        assert declared.default in defaults or name in OTHER_ON_THE_COMMAND_LINE, kind.__name__


class _Keywords(TypedDict, total=False):
    turns: int


def _declared(default: int) -> Callable[..., Any]:
    @dataclass(frozen=True, kw_only=True)
    class Turns:
        turns: int = option(default, "Turns", bounds=Bounds(1), expected="at least 1")

    @taking(Turns, places=("turns",))
    def play(what: str, *, loud: bool = False, **options: Unpack[_Keywords]) -> str:
        return f"{what} {options['turns']}{'!' * loud}"

    return play


def test_a_changed_declaration_changes_the_signature_and_the_call() -> None:
    assert [_declared(n)("go") for n in (3, 4)] == ["go 3", "go 4"]
    assert [inspect.signature(_declared(n)).parameters["turns"].default for n in (3, 4)] == [3, 4]
    assert _declared(3)("go", 2, loud=True) == "go 2!" == _declared(3)("go", loud=True, turns=2)


def test_wrong_keywords_are_refused_as_wrong_usage() -> None:
    for error in (UsageError, TypeError):
        with pytest.raises(error, match="^'turn' is no keyword of play; did you mean 'turns'"):
            _declared(3)("go", turn=2)
    with pytest.raises(UsageError, match="^turns 0: at least 1"):
        _declared(3)("go", turns=0)
    with pytest.raises(TypeError, match="play: missing a required argument: 'what'"):
        _declared(3)()


def test_a_field_of_a_recipe_alone_is_said_to_be_one() -> None:
    with pytest.raises(TypeError, match=r"'rules' is no keyword of quantize; .* recipe=qglow.Recipe\(rules="):
        qglow.Model.quantize(None, rules=())  # type: ignore[call-arg, arg-type]


def test_a_dictionary_is_no_recipe() -> None:
    with pytest.raises(UsageError, match="recipe is a dict; give a qglow.Recipe, as qglow.load_recipe reads"):
        qglow.Model.quantize(None, recipe={"rules": []})  # type: ignore[arg-type]


def test_models_refuse_an_unknown_option_by_name() -> None:
    with pytest.raises(TypeError, match="'thread' is no keyword of compile; did you mean 'threads'"):
        qglow.QuantizedModel.compile(None, thread=2)  # type: ignore[call-arg, arg-type]

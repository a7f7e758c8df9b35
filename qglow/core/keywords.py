"""Keywords of Python functions that derive from declared options: types, defaults, choices and bounds."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from inspect import Parameter
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from qglow.core.errors import UsageError
from qglow.core.options import Declared, FieldError, options_of, validate

_F = TypeVar("_F", bound=Callable[..., Any])

NOTHING: Mapping[str, type] = MappingProxyType({})
_READ = ("profile", "recipe")
"""Arguments that are what a file holds: `qglow.load_` and the name reads it."""


class UnknownKeyword(UsageError, TypeError):
    """A keyword that a function does not have: wrong usage of qglow, and what Python raises for it."""


def unknown_keyword(name: str, problem: str, valid: Sequence[str]) -> UnknownKeyword:
    """An error for a name that is not among the valid ones; it names the nearest of them, or all."""
    nearest = get_close_matches(name, valid, 1, cutoff=0.5)
    hint = f"did you mean {nearest[0]!r}?" if nearest else f"valid are {', '.join(valid)}"
    return UnknownKeyword(f"{name!r} {problem}; {hint}", field=name)


def keyword_type(item: Declared) -> str:
    """The type that an option has in Python, as text: what its field says, and any path also as text."""
    kind = item.option.keyword or str(item.field.type).replace("Path", "str | Path")
    return f"{kind} | None" if "None" in str(item.field.type) and "None" not in kind else kind


def taking(
    kind: type, choices: type | None = None, places: Sequence[str] = (), within: Mapping[str, type] = NOTHING
) -> Callable[[_F], _F]:
    """Give a function the options of a dataclass as keywords, with the defaults that they declare.

    The function names them by the typed dictionary of its last parameter, `**options: Unpack[...]`, and finds
    every one of them there, given or not, within its choices and bounds. choices: a typed dictionary
    of more keywords, None where they are not given. places: options that may also be given by place. within:
    dataclasses by the argument that takes one; errors say which of them has a field that is no keyword.
    `inspect.signature` and `help` show one keyword for each.

    Calls raise UsageError for a value that an option cannot have, for the path of a profile or recipe, and
    one that is a TypeError too for a keyword that is not there.
    """

    def decorate(function: _F) -> _F:
        signature = _signature(function, kind, choices, places)
        named = [
            name for name, item in signature.parameters.items() if item.kind is not Parameter.POSITIONAL_ONLY
        ]
        options = [item.name for item in options_of(kind)]

        @functools.wraps(function)
        def call(*args: Any, **given: Any) -> Any:
            for name in given:
                if name not in signature.parameters:
                    raise _no_keyword(name, function.__name__, named, within)
            try:
                bound = signature.bind(*args, **given)
            except TypeError as error:
                raise TypeError(f"{function.__qualname__}: {error}") from None
            bound.apply_defaults()
            require_read(bound.arguments)
            _check(kind, {name: bound.arguments[name] for name in options})
            return function(**bound.arguments)

        call.__signature__ = signature  # type: ignore[attr-defined]
        return call  # type: ignore[return-value]

    return decorate


def _no_keyword(name: str, function: str, valid: Sequence[str], within: Mapping[str, type]) -> UnknownKeyword:
    problem = f"is no keyword of {function}"
    for argument, kind in within.items():
        if name in {item.name for item in options_of(kind)}:
            where = f"give {argument}=qglow.{kind.__name__}({name}=...)"
            return UnknownKeyword(f"{name!r} {problem}; {where}", field=name)
    return unknown_keyword(name, problem, valid)


def require_read(arguments: Mapping[str, Any]) -> None:
    """Raise UsageError for the path or the mapping of a profile or recipe in place of what the file holds."""
    for name in _READ:
        given = arguments.get(name)
        if isinstance(given, str | Path):
            what = f"{name} is the path {str(given)!r}; give what qglow.load_{name} reads there"
            raise UsageError(what, field=name)
        if isinstance(given, Mapping):
            kind = type(given).__name__
            what = f"{name} is a {kind}; give a qglow.{name.title()}, as qglow.load_{name} reads"
            raise UsageError(what, field=name)


def _check(kind: type, values: Mapping[str, Any]) -> None:
    try:
        validate(kind(**values))
    except FieldError as error:
        raise UsageError(str(error), field=error.field) from error


def _signature(
    function: Callable[..., Any], kind: type, choices: type | None, places: Sequence[str]
) -> inspect.Signature:
    written = inspect.signature(function)
    own = [item for item in written.parameters.values() if item.kind is not Parameter.VAR_KEYWORD]
    derived = {item.name: item for item in _parameters(kind, choices)}
    placed = [derived.pop(name).replace(kind=Parameter.POSITIONAL_OR_KEYWORD) for name in places]
    by_place = [item for item in own if item.kind is not Parameter.KEYWORD_ONLY]
    by_name = [item for item in own if item.kind is Parameter.KEYWORD_ONLY]
    return written.replace(parameters=[*by_place, *placed, *by_name, *derived.values()])


def _parameters(kind: type, choices: type | None) -> Iterator[Parameter]:
    for item in options_of(kind):
        yield Parameter(
            item.name, Parameter.KEYWORD_ONLY, default=item.default, annotation=keyword_type(item)
        )
    for name, hint in choices.__annotations__.items() if choices is not None else ():
        text = getattr(hint, "__forward_arg__", hint)
        yield Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=text)

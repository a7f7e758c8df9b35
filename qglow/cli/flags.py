"""Names of options as the command line has them, in messages that name fields."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from qglow.core.errors import QglowError

_MARKED = re.compile(r"`([a-z_]+)(?:=([^`]*))?`")


class Flag(NamedTuple):
    """Spelling of an option: "--smooth", and "--no-smooth" if there is such a flag."""

    name: str
    negative: str | None = None
    takes_value: bool = True


def flags_of(command: Any) -> dict[str, Flag]:
    """The flags of a command by the names of its options; an argument has its place's name."""
    return {parameter.name: _flag(parameter) for parameter in command.params}


def _flag(parameter: Any) -> Flag:
    if parameter.param_type_name == "argument":
        return Flag(str(parameter.metavar or parameter.name).strip("[]."))
    name = next((name for name in parameter.opts if name.startswith("--")), parameter.opts[0])
    return Flag(name, next(iter(parameter.secondary_opts), None), not parameter.is_flag)


def spoken(error: QglowError, flags: Mapping[str, Flag]) -> tuple[str, ...]:
    """The message of an error and its details, with flags in the place of fields.

    These are the error's own field where the message begins with it, and those in backquotes. What no
    option is called stays as it is.
    """
    text, field = Exception.__str__(error), error.field
    if field is not None and field in flags and re.match(rf"{field}\b", text):
        text = flags[field].name + text[len(field) :]
    lines = (text, *error.details)
    return tuple(_MARKED.sub(lambda match: _written(match, flags), line) for line in lines)


def _written(match: re.Match[str], flags: Mapping[str, Flag]) -> str:
    name, value = match[1], match[2]
    if name not in flags:
        return match[0]
    flag = flags[name]
    if value is None or (value == "true" and not flag.takes_value):
        return flag.name
    if value == "false" and flag.negative is not None:
        return flag.negative
    return f"{flag.name} {value}"

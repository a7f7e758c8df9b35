"""Options, each declared once: in a field of a dataclass, with its help, reader, bounds and scope.

What else speaks of an option derives from that field: the parameters and the help of a command, the reader
and the writer of recipe files, typed keywords of the Python functions, and the reference pages.
"""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, NamedTuple

from qglow.core.errors import UsageError

_KEY = "option"
_LARGEST = 2**63 - 1

Read = Callable[[object], Any]
"""Makes the value of what a file, a keyword or the command line gives. Raises ValueError."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The numbers from `low` to `high`, both included."""

    low: float = -math.inf
    high: float = math.inf

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high


class Writes(enum.Enum):
    """Kind of what a command makes of the path that an option names.

    REPORTS is a folder that may be one that is read. UPDATE is a file that is read and then replaced, STATE
    one that is kept to go on from.
    """

    NOTHING = "nothing"
    FILE = "file"
    FOLDER = "folder"
    FILE_OR_FOLDER = "file or folder"
    REPORTS = "reports"
    UPDATE = "update"
    STATE = "state"

    @property
    def takes_folder(self) -> bool:
        """Whether a folder may be there already."""
        return self in (Writes.FOLDER, Writes.FILE_OR_FOLDER, Writes.REPORTS)

    @property
    def takes_file(self) -> bool:
        """Whether a file may be there already."""
        return self not in (Writes.FOLDER, Writes.REPORTS)


@dataclass(frozen=True, slots=True)
class Option:
    """Declaration of an option, besides its name, type and default, which the field has.

    help: one plain sentence, which `choices` follow. more: what a reference page adds to it.
    group: the heading that it stands under. metavar: what its value is called.
    read: makes a value of what is given, None if the type alone does. write: the value as recipe files
    have it. choices: the only texts allowed. bounds, expected: the only numbers allowed, and how to say so.
    nested: the dataclass whose options are its keys. key: its name in files where that is not the field's.
    typed: the type of words on the command line, where it is not the field's. keyword: the type in Python.
    flags: "--name" and "-n", where it is not "--" and the field's name; negative: the flag that says no.
    argument: it is given by place and not by a flag. only_in_files: a recipe file alone can give it.
    writes: what is written to its path; a path that nothing is written to is an input. reads: its text may
    be the path of an input.
    """

    help: str
    more: str = ""
    group: str = "Options"
    metavar: str | None = None
    read: Read | None = None
    write: Callable[[Any], object] | None = None
    choices: tuple[str, ...] = ()
    bounds: Bounds | None = None
    expected: str = ""
    nested: type | None = None
    key: str | None = None
    typed: Any = None
    keyword: str | None = None
    flags: tuple[str, ...] = ()
    negative: str | None = None
    argument: bool = False
    only_in_files: bool = False
    writes: Writes = Writes.NOTHING
    reads: bool = False


class Declared(NamedTuple):
    """An option of a dataclass, with what its field says."""

    name: str
    field: dataclasses.Field[Any]
    option: Option

    @property
    def key(self) -> str:
        """The name in files."""
        return self.option.key or self.name

    @property
    def flags(self) -> tuple[str, ...]:
        """Names on the command line, the one to call it by first; none for what is given by place."""
        if self.option.argument:
            return ()
        return self.option.flags or ("--" + self.name.replace("_", "-"),)

    @property
    def default(self) -> Any:
        """The default, or `dataclasses.MISSING`."""
        factory = self.field.default_factory
        return self.field.default if factory is dataclasses.MISSING else factory()


class FieldError(ValueError):
    """A value that an option cannot have. The message begins with the option's name."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}{problem}")
        self.field = field


def option(default: Any = dataclasses.MISSING, help: str = "", *, kw_only: bool = False, **about: Any) -> Any:
    """A field of a dataclass that is an option; `about` is what `Option` says of it. No default: required."""
    return declare(Option(help, **about), default, kw_only=kw_only)


def declare(declared: Option, default: Any = dataclasses.MISSING, *, kw_only: bool = False) -> Any:
    """A field for an option that several dataclasses have. Its default may be a function that makes it."""
    made: dict[str, Any] = {"default_factory" if callable(default) else "default": default}
    if kw_only:  # else as the dataclass has it
        made["kw_only"] = True
    return dataclasses.field(**made, metadata={_KEY: declared})


def options_of(kind: type) -> Iterator[Declared]:
    """The options of a dataclass in the order of its fields."""
    for field in dataclasses.fields(kind):
        if _KEY in field.metadata:
            yield Declared(field.name, field, field.metadata[_KEY])


def validate(instance: Any) -> None:
    """Hold an object's values to the choices and bounds of its options; None passes.

    Numbers are finite, whatever the bounds: a limit that is NaN would hold nothing back. Raises FieldError.
    """
    for name, _, declared in options_of(type(instance)):
        value = getattr(instance, name)
        if value is None or isinstance(value, bool):
            continue
        require_numbers(name, value)
        if declared.choices and value not in declared.choices:
            raise FieldError(name, f" {not_one_of(value, declared.choices)}")
        if declared.bounds is not None and value not in declared.bounds:
            raise FieldError(name, f" {value:g}: {declared.expected}")


def require_numbers(name: str, value: object) -> None:
    """Raise FieldError for NaN, an infinity, or a whole number of more than 64 bits, in lists too."""
    if isinstance(value, tuple | list):
        for item in value:
            require_numbers(name, item)
    elif isinstance(value, float) and not math.isfinite(value):
        raise FieldError(name, f" {value:g}: it has to be a finite number")
    elif isinstance(value, int) and abs(value) > _LARGEST:
        raise FieldError(name, f" is a number of {value.bit_length()} bits; at most 63 make sense")


def require_limits(limits: Any) -> None:
    """Hold the fields of a dataclass of limits to `require_numbers`. Raises UsageError."""
    try:
        for field in dataclasses.fields(limits):
            require_numbers(field.name, getattr(limits, field.name))
    except FieldError as error:
        raise UsageError(str(error), field=error.field) from error


def read_value(declared: Declared, value: object) -> Any:
    """The value of an option as a file, a keyword or the command line gives it. Raises FieldError."""
    if declared.option.read is None:
        return value
    try:
        return declared.option.read(value)
    except FieldError:
        raise
    except ValueError as error:
        repeats = isinstance(value, str) and str(error).startswith((value, repr(value)))
        raise FieldError(declared.name, f"{'' if repeats else ':'} {error}") from error


def to_document(instance: Any, *, skip: Callable[[Any], bool] = lambda value: False) -> dict[str, object]:
    """An object's options as the mapping that files have, without the values that `skip` picks.

    Nested mappings that are as by default are left out.
    """
    document: dict[str, object] = {}
    for declared in options_of(type(instance)):
        value = getattr(instance, declared.name)
        if skip(value):
            continue
        if declared.option.nested is None:
            document[declared.key] = (declared.option.write or _plain)(value)
        elif value != declared.default:
            document[declared.key] = to_document(value, skip=skip)
    return document


def not_one_of(value: object, valid: tuple[str, ...]) -> str:
    """The words for a value that is not among those allowed; they name the nearest of them."""
    nearest = get_close_matches(str(value), valid, 1, cutoff=0.5)
    hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
    return f"{value!r} is not one of {', '.join(valid)}{hint}"


def described(declared: Option) -> str:
    """The help with the choices."""
    return f"{declared.help}: {', '.join(declared.choices)}" if declared.choices else declared.help


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    return list(value) if isinstance(value, tuple) else value

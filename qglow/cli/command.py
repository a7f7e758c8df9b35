"""Commands whose parameters are dataclasses of options, from which Typer's parameters and help derive."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, get_origin, get_type_hints, is_typeddict

import typer

from qglow.api.options import CustomOperatorOptions
from qglow.cli.help import PlainCommand
from qglow.cli.paths import checked_paths
from qglow.core.errors import UsageError
from qglow.core.options import Declared, FieldError, described, options_of, read_value, validate
from qglow.recipe.schema import Recipe

(_LIBRARIES,) = (item.name for item in options_of(CustomOperatorOptions))


@dataclass(frozen=True)
class Gathered:
    """Options that one parameter of a command takes together, as a dataclass or as choices of a recipe."""

    name: str
    kind: type
    options: tuple[Declared, ...]
    types: Mapping[str, Any]

    @property
    def is_choices(self) -> bool:
        """Whether the values are those given, by name, to override a recipe's."""
        return is_typeddict(self.kind)

    def parameters(self) -> Iterator[inspect.Parameter]:
        """Yield a parameter for Typer for each option."""
        for item in self.options:
            kind = item.option.typed or self.types[item.name]
            default = None if self.is_choices else item.default
            if self.is_choices or (item.option.typed is not None and default is not dataclasses.MISSING):
                kind = kind | None
                default = None
            required = default is dataclasses.MISSING
            yield inspect.Parameter(
                item.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=inspect.Parameter.empty if required else default,
                annotation=Annotated[kind, _typer_parameter(item)],
            )

    def gather(self, values: Mapping[str, Any]) -> Any:
        """The dataclass, or the mapping of choices, of a command line's values. Raises UsageError."""
        given = {item.name: values[item.name] for item in self.options if _is_given(item, values[item.name])}
        if self.is_choices:
            return given
        try:
            read = {
                item.name: read_value(item, given[item.name]) for item in self.options if item.name in given
            }
            made = self.kind(**read)
            validate(made)
        except FieldError as error:
            raise UsageError(str(error), field=error.field) from error
        return made

    def pairs(self, made: Any) -> Iterator[tuple[Declared, Any]]:
        """The options with their values in what `gather` made; a recipe's choices name no files."""
        if not self.is_choices:
            yield from ((item, getattr(made, item.name)) for item in self.options)


@dataclass(frozen=True)
class Command:
    """Function of a command, and command lines that show it.

    Each parameter of `function` is annotated with a dataclass of options, or with `RecipeChoices`; its
    docstring is the help.
    """

    function: Callable[..., None]
    examples: Sequence[str] = ()


def add_command(app: typer.Typer, name: str, command: Command) -> None:
    """Add a command to an application."""
    groups = gathered(command.function)

    def run(**values: Any) -> None:
        made = {group.name: group.gather(values) for group in groups}
        with checked_paths(pair for group in groups for pair in group.pairs(made[group.name])):
            _use_libraries(pair for group in groups for pair in group.pairs(made[group.name]))
            command.function(**made)

    parameters = [parameter for group in groups for parameter in group.parameters()]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    run.__doc__ = command.function.__doc__
    app.command(name, cls=PlainCommand, epilog="\n".join(command.examples))(run)


def _use_libraries(values: Iterable[tuple[Declared, Any]]) -> None:
    """Load the libraries of custom operators among the values of a command's options."""
    named = [path for item, value in values if item.name == _LIBRARIES for path in value]
    if named:
        from qglow.host.libraries import use_libraries

        use_libraries(named)


def gathered(function: Callable[..., None]) -> tuple[Gathered, ...]:
    """The options of a command by the parameter of its function that takes them."""
    hints = get_type_hints(function)
    return tuple(_gathered(name, hints[name]) for name in inspect.signature(function).parameters)


def _gathered(name: str, kind: type) -> Gathered:
    if not is_typeddict(kind):
        return Gathered(name, kind, tuple(options_of(kind)), get_type_hints(kind))
    options = tuple(item for item in options_of(Recipe) if item.name in kind.__annotations__)
    return Gathered(name, kind, options, get_type_hints(Recipe))


def _typer_parameter(item: Declared) -> Any:
    option = item.option
    words, metavar = help_text(item), _metavar(item)
    if option.argument:
        return typer.Argument(help=words, metavar=metavar, rich_help_panel=option.group, show_default=False)
    flags = list(item.flags)
    if option.negative is not None:
        flags[0] += f"/{option.negative}"
    return typer.Option(*flags, help=words, metavar=metavar, rich_help_panel=option.group, show_default=False)


def help_text(item: Declared) -> str:
    """The help of an option with its choices and its default."""
    default = item.default
    if get_origin(item.option.typed) is list and not item.option.argument:
        return f"{described(item.option)} (repeatable)"
    if default is dataclasses.MISSING and not item.option.argument:
        return f"{described(item.option)} (required)"
    if default is dataclasses.MISSING or not default or item.option.typed is not None:
        return described(item.option)
    if isinstance(default, bool):
        return f"{item.option.help} [default: on]"
    if item.option.choices:
        names = (f"{name} (default)" if name == default else name for name in item.option.choices)
        return f"{item.option.help}: {', '.join(names)}"
    return f"{item.option.help} [default: {default}]"


def _metavar(item: Declared) -> str | None:
    if item.option.metavar is not None:
        return item.option.metavar
    return "NAME" if item.option.choices else None


def _is_given(item: Declared, value: Any) -> bool:
    if value is None:
        return False
    if isinstance(value, list | tuple):
        return bool(value)
    return item.option.negative is not None or value is not False

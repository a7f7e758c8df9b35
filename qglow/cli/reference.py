"""The reference of commands, options and keys of recipes as Markdown, from their declarations."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import typer

from qglow.cli.command import gathered
from qglow.cli.help import grouped, label_of, usage_of
from qglow.cli.main import COMMANDS, app
from qglow.core.options import Declared, described, options_of
from qglow.recipe.rules import Rule
from qglow.recipe.schema import Recipe

_HELP = "help"


def markdown() -> str:
    """All of it: commands, then recipes."""
    return f"# Commands\n\n{commands_markdown()}\n# Recipe\n\n{recipe_markdown()}"


def commands_markdown() -> str:
    """A section for each command: usage, what it does, its options, examples."""
    group: Any = typer.main.get_command(app)
    context = group.make_context("qglow", [], resilient_parsing=True)
    return "\n".join(_command(name, group.commands[name], context) for name in group.list_commands(context))


def recipe_markdown() -> str:
    """A table of all keys of recipes, and one of the keys of their rules."""
    keys = _table(("key", "default", "meaning"), _keys(Recipe, ""))
    rules = _table(("key of a rule", "meaning"), ((key, text) for key, _, text in _keys(Rule, "")))
    return f"{keys}\n{rules}"


def _command(name: str, command: Any, context: Any) -> str:
    context = type(context)(command, info_name=name, parent=context)
    more = {
        item.name: item.option.more
        for group in gathered(COMMANDS[name].function)
        if not group.is_choices  # what these are is said with the recipe
        for item in group.options
    }
    parts = [
        f"## qglow {name}\n",
        f"```text\n{usage_of(command, context)}\n```\n",
        f"{_text(command.help)}\n",
    ]
    for title, parameters in grouped(command, context):
        shown = [parameter for parameter in parameters if parameter.name != _HELP]
        rows = [
            (_code(label_of(parameter)), _sentences(parameter.help or "", more.get(parameter.name, "")))
            for parameter in shown
        ]
        parts += [_table((title, "meaning"), rows)] if rows else []
    return "\n".join((*parts, "```sh\n" + "\n".join(COMMANDS[name].examples) + "\n```\n"))


def _keys(kind: type, prefix: str) -> Iterator[tuple[str, str, str]]:
    for item in options_of(kind):
        if item.option.nested is not None:
            yield from _keys(item.option.nested, f"{prefix}{item.key}.")
        else:
            text = _sentences(described(item.option), item.option.more)
            yield _code(prefix + item.key), _default(item), text


def _default(item: Declared) -> str:
    if item.default is dataclasses.MISSING or item.default is None:
        return "none"
    value = (item.option.write or _plain)(item.default)
    return _code(str(value).lower() if isinstance(value, bool) else str(value))


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def _code(text: str) -> str:
    return f"`{text}`".replace("|", "\\|")


def _sentences(first: str, more: str) -> str:
    return " ".join((f"{first.rstrip('.')}.", more)).strip().replace("|", "\\|")


def _text(text: str | None) -> str:
    return "\n\n".join(" ".join(block.split()) for block in (text or "").split("\n\n"))

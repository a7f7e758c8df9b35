"""Help as plain text: options under headings, one line each where they fit, an example at the end."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

from typer.core import TyperCommand, TyperGroup

WIDTH = 100
"""Columns of a help text at most."""
_GAP = 2
_OTHERS = "Other options"
_LAST = ("Output", _OTHERS)

Row = tuple[str, str]


class PlainCommand(TyperCommand):
    """A command whose help has the headings that its options name."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help."""
        formatter.write(command_help(self, ctx))


class PlainGroup(TyperGroup):
    """All commands, whose help lists them."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help."""
        rows = [
            (name, _first_sentence(self.commands[name].help))
            for name in self.list_commands(ctx)
            if not self.commands[name].hidden
        ]
        sections = [f"Usage: {ctx.command_path} COMMAND [OPTIONS]", _paragraphs(self.help or "")]
        sections += [_section("Commands", rows), _section("Options", _rows(self.get_params(ctx)))]
        formatter.write("\n\n".join((*sections, *_examples(self.epilog))) + "\n")


def command_help(command: Any, ctx: Any) -> str:
    """The whole help text of a command."""
    groups = [(title, _rows(parameters)) for title, parameters in grouped(command, ctx)]
    width = max(len(label) for _, rows in groups for label, _ in rows)
    parts = [usage_of(command, ctx), _paragraphs(command.help or "")]
    parts += [_section(title, rows, width) for title, rows in groups]
    return "\n\n".join((*parts, *_examples(command.epilog))) + "\n"


def usage_of(command: Any, ctx: Any) -> str:
    """The line that says how a command is called."""
    arguments = (p for p in command.get_params(ctx) if p.param_type_name == "argument")
    return " ".join((f"Usage: {ctx.command_path} [OPTIONS]", *map(label_of, arguments)))


def grouped(command: Any, ctx: Any) -> list[tuple[str, list[Any]]]:
    """Headings in the order in which options name them, each with its arguments and then its options."""
    groups: dict[str, list[Any]] = {}
    for parameter in command.get_params(ctx):
        groups.setdefault(getattr(parameter, "rich_help_panel", None) or _OTHERS, []).append(parameter)
    for parameters in groups.values():
        parameters.sort(key=lambda parameter: parameter.param_type_name != "argument")
    return sorted(groups.items(), key=lambda group: _LAST.index(group[0]) if group[0] in _LAST else -1)


def label_of(parameter: Any) -> str:
    """ "-o, --output FILE", "--[no-]equalize", or the name of what is given by place."""
    if parameter.param_type_name == "argument":
        return str(parameter.metavar or parameter.name)
    names = sorted(parameter.opts, key=lambda name: name.startswith("--"))
    if parameter.secondary_opts:
        names = [f"--[no-]{names[-1].removeprefix('--')}"]
    label = ", ".join(names)
    return label if parameter.is_flag else f"{label} {parameter.metavar or 'VALUE'}"


def _rows(parameters: Iterable[Any]) -> list[Row]:
    return [(label_of(parameter), (parameter.help or "").rstrip(".")) for parameter in parameters]


def _section(title: str, rows: Sequence[Row], width: int | None = None) -> str:
    widest = width or max(len(label) for label, _ in rows)
    lines = [f"{title}:"]
    for label, text in rows:
        head = f"  {label:<{widest}}" + " " * _GAP
        blank = " " * len(head)
        lines += textwrap.wrap(text, _columns(), initial_indent=head, subsequent_indent=blank) or [
            head.rstrip()
        ]
    return "\n".join(lines)


def _paragraphs(text: str) -> str:
    blocks = [" ".join(block.split()) for block in text.split("\n\n")]
    return "\n\n".join(textwrap.indent(textwrap.fill(block, _columns() - 2), "  ") for block in blocks)


def _examples(epilog: str | None) -> list[str]:
    lines = (epilog or "").splitlines()
    title = "Example:" if len(lines) == 1 else "Examples:"
    return ["\n".join((title, *(f"  {line}" for line in lines)))] if lines else []


def _first_sentence(text: str | None) -> str:
    return (text or "").split("\n\n")[0].replace("\n", " ").rstrip(".")


def _columns() -> int:
    return min(shutil.get_terminal_size((WIDTH, 50)).columns, WIDTH)

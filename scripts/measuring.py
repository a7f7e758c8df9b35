"""The frame of the scripts that measure: options, progress, the table wherever it goes, and the exit code."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeVar

from readme_tables import update_readme

from qglow.core.errors import QglowError
from qglow.core.files import write_atomically


class Named(Protocol):
    """Anything that is told apart by a name."""

    @property
    def name(self) -> str:
        """Unique among its kind."""


N = TypeVar("N", bound=Named)


@dataclass(frozen=True)
class Outcome:
    """What a script found.

    table: to print. readme: makes what takes its place in the README, if it is not the same.
    json: the figures as JSON. failures: promises that do not hold, a line each.
    """

    table: str
    readme: Callable[[], str] | None = None
    json: str | None = None
    failures: Sequence[str] = field(default=())


def option_parser(description: str | None, models: Sequence[str] = ()) -> argparse.ArgumentParser:
    """--models, of which `models` is the default (none: the script's all), and --update-readme."""
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=description, formatter_class=layout)
    shown = f"default: {' '.join(models)}" if models else "only these"
    parser.add_argument("--models", nargs="+", default=list(models), metavar="NAME", help=shown)
    parser.add_argument("--update-readme", action="store_true", help="put the table into README.md")
    return parser


def add_json_option(parser: argparse.ArgumentParser) -> None:
    """--json FILE."""
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures as JSON too")


def add_alternations_option(parser: argparse.ArgumentParser, default: int) -> None:
    """--alternations N."""
    what = f"turns that a program takes ({default})"
    parser.add_argument("--alternations", type=int, default=default, metavar="N", help=what)


def with_progress(models: Iterable[N], *parts: str) -> Iterator[N]:
    """The models, each announced when its turn comes."""
    for model in models:
        announce(model.name, *parts)
        yield model


def announce(*names: str) -> None:
    """Say on standard error what is measured now."""
    print(*names, "...", file=sys.stderr, flush=True)


def run(
    name: str,
    parser: argparse.ArgumentParser,
    measure: Callable[[argparse.Namespace], Outcome],
    arguments: Sequence[str] | None = None,
) -> int:
    """Measure, print, and write what the options ask for; `name` is that of the table in the README.

    Returns 0, or 1 where a promise does not hold, or the exit code of an error of qglow.
    """
    options = parser.parse_args(arguments)
    try:
        found = measure(options)
        print(found.table)
        if getattr(options, "json", None) is not None and found.json is not None:
            write_atomically(options.json, found.json)
        if options.update_readme:
            update_readme(name, found.readme() if found.readme else found.table)
    except QglowError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    for failure in found.failures:
        print(failure, file=sys.stderr)
    return 1 if found.failures else 0

"""What all benchmarks share: options, progress, where tables and figures go, and the exit code."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

from qglow.core.errors import InputFileError, QglowError, UsageError
from qglow.core.files import write_atomically
from scripts.benchmarks.tables import conditions, update_page


class Named(Protocol):
    """Anything that is told apart by a name."""

    @property
    def name(self) -> str:
        """Unique among its kind."""


N = TypeVar("N", bound=Named)


@dataclass(frozen=True)
class Outcome:
    """What a benchmark found.

    table: to print. page: makes the text for the documentation where that differs from `table`.
    json: the figures as JSON. failures: one line for each promise that does not hold.
    """

    table: str
    page: Callable[[], str] | None = None
    json: str | None = None
    failures: Sequence[str] = field(default=())


@dataclass(frozen=True)
class Benchmark:
    """A benchmark as the command line runs it.

    description: the help text. measure: takes the options. table: the name of its table in the
    documentation; None for none, and then there is no --update-docs. models: the default of --models;
    empty for all, None for a benchmark without that option. add_options: adds its other options.
    """

    description: str | None
    measure: Callable[[argparse.Namespace], Outcome]
    table: str | None = None
    models: Sequence[str] | None = ()
    add_options: Callable[[argparse.ArgumentParser], None] = lambda parser: None

    def parser(self, name: str) -> argparse.ArgumentParser:
        """Of all options; `name` is what the command line calls it."""
        layout = argparse.RawDescriptionHelpFormatter
        program = f"python -m scripts.benchmarks {name}"
        parser = argparse.ArgumentParser(program, description=self.description, formatter_class=layout)
        if self.models is not None:
            shown = f"default: {' '.join(self.models)}" if self.models else "only these"
            chosen = list(self.models)
            parser.add_argument("--models", nargs="+", default=chosen, metavar="NAME", help=shown)
        if self.table is not None:
            what = "put the table into the documentation"
            parser.add_argument("--update-docs", action="store_true", help=what)
        self.add_options(parser)
        return parser


def run(benchmark: Benchmark, arguments: Sequence[str], name: str = "") -> int:
    """Measure, print, and write what the options ask for.

    Returns 0, or 1 where a promise does not hold, or the exit code of an error of qglow.
    """
    options = benchmark.parser(name).parse_args(arguments)
    try:
        found = benchmark.measure(options)
        print(found.table)
        if getattr(options, "json", None) is not None and found.json is not None:
            write_atomically(options.json, found.json)
        if benchmark.table is not None and options.update_docs:
            update_page(benchmark.table, found.page() if found.page else found.table)
    except QglowError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    for failure in found.failures:
        print(failure, file=sys.stderr)
    return 1 if found.failures else 0


def add_json_option(parser: argparse.ArgumentParser) -> None:
    """--json FILE."""
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures as JSON too")


def add_limit_option(parser: argparse.ArgumentParser, default: int | None = None) -> None:
    """--limit N."""
    what = f"evaluate the first N samples only ({default or 'all'})"
    parser.add_argument("--limit", type=int, default=default, metavar="N", help=what)


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


class OfModel(Protocol):
    """Figures of one model."""

    @property
    def model(self) -> str:
        """Name of the model."""


R = TypeVar("R", bound=OfModel)


def read_rows(path: Path, row: Callable[[dict[str, Any]], R]) -> dict[str, R]:
    """Read the rows of an earlier measurement here, by model; `row` makes one of its fields.

    Raises InputFileError for a file that --json did not write, UsageError for one of other conditions.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        rows = [row(fields) for fields in document["models"]]
        measured = document["conditions"]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise InputFileError(f"{path}: not figures that --json wrote ({error}); remove it") from error
    if measured != conditions():
        raise UsageError(f"{path}: measured under other conditions; remove it")
    return {row.model: row for row in rows}


def json_document(**figures: object) -> str:
    """Figures as JSON, with the conditions that they were measured under."""
    return json.dumps({"conditions": conditions(), **figures}, indent=2) + "\n"

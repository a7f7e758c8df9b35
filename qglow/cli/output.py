"""What commands print: results on standard output, notes and progress on standard error."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from rich.console import Console

from qglow.profiling.progress import Advance, progress
from qglow.report.document import Section
from qglow.report.terminal import print_section

_WIDTH = 150
"""Columns where standard output is a file or a pipe."""


def say(text: str = "") -> None:
    """A result, on standard output."""
    print(text)


def show(*sections: Section) -> None:
    """Sections of a report, as tables on standard output."""
    stream = sys.stdout if sys.stdout.isatty() else io.StringIO()
    console = Console(file=stream, highlight=False, width=None if sys.stdout.isatty() else _WIDTH)
    for section in sections:
        print_section(section, console)
    if isinstance(stream, io.StringIO):  # cells are padded with blanks, which a log has no use for
        print("\n".join(line.rstrip() for line in stream.getvalue().splitlines()))


def note(text: str) -> None:
    """Something worth knowing that is not the result, on standard error."""
    print(f"note: {text}", file=sys.stderr, flush=True)


def notes(texts: Iterable[str]) -> None:
    """Several notes."""
    for text in texts:
        note(text)


def warn(texts: Iterable[str]) -> None:
    """What may well be a mistake, on standard error."""
    for text in texts:
        print(f"warning: {text}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def showing_progress(what: str, unit: str = "samples") -> Iterator[Callable[[int | None], Advance]]:
    """Yields what the API takes as `progress`: rate and remaining time, as long as the block lasts."""
    with contextlib.ExitStack() as stack:

        def start(total: int | None) -> Advance:
            return stack.enter_context(progress(what, total, unit=unit, plain=True))

        yield start


@contextlib.contextmanager
def keeping(state: Path | None) -> Iterator[None]:
    """Say where the state is when the user interrupts."""
    try:
        yield
    except KeyboardInterrupt:
        if state is not None and state.exists():
            note(f"{state} has what was found; the same command goes on from there")
        raise

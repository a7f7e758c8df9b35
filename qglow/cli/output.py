"""Output of commands: results on standard output, notes and progress on standard error."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from qglow.core.printable import printable

if TYPE_CHECKING:
    from qglow.core.progress import Advance
    from qglow.display.blocks import Section

_WIDTH = 150
"""Columns where standard output is a file or a pipe."""


def say(*lines: str) -> None:
    """Lines of a result, on standard output; no name in them begins a line of its own."""
    for line in lines:
        print(printable(line))


def listing(text: str) -> None:
    """A text of many lines, such as IR, on standard output."""
    print(printable(text.rstrip("\n"), lines=True))


def show(*sections: Section) -> None:
    """Sections of a report, as tables on standard output."""
    from rich.console import Console

    from qglow.display.terminal import print_section

    stream = sys.stdout if sys.stdout.isatty() else io.StringIO()
    console = Console(file=stream, highlight=False, width=None if sys.stdout.isatty() else _WIDTH)
    for section in sections:
        print_section(section, console)
    if isinstance(stream, io.StringIO):  # cells are padded with blanks, which a log has no use for
        print("\n".join(line.rstrip() for line in stream.getvalue().splitlines()))


def note(text: str) -> None:
    """Print a note that is not the result on standard error."""
    print(f"note: {printable(text)}", file=sys.stderr, flush=True)


def notes(texts: Iterable[str]) -> None:
    """Several notes."""
    for text in texts:
        note(text)


def warn(texts: Iterable[str]) -> None:
    """Print warnings of likely mistakes on standard error."""
    for text in texts:
        print(f"warning: {printable(text)}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def showing_progress(what: str, unit: str = "samples") -> Iterator[Callable[[int | None], Advance]]:
    """Yields what the API takes as `progress`: rate and remaining time, as long as the block lasts."""
    from qglow.profiling.progress import progress

    with contextlib.ExitStack() as stack:

        def start(total: int | None) -> Advance:
            return stack.enter_context(progress(printable(what), total, unit=unit, plain=True))

        yield start


def end_if_interrupted(stopped: Sequence[str], left: str) -> None:
    """End the command as an interrupted one, with what it leaves, if the user stopped some of its work."""
    if stopped:
        note(f"interrupted while {stopped[0]}; {left}")
        raise KeyboardInterrupt


@contextlib.contextmanager
def keeping(state: Path | None) -> Iterator[None]:
    """Say where the state is when the user interrupts."""
    try:
        yield
    except KeyboardInterrupt:
        if state is not None and state.exists():
            note(f"{state} has what was found; the same command goes on from there")
        raise

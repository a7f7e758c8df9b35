"""Progress of a long pass over data, on standard error: done, rate, remaining time."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

from qglow.core.progress import Advance

_SECONDS_BETWEEN_LINES = 5.0


@contextmanager
def progress(
    what: str,
    total: int | None,
    *,
    unit: str = "samples",
    plain: bool = False,
    stream: TextIO | None = None,
) -> Iterator[Advance]:
    """Yields a function to call with the number of units done since the last call.

    A terminal gets a bar; anything else gets nothing or, where `plain` is set, a line every few
    seconds and one at the end. `total` is None if it is not known.
    """
    stream = stream or sys.stderr
    if stream.isatty():
        with _bar(stream, unit) as bar:
            task = bar.add_task(what, total=total)
            yield lambda done: bar.advance(task, done)
    elif plain:
        lines = _Lines(what, total, unit, stream)
        yield lines.advance
        lines.finish()
    else:
        yield lambda done: None


def _bar(stream: TextIO, unit: str) -> Progress:
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        _Counts(unit),
        TextColumn("remaining"),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=Console(file=stream))


class _Counts(ProgressColumn):
    """ "120/900 samples, 41.3/s"."""

    def __init__(self, unit: str) -> None:
        super().__init__()
        self._unit = unit

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        total = None if task.total is None else int(task.total)
        return Text(counts(int(task.completed), total, self._unit, speed))


def counts(done: int, total: int | None, unit: str, rate: float | None) -> str:
    """ "120/900 samples, 41.3/s"; without the total or the rate where they are not known."""
    amount = f"{done} {unit}" if total is None else f"{done}/{total} {unit}"
    return amount if rate is None else f"{amount}, {rate:.1f}/s"


class _Lines:
    """Progress as lines of a log."""

    def __init__(self, what: str, total: int | None, unit: str, stream: TextIO) -> None:
        self._what, self._total, self._unit, self._stream = what, total, unit, stream
        self._done = self._told = 0
        self._start = self._written = time.monotonic()

    def advance(self, done: int) -> None:
        self._done += done
        if time.monotonic() - self._written >= _SECONDS_BETWEEN_LINES:
            self.write()

    def finish(self) -> None:
        if self._told < self._done or self._done == 0:
            self.write()

    def write(self) -> None:
        self._written = time.monotonic()
        self._told = self._done
        rate = self._done / max(self._written - self._start, 1e-9)
        line = f"{self._what}: {counts(self._done, self._total, self._unit, rate)}"
        if self._total is not None and 0 < self._done < self._total:
            line += f", {(self._total - self._done) / rate:.0f} s remaining"
        print(line, file=self._stream, flush=True)

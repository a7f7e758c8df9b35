"""Latency of several programs on one machine, measured so that noise hits all of them alike.

Programs take turns (A B C A B C ...), each after an untimed call of its own, so that caches and
clocks are as a busy loop would have them. What counts is the median and the ratio of medians.
"""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from qglow.core.errors import UsageError
from qglow.core.types import Array
from qglow.display.blocks import Paragraph, Section, milliseconds, table
from qglow.display.frames import frame
from qglow.display.lines import counted, listed
from qglow.display.plots import draw_bars
from qglow.display.shown import Shown
from qglow.report.hosted_time import HostedTime
from qglow.report.significance import outside_median

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes

Contender = Callable[[], None]

MIN_ALTERNATIONS = 20
# A timed turn lasts at least this long, so that reading the clock costs nothing that counts.
TURN_NS = 300_000
_MAX_REPEATS = 10_000


@dataclass(frozen=True, slots=True)
class Latency:
    """Milliseconds a call over all alternations; `repeats` calls were timed together in each turn."""

    name: str
    median_ms: float
    p10_ms: float
    p90_ms: float
    repeats: int


@dataclass(frozen=True, slots=True)
class Ratio:
    """Time of `name` relative to `base`: ratio of medians, and p10 to p90 of paired turns."""

    name: str
    base: str
    ratio: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class RatioInterval:
    """Median of the ratios of paired turns, and the interval that covers the true one at 99 % confidence."""

    median: float
    low: float
    high: float
    turns: int


@dataclass(frozen=True, repr=False)
class BenchResult(Shown):
    """Latencies of programs that were measured in turns.

    latencies: milliseconds a call by name. turns_ms: milliseconds [programs, alternations], rows in the order
    of `latencies`. threads: how many each program may use. hosted: of programs with nodes that run in
    onnxruntime, how many these are and their share of the time.
    """

    latencies: dict[str, Latency]
    turns_ms: Array
    alternations: int
    threads: int = 1
    hosted: Mapping[str, HostedTime] = field(default_factory=dict)

    def __repr__(self) -> str:
        times = listed((f"{x.name} {milliseconds(x.median_ms)}" for x in self.latencies.values()), most=8)
        alternations, threads = counted(self.alternations, "alternation"), counted(self.threads, "thread")
        return f"BenchResult({times}; {alternations}, {threads})"

    def _sections(self) -> tuple[Section, ...]:
        return (bench_section(self),)

    def to_frame(self) -> pandas.DataFrame:
        """One row for each program, milliseconds a call. Raises UsageError if pandas is not installed."""
        columns = ("program", "median_ms", "p10_ms", "p90_ms")
        rows = ((x.name, x.median_ms, x.p10_ms, x.p90_ms) for x in self.latencies.values())
        return frame(columns, rows)

    def plot(self, axes: Axes | None = None) -> Axes:
        """Draw the median latency of each program, into `axes` or a new figure.

        Raises UsageError if matplotlib is not installed.
        """
        medians = [x.median_ms for x in self.latencies.values()]
        return draw_bars(axes, list(self.latencies), {"median": medians}, "milliseconds a call")

    def ratio(self, name: str, base: str) -> Ratio:
        """Time of `name` relative to `base`: below 1 is faster.

        Raises UsageError for an unknown name, or after too few alternations to state a ratio.
        """
        low, high = np.percentile(self._paired(name, base), [10, 90])
        ratio = self.latencies[name].median_ms / self.latencies[base].median_ms
        return Ratio(name, base, ratio, float(low), float(high))

    def interval(self, name: str, base: str) -> RatioInterval:
        """Time of `name` relative to `base`, turn by turn, and how well these turns tell it.

        The interval makes no assumption on the noise but that turns are alike: it lies between two of the
        ordered ratios. Raises UsageError for an unknown name, or fewer than MIN_ALTERNATIONS.
        """
        ordered = np.sort(self._paired(name, base))
        outside = outside_median(self.alternations)
        low, high = ordered[outside], ordered[-1 - outside]
        return RatioInterval(float(np.median(ordered)), float(low), float(high), self.alternations)

    def _paired(self, name: str, base: str) -> Array:
        """Ratios of turns. Raises UsageError for an unknown name, or too few turns."""
        if self.alternations < MIN_ALTERNATIONS:
            raise UsageError(
                f"{self.alternations} alternations are too few for a ratio; "
                f"measure at least {MIN_ALTERNATIONS}"
            )
        names = list(self.latencies)
        for wanted in (name, base):
            if wanted not in names:
                raise UsageError(f"'{wanted}' was not measured; there are {', '.join(names)}")
        return np.asarray(self.turns_ms[names.index(name)] / self.turns_ms[names.index(base)])


def bench(
    contenders: Mapping[str, Contender],
    alternations: int = 50,
    warmup: int = 5,
    *,
    advance: Callable[[int], None] = lambda done: None,
    clock: Callable[[], int] = time.perf_counter_ns,
) -> BenchResult:
    """Time every contender once an alternation, in turns. `clock` gives nanoseconds.

    `advance` is told after each alternation. Raises UsageError for no contenders or no alternations.
    """
    if not contenders or alternations < 1 or warmup < 0:
        raise UsageError("a benchmark needs at least one program and one alternation (`alternations`)")
    repeats = {name: _repeats(run, warmup, clock) for name, run in contenders.items()}
    turns = np.zeros((len(contenders), alternations))
    with _without_garbage_collection():
        for column in range(alternations):
            for row, (name, run) in enumerate(contenders.items()):
                turns[row, column] = _turn(run, repeats[name], clock) / 1e6
            advance(1)
    return result_of_turns(repeats, turns)


def result_of_turns(repeats: Mapping[str, int], turns_ms: Array) -> BenchResult:
    """The result of turns that have been timed: one row a program of `repeats`, in their order."""
    latencies = {name: _latency(name, turns_ms[row], repeats[name]) for row, name in enumerate(repeats)}
    return BenchResult(latencies, turns_ms, turns_ms.shape[1])


def _turn(run: Contender, repeats: int, clock: Callable[[], int]) -> float:
    """Nanoseconds a call, after one untimed call that brings the program's own data back into the caches."""
    run()
    start = clock()
    for _ in range(repeats):
        run()
    return (clock() - start) / repeats


def _repeats(run: Contender, warmup: int, clock: Callable[[], int]) -> int:
    """Calls that make a turn long enough to time, from the fastest of the warm-up calls."""
    fastest = math.inf
    for _ in range(warmup + 1):
        start = clock()
        run()
        fastest = min(fastest, clock() - start)
    return max(1, min(_MAX_REPEATS, math.ceil(TURN_NS / max(fastest, 1))))


def _latency(name: str, turns: Array, repeats: int) -> Latency:
    p10, median, p90 = (float(value) for value in np.percentile(turns, [10, 50, 90]))
    return Latency(name, median, p10, p90, repeats)


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def bench_section(result: BenchResult, base: str | None = None) -> Section:
    """Latencies, and how many times as long each takes as `base` (the first by default).

    Ratios are left out, with the reason, after too few alternations.
    """
    base = base or next(iter(result.latencies))
    rows = [
        (x.name, milliseconds(x.median_ms), milliseconds(x.p10_ms), milliseconds(x.p90_ms))
        for x in result.latencies.values()
    ]
    titles = ("program", "median>", "p10>", "p90>")
    if result.alternations < MIN_ALTERNATIONS:
        note = f"No ratios: {result.alternations} alternations are fewer than {MIN_ALTERNATIONS}."
        return Section("Latency", (table(titles, rows), Paragraph(note), *_hosted(result)))
    ratios = [_ratio_cells(result, name, base) for name in result.latencies]
    threads = "one thread" if result.threads == 1 else f"up to {result.threads} threads"
    caption = f"One call on {threads}, {result.alternations} alternations"
    titled = (*titles, f"relative to {base}>", "p10 to p90>")
    body = [(*row, *cells) for row, cells in zip(rows, ratios, strict=True)]
    return Section("Latency", (table(titled, body, caption), *_hosted(result)))


def _hosted(result: BenchResult) -> list[Paragraph]:
    """Nodes in onnxruntime of each program that has some."""
    return [Paragraph(f"{name}: {time}.") for name, time in result.hosted.items()]


def _ratio_cells(result: BenchResult, name: str, base: str) -> tuple[str, str]:
    if name == base:
        return "1", ""
    ratio = result.ratio(name, base)
    return f"{ratio.ratio:.2f}", f"{ratio.low:.2f} to {ratio.high:.2f}"

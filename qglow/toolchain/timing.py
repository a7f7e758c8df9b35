"""Times of every instruction of a program on this processor."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from qglow.codegen.peak import Peak
from qglow.core.types import Array
from qglow.instructions.program import Program
from qglow.targets.protocol import TimedTarget

RUNS, WARMUP = 25, 3
BURST = 3
"""Calls of a program in a row that count, after one that does not."""
LEAST_TURNS, MOST_TURNS, ENOUGH_SECONDS = 5, 40, 1.0
"""Number of turns of two programs: at least, at most, and the seconds after which they are enough."""

Ticks = Mapping[str, float]
"""Ticks of the processor's clock by the name of an instruction."""


@dataclass(frozen=True)
class Timing:
    """Median microseconds of every instruction by its name, and what the processor does at most.

    The time of a stack is that of its first instruction; the others have 0.
    """

    microseconds: Mapping[str, float]
    int8_peak: Peak
    float_peak: Peak


def time_instructions(program: Program, target: TimedTarget, runs: int = RUNS) -> Timing:
    """Run a program whose kernels are selected and whose memory is planned, on one thread.

    Inputs are random. Raises UsageError for a target that the host cannot run.
    """
    ticks = target.timed(program).run(WARMUP + runs)[WARMUP:]
    peaks = target.peak(), target.peak(is_float=True)
    medians = np.median(ticks, axis=0) * (peaks[0].ns_per_tick / 1e3)
    times = {i.name: float(median) for i, median in zip(program.code, medians, strict=True)}
    return Timing(times, *peaks)


def compare_instructions(one: Program, other: Program, target: TimedTarget) -> tuple[Ticks, Ticks]:
    """Median ticks of every instruction of two programs by name, run in turns on one thread.

    Programs as for `time_instructions`. They take turns in short bursts, so that both see what else the
    processor does, and what they have in its caches is their own.
    """
    programs = [target.timed(program) for program in (one, other)]
    rows: tuple[list[Array], list[Array]] = ([], [])
    start = time.monotonic()
    for turn in range(MOST_TURNS):
        for timed, found in zip(programs, rows, strict=True):
            found.append(timed.run(1 + BURST)[1:])
        if turn + 1 >= LEAST_TURNS and time.monotonic() - start > ENOUGH_SECONDS:
            break
    medians = [np.median(np.concatenate(found), axis=0) for found in rows]
    first, second = (
        {i.name: float(ticks) for i, ticks in zip(program.code, median, strict=True)}
        for program, median in zip((one, other), medians, strict=True)
    )
    return first, second

"""How long every instruction of a program takes on this processor."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from qglow.codegen.compiler import compile_program, default_cache
from qglow.codegen.jit import load
from qglow.codegen.memory import aligned, aligned_bytes, aligned_tensor
from qglow.codegen.peak import Peak, measure_peak
from qglow.core.types import Array
from qglow.instructions.program import Program
from qglow.kernels.isa import Isa
from qglow.runtime.cores import choose_processes

RUNS, WARMUP = 25, 3
BURST = 3
"""Calls of a program in a row that count, after one that does not."""
LEAST_TURNS, MOST_TURNS, ENOUGH_SECONDS = 5, 40, 1.0
"""How often two programs take turns: at least, at most, and when it is enough."""

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


def time_instructions(program: Program, isa: Isa, runs: int = RUNS) -> Timing:
    """Run a program whose kernels are selected and whose memory is planned, on one thread.

    Inputs are random. Raises UsageError for an ISA that the host lacks.
    """
    ticks = _TimedProgram(program, isa).run(WARMUP + runs)[WARMUP:]
    peaks = measure_peak(isa), measure_peak(isa, is_float=True)
    medians = np.median(ticks, axis=0) * (peaks[0].ns_per_tick / 1e3)
    times = {i.name: float(median) for i, median in zip(program.code, medians, strict=True)}
    return Timing(times, *peaks)


def compare_instructions(one: Program, other: Program, isa: Isa) -> tuple[Ticks, Ticks]:
    """Median ticks of every instruction of two programs by name, run in turns on one thread.

    Programs as for `time_instructions`. They take turns in short bursts, so that both see what else the
    processor does, and what they have in its caches is their own.
    """
    programs = [_TimedProgram(program, isa) for program in (one, other)]
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


class _TimedProgram:
    """A program in memory, with random inputs."""

    def __init__(self, program: Program, isa: Isa) -> None:
        compiled = compile_program(program, isa, default_cache(), timed=True, processes=choose_processes())
        self._run = load(compiled)
        self._tensors = {buffer.name: aligned_tensor(buffer.type) for buffer in program.placeholders}
        _fill([self._tensors[buffer.name] for buffer in program.inputs()])
        self._arena, self._weights = aligned_bytes(compiled.arena_size), aligned(compiled.weights)
        self._addresses = [self._tensors[name].ctypes.data for name in compiled.placeholders]
        self._size = len(program.code)

    def run(self, count: int) -> Array:
        """uint64[count, instructions]: ticks of every instruction in so many calls."""
        ticks = np.zeros((count, self._size), np.uint64)
        for row in ticks:
            table = (ctypes.c_void_p * (len(self._addresses) + 1))(*self._addresses, row.ctypes.data)
            self._run(self._arena.ctypes.data, self._weights.ctypes.data, ctypes.addressof(table))
        return ticks


def _fill(arrays: list[Array]) -> None:
    """Floats are normal, integers stay 0, which is an index in any range."""
    random = np.random.default_rng(0)
    for array in arrays:
        if array.dtype == np.float32:
            array[...] = random.standard_normal(array.shape, np.float32)

"""How long every instruction of a program takes on this processor."""

from __future__ import annotations

import ctypes
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

RUNS, WARMUP = 25, 3


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
    compiled = compile_program(program, isa, default_cache(), timed=True)
    run = load(compiled)
    tensors = {buffer.name: aligned_tensor(buffer.type) for buffer in program.placeholders}
    _fill([tensors[buffer.name] for buffer in program.inputs()])
    ticks = np.zeros((WARMUP + runs, len(program.code)), np.uint64)
    arena, weights = aligned_bytes(compiled.arena_size), aligned(compiled.weights)
    addresses = [tensors[name].ctypes.data for name in compiled.placeholders]
    for row in ticks:
        table = (ctypes.c_void_p * (len(addresses) + 1))(*addresses, row.ctypes.data)
        run(arena.ctypes.data, weights.ctypes.data, ctypes.addressof(table))
    peaks = measure_peak(isa), measure_peak(isa, is_float=True)
    medians = np.median(ticks[WARMUP:], axis=0) * (peaks[0].ns_per_tick / 1e3)
    times = {i.name: float(median) for i, median in zip(program.code, medians, strict=True)}
    return Timing(times, *peaks)


def _fill(arrays: list[Array]) -> None:
    """Floats are normal, integers stay 0, which is an index in any range."""
    random = np.random.default_rng(0)
    for array in arrays:
        if array.dtype == np.float32:
            array[...] = random.standard_normal(array.shape, np.float32)

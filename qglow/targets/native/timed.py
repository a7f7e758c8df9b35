"""Native code that records how long every instruction takes."""

from __future__ import annotations

import ctypes
from functools import partial

import numpy as np

from qglow.codegen.compiler import compile_program, default_cache, default_kernels
from qglow.codegen.jit import load
from qglow.codegen.memory import aligned, aligned_bytes, aligned_tensor
from qglow.core.types import Array
from qglow.instructions.program import Program
from qglow.kernels.emit.target import VectorTarget
from qglow.runtime.cores import choose_processes
from qglow.runtime.hosting import Host, hosted_nodes


class TimedCode:
    """A program in memory, with random inputs. Satisfies `TimedProgram`."""

    def __init__(self, program: Program, target: VectorTarget) -> None:
        """Compile and load a planned program. Raises UsageError for an ISA that the host lacks."""
        compiled = compile_program(
            program,
            target,
            default_cache(),
            timed=True,
            processes=choose_processes(),
            kernels=default_kernels(target),
        )
        self._run = load(compiled)
        self._tensors = {buffer.name: aligned_tensor(buffer.type) for buffer in program.placeholders}
        _fill([self._tensors[buffer.name] for buffer in program.inputs()])
        self._arena, self._weights = aligned_bytes(compiled.arena_size), aligned(compiled.weights)
        self._addresses = [self._tensors[name].ctypes.data for name in compiled.placeholders]
        self._host = Host(hosted_nodes(program))
        self._end = self._host.addresses()
        self._addresses += self._end
        self._size = len(program.code)

    def run(self, count: int) -> Array:
        """uint64[count, instructions]: ticks of every instruction in so many calls."""
        ticks = np.zeros((count, self._size), np.uint64)
        for row in ticks:
            table = (ctypes.c_void_p * (len(self._addresses) + 1))(*self._addresses, row.ctypes.data)
            memory = self._arena.ctypes.data, self._weights.ctypes.data, ctypes.addressof(table)
            self._host.checked(self._end, partial(self._run, *memory))()
        return ticks


def _fill(arrays: list[Array]) -> None:
    """Fill float arrays with normal random numbers; integers stay 0, which is an index in any range."""
    random = np.random.default_rng(0)
    for array in arrays:
        if array.dtype == np.float32:
            array[...] = random.standard_normal(array.shape, np.float32)

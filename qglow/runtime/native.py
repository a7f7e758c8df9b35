"""Machine code in this process, with its weights, the arenas of its threads, and its state."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from qglow.codegen.compiler import CompiledProgram
from qglow.codegen.jit import NativeFunction
from qglow.codegen.memory import aligned, aligned_bytes, aligned_tensor
from qglow.codegen.workers import JOB_WORDS
from qglow.core.types import Array, TensorType
from qglow.instructions.program import Buffer, BufferKind, Program
from qglow.kernels.emit.operand import to_logical
from qglow.runtime.hosting import Host, HostedNode
from qglow.runtime.workers import workers


class NativeProgram:
    """Satisfies `Loaded` with linked machine code.

    Every Python thread has its own arena, and the interpreter lock is released while native code runs.
    """

    def __init__(
        self,
        compiled: CompiledProgram,
        native: NativeFunction,
        threads: int,
        state: Mapping[str, TensorType],
        hosted: Sequence[HostedNode] = (),
    ) -> None:
        """threads: how many threads may share a call. state: types of the state by name.

        hosted: the nodes that Python executes. Raises UsageError where onnxruntime, which they need, is
        missing.
        """
        self._host = Host(hosted, threads)
        self._compiled = compiled
        self._native = native
        shared = native.team_address and compiled.target.shares_work
        self._threads = threads if shared else 1
        self._weights = aligned(compiled.weights)
        self._state = {name: aligned_tensor(kind) for name, kind in state.items()}
        self._state_at = {name: array.ctypes.data for name, array in self._state.items()}
        self._arenas = threading.local()
        self._state_lock = threading.Lock()

    @property
    def target(self) -> str:
        """Name of the instruction set."""
        return self._compiled.target.name

    @property
    def activation_bias(self) -> int:
        """Number that the code adds to int8 activations in memory: 128 or 0."""
        return self._compiled.target.activation_bias

    @property
    def threads(self) -> int:
        """The most threads that a call runs on; 1 for a program that is too small to be shared."""
        return self._threads

    @property
    def arena_bytes(self) -> int:
        """Bytes of activations that a call needs."""
        return self._compiled.arena_size

    @property
    def weight_bytes(self) -> int:
        """Bytes of packed constants."""
        return int(self._weights.size)

    @property
    def state(self) -> Mapping[str, Array]:
        """Live arrays by name that the program keeps from call to call."""
        return self._state

    def run(self, arrays: Mapping[str, Array]) -> None:
        """Run once in this thread's arena; calls on the program's own state run one after the other."""
        more = self._host.addresses()
        table = self._table(arrays, more)  # kept alive here: the call has only its address
        call = self._host.checked(more, self._prepared(self._arena(), table))
        if self._state.keys() <= arrays.keys():
            call()
            return
        with self._state_lock:
            call()

    def bind(self, arrays: Mapping[str, Array]) -> Callable[[], None]:
        """A call on these arrays in an arena of its own; it must not run in two threads at once."""
        more = self._host.addresses()
        arena, table = aligned_bytes(self.arena_bytes), self._table(arrays, more)
        call = self._host.checked(more, self._prepared(arena, table))
        call.__dict__["keep"] = (self, arena, table, arrays)
        return call

    def activations(self, program: Program) -> dict[str, Array]:
        """Copies of the activations in this thread's arena by name."""
        arena, bias = self._arena(), self.activation_bias
        return {
            buffer.name: _activation(arena, buffer, bias)
            for buffer in program.all_buffers()
            if buffer.root.kind is BufferKind.ACTIVATION
        }

    def _prepared(self, arena: Array, table: ctypes.Array[ctypes.c_void_p]) -> Callable[[], None]:
        """A call of the native code on this memory, on one thread or on several."""
        at, weights, pointers = arena.ctypes.data, self._weights.ctypes.data, ctypes.addressof(table)
        native, threads = self._native, self._threads
        if threads == 1:
            return lambda: native(at, weights, pointers)
        team = workers(self._compiled.target)
        job = (ctypes.c_uint64 * JOB_WORDS)(
            native.address, native.team_address, at, weights, pointers, threads
        )
        address = ctypes.addressof(job)

        def run() -> None:
            team.run(address, threads)

        run.__dict__["job"] = job
        return run

    def _arena(self) -> Array:
        arena: Array | None = getattr(self._arenas, "arena", None)
        if arena is None:
            arena = aligned_bytes(self.arena_bytes)
            self._arenas.arena = arena
        return arena

    def _table(self, arrays: Mapping[str, Array], more: list[int]) -> ctypes.Array[ctypes.c_void_p]:
        at = self._state_at | {name: array.ctypes.data for name, array in arrays.items()}
        addresses = [at[name] for name in self._compiled.placeholders] + more
        return (ctypes.c_void_p * max(len(addresses), 1))(*addresses)


def _activation(arena: Array, buffer: Buffer, bias: int) -> Array:
    layout, dtype = buffer.layout, buffer.type.element.dtype
    start = (buffer.root.arena_offset or 0) + layout.offset * dtype.itemsize
    strides = tuple(s * dtype.itemsize for s in layout.strides)
    seen: Array = np.ndarray(buffer.type.shape, dtype, arena.data, start, strides)
    return to_logical(seen.copy(), buffer.type, bias)

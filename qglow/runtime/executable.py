"""A compiled program that can be called."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Mapping
from functools import cached_property

import numpy as np

from qglow.codegen.compiler import CompiledProgram
from qglow.codegen.jit import NativeFunction
from qglow.codegen.memory import aligned, aligned_bytes, aligned_tensor
from qglow.codegen.pool import JOB_WORDS
from qglow.core.errors import DataError, UsageError
from qglow.core.types import Array, TensorType
from qglow.instructions.program import Buffer, BufferKind, Program
from qglow.kernels.operand import is_biased, to_logical, to_physical
from qglow.runtime.pool import pool
from qglow.runtime.signature import Signature


class Executable:
    """Native code with its weights. Calling it runs the model.

    `executable({name: array}) -> {name: array}` with the model's own names, shapes and
    element types; arrays are copied where they are not contiguous, and int8 ones are brought to
    the form that native code holds them in. Calls from several
    Python threads are safe: each thread has its own arena, and the interpreter lock is
    released while native code runs. Up to `threads` threads of the process's pool share the work
    of a call, the caller's among them; where the pool is busy with another call, or the program
    is too small to be shared, the caller's does it alone. Results do not depend on it.
    """

    def __init__(
        self,
        signature: Signature,
        compiled: CompiledProgram,
        native: NativeFunction,
        threads: int,
        planned: Callable[[], Program],
    ) -> None:
        """`planned` gives the program when it is asked for."""
        self._signature = signature
        self._planned = planned
        self._compiled = compiled
        self._native = native
        # Emulated tiles are kept in one place for all threads.
        shared = native.team_address and not compiled.isa.emulates_amx
        self._threads = threads if shared else 1
        self._weights = aligned(compiled.weights)
        self._state = {name: aligned_tensor(kind) for name, kind in signature.state.items()}
        self._state_at = {name: array.ctypes.data for name, array in self._state.items()}
        self._arenas = threading.local()
        self._state_lock = threading.Lock()

    @property
    def isa(self) -> str:
        """Name of the instruction set that the code is for."""
        return self._compiled.isa.name

    @property
    def threads(self) -> int:
        """How many threads a call may run on; 1 for a program that is too small to be shared."""
        return self._threads

    @cached_property
    def program(self) -> Program:
        """The instruction program, as planned. Raises ArtefactError where its file is damaged."""
        return self._planned()

    @property
    def inputs(self) -> dict[str, TensorType]:
        """Names and types of the inputs, in the model's order."""
        return dict(self._signature.inputs)

    @property
    def outputs(self) -> dict[str, TensorType]:
        """Names and types of the outputs, in the model's order."""
        return dict(self._signature.outputs)

    @property
    def state(self) -> dict[str, Array]:
        """Tensors that the program keeps from call to call, live: a profile's counts, for one."""
        return dict(self._state)

    @property
    def arena_bytes(self) -> int:
        """Bytes of activations that a call needs."""
        return self._compiled.arena_size

    @property
    def weight_bytes(self) -> int:
        """Bytes of packed constants."""
        return int(self._weights.size)

    def __call__(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Run once. Raises DataError for missing, unknown or misshapen inputs."""
        self._check_names(inputs)
        taken, given = self._signature.inputs, self._signature.outputs
        arrays = {name: _input_array(name, kind, inputs[name]) for name, kind in taken.items()}
        results = {name: aligned_tensor(kind) for name, kind in given.items()}
        self._run(self._arena(), self._table({**arrays, **results}))
        return {name: _logical(kind, results[name]) for name, kind in given.items()}

    def bind(self, inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> Callable[[], None]:
        """A callable without arguments that reads and fills these very arrays, unchecked.

        The arrays must be contiguous and of the exact type; for int8 inputs and outputs they are
        uint8 and hold `q + 128`, as native code does. The callable keeps them alive
        and has an arena of its own, so that it must not run in two threads at once.
        Raises UsageError for arrays that do not fit.
        """
        self._check_names(inputs)
        pairs = (self._signature.inputs, inputs), (self._signature.outputs, outputs)
        arrays = {
            name: _bound_array(name, kind, given.get(name))
            for types, given in pairs
            for name, kind in types.items()
        }
        arena, table = aligned_bytes(self.arena_bytes), self._table(arrays)
        run = self._prepared(arena, table)
        run.__dict__["keep"] = (self, arena, table, arrays)
        return run

    def activations(self) -> dict[str, Array]:
        """Copies of the activations that this thread's last call left, by buffer name.

        Meaningful only for a program that was planned without reuse of memory.
        """
        arena = self._arena()
        bias = self._compiled.isa.activation_bias
        found = {}
        for buffer in self.program.all_buffers():
            if buffer.root.kind is BufferKind.ACTIVATION:
                found[buffer.name] = _activation(arena, buffer, bias)
        return found

    def _run(self, arena: Array, table: ctypes.Array[ctypes.c_void_p]) -> None:
        run = self._prepared(arena, table)
        if not self._state:
            run()
            return
        with self._state_lock:
            run()

    def _prepared(self, arena: Array, table: ctypes.Array[ctypes.c_void_p]) -> Callable[[], None]:
        """A call of the native code on this memory, on one thread or on several."""
        at, weights, pointers = arena.ctypes.data, self._weights.ctypes.data, ctypes.addressof(table)
        native, threads = self._native, self._threads
        if threads == 1:
            return lambda: native(at, weights, pointers)
        team = pool()
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

    def _table(self, arrays: Mapping[str, Array]) -> ctypes.Array[ctypes.c_void_p]:
        at = {name: array.ctypes.data for name, array in arrays.items()} | self._state_at
        addresses = [at[name] for name in self._compiled.placeholders]
        return (ctypes.c_void_p * max(len(addresses), 1))(*addresses)

    def _check_names(self, inputs: Mapping[str, Array]) -> None:
        wanted = list(self._signature.inputs)
        if set(wanted) != set(inputs):
            raise DataError(
                f"inputs {', '.join(sorted(inputs)) or 'none'} given, {', '.join(wanted) or 'none'} wanted"
            )


def _input_array(name: str, kind: TensorType, array: Array) -> Array:
    array = np.asarray(array)
    if array.shape != kind.shape:
        raise DataError(f"input '{name}' has shape {array.shape}, the program wants {kind.shape}")
    if array.dtype != kind.element.dtype:
        raise DataError(f"input '{name}' is {array.dtype}, the program wants {kind.element.dtype}")
    return to_physical(array, kind)


def _logical(kind: TensorType, array: Array) -> Array:
    return to_logical(array, kind) if is_biased(kind) else array


def _bound_array(name: str, kind: TensorType, array: Array | None) -> Array:
    if array is None:
        raise UsageError(f"bind needs an array for '{name}'")
    dtype = np.dtype(np.uint8) if is_biased(kind) else kind.element.dtype
    if array.shape != kind.shape or array.dtype != dtype or not array.flags.c_contiguous:
        raise UsageError(f"the array for '{name}' is not contiguous {dtype} of shape {list(kind.shape)}")
    return array


def _activation(arena: Array, buffer: Buffer, bias: int) -> Array:
    layout, dtype = buffer.layout, buffer.type.element.dtype
    start = (buffer.root.arena_offset or 0) + layout.offset * dtype.itemsize
    strides = tuple(s * dtype.itemsize for s in layout.strides)
    seen: Array = np.ndarray(buffer.type.shape, dtype, arena.data, start, strides)
    if is_biased(buffer.type) and bias:
        return (seen.view(np.uint8) ^ np.uint8(bias)).view(np.int8)
    return seen.copy()

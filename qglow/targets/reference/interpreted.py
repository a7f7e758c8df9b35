"""Interpretation of a planned program, behind the interface of loaded native code."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import nullcontext

from qglow.codegen.memory import aligned_tensor
from qglow.core.types import Array
from qglow.instructions.interpreter import ArenaInterpreter
from qglow.instructions.program import Buffer, Program


class InterpretedProgram:
    """Satisfies `Loaded` with the arena interpreter.

    Every thread has an interpreter of its own; the state is common to all, and calls of a program with
    state run one after the other.
    """

    def __init__(self, program: Program, target: str) -> None:
        """program: planned, with the data of its constants. target: name of the target."""
        self._program = program
        self._target = target
        self._state = {buffer.name: aligned_tensor(buffer.type) for buffer in program.state()}
        self._local = threading.local()
        self._state_lock = threading.Lock()

    @property
    def target(self) -> str:
        """Name of the target."""
        return self._target

    @property
    def activation_bias(self) -> int:
        """0: arrays hold int8 values without a bias."""
        return 0

    @property
    def threads(self) -> int:
        """1: only the caller's thread."""
        return 1

    @property
    def arena_bytes(self) -> int:
        """Bytes of activations that a call needs."""
        return self._program.arena_size or 0

    @property
    def weight_bytes(self) -> int:
        """Bytes of constants."""
        return sum(buffer.byte_size for buffer in self._program.all_constants())

    @property
    def state(self) -> Mapping[str, Array]:
        """Arrays by name that the program keeps from call to call; not copies."""
        return self._state

    def run(self, arrays: Mapping[str, Array]) -> None:
        """Run once in this thread's interpreter."""
        self._call(self._interpreter(), arrays)

    def bind(self, arrays: Mapping[str, Array]) -> Callable[[], None]:
        """Return a function that runs on these arrays, in an interpreter of its own."""
        interpreter = ArenaInterpreter(self._program)
        return lambda: self._call(interpreter, arrays)

    def activations(self, program: Program) -> dict[str, Array]:
        """Copies of the activations in this thread's interpreter by name."""
        return self._interpreter().activations()

    def _interpreter(self) -> ArenaInterpreter:
        found: ArenaInterpreter | None = getattr(self._local, "interpreter", None)
        if found is None:
            found = ArenaInterpreter(self._program)
            self._local.interpreter = found
        return found

    def _call(self, interpreter: ArenaInterpreter, arrays: Mapping[str, Array]) -> None:
        inputs = {buffer.name: _taken(buffer, arrays) for buffer in self._program.inputs()}
        state = {name: arrays.get(name, own) for name, own in self._state.items()}
        with self._state_lock if state else nullcontext():
            _copy(state, interpreter.state)
            results = interpreter.run(inputs)
            _copy(interpreter.state, state)
        for buffer in self._program.outputs():
            _give(buffer, results[buffer.name], arrays[buffer.name])


def _taken(buffer: Buffer, arrays: Mapping[str, Array]) -> Array:
    return arrays[buffer.name].reshape(buffer.type.shape)


def _give(buffer: Buffer, result: Array, target: Array) -> None:
    target[...] = result


def _copy(source: Mapping[str, Array], target: Mapping[str, Array]) -> None:
    for name, array in source.items():
        target[name][...] = array

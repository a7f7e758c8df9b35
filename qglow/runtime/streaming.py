"""A compiled program that keeps states from call to call: one that runs over a stream piece by piece."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from qglow.core.errors import DataError, UsageError
from qglow.core.types import Array, TensorType
from qglow.kernels.emit.operand import is_int8_activation, physical_dtype, to_logical, to_physical
from qglow.numerics.quantize import as_signed, as_unsigned
from qglow.runtime.delegating import DelegatingExecutable
from qglow.runtime.executable import Executable, check_by_name, check_writing


class StreamingExecutable(DelegatingExecutable):
    """A program that keeps some of its outputs as inputs of its next call: the states of a stream.

    `states` pairs names: an input, and the output that the next call reads there. Calls take the other inputs
    and give the other outputs. States begin with zeros, and a call that fails leaves them as they are.

    One object is one stream: its calls, from whichever threads, run one after the other. `fork` gives further
    streams, which share code and weights and may run at the same time.
    """

    def __init__(self, executable: Executable, states: Mapping[str, str]) -> None:
        """Keep states of a program; the program itself stays as it is.

        Raises UsageError for names that it does not have, and for pairs of different types.
        """
        self._executable = executable
        self._states = dict(states)
        self._kinds = state_kinds(executable.inputs, executable.outputs, self._states)
        self._kept = {name: np.zeros(kind.shape, _dtype(kind)) for name, kind in self._kinds.items()}
        self._lock = threading.RLock()
        self.reset()

    @property
    def pairs(self) -> dict[str, str]:
        """Inputs that are states, each with the output that the next call reads there."""
        return dict(self._states)

    @property
    def _one(self) -> Executable:
        return self._executable

    @property
    def inputs(self) -> dict[str, TensorType]:
        """Names and types of the inputs that are no states, in the model's order."""
        return {name: kind for name, kind in self._executable.inputs.items() if name not in self._kinds}

    @property
    def outputs(self) -> dict[str, TensorType]:
        """Names and types of the outputs that are no states, in the model's order."""
        kept = set(self._states.values())
        return {name: kind for name, kind in self._executable.outputs.items() if name not in kept}

    def prepare(self, shapes: Mapping[str, Sequence[int]]) -> None:
        """Compile ahead of a call with inputs of these shapes, see `Executable.prepare`."""
        self._executable.prepare({**shapes, **{name: kept.shape for name, kept in self._kept.items()}})

    @property
    def state(self) -> dict[str, Array]:
        """States by the name of their input, live: what the next call reads, which may be written to."""
        return {**self._executable.state, **self._kept}

    def reset(self, initial: Mapping[str, Array] | None = None) -> None:
        """Begin a new stream: states become zeros (reals, if they are quantized), or what `initial` has.

        Raises UsageError for arrays of unknown names, or of other types than the states.
        """
        given = checked_states(initial or {}, self._kept)
        with self._lock:
            for name, kept in self._kept.items():
                kept[...] = given.get(name, state_element(self._kinds[name]))

    def fork(self) -> StreamingExecutable:
        """Another stream that goes on from a copy of the states; it shares code and weights."""
        forked = StreamingExecutable(self._executable, self._states)
        with self._lock:
            forked.reset(self._kept)
        return forked

    def __call__(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Run over the next piece. Raises DataError for missing, unknown or misshapen inputs."""
        self._check_names(inputs)
        with self._lock:
            results = self._executable({**inputs, **self._kept})
            written = {name: results[output] for name, output in self._states.items()}
            for name, array in written.items():
                self._check_shape(name, array)
            for name, array in written.items():
                self._kept[name][...] = array
        return {name: array for name, array in results.items() if name not in self._states.values()}

    def bind(self, inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> Callable[[], None]:
        """A callable that reads and fills these very arrays, see `Executable.bind`, and keeps the states.

        `inputs` and `outputs` are those that are no states. The callable copies states before and after it
        runs, so that other calls of this stream may come in between.
        """
        self._check_names(inputs)
        unknown = sorted(set(outputs) - set(self.outputs))
        if unknown:
            raise UsageError(f"no output is called '{unknown[0]}'; the outputs are {_listed(self.outputs)}")
        check_writing(outputs, self._kept)
        read = {name: self._held(kind) for name, kind in self._kinds.items()}
        given = self._executable.outputs
        written = {output: self._held(given[output]) for output in self._states.values()}
        run = self._executable.bind({**inputs, **read}, {**outputs, **written})
        bias = self.activation_bias

        def call() -> None:
            with self._lock:
                for name, kind in self._kinds.items():
                    read[name][...] = _to_target(kind, self._kept[name], bias)
                run()
                for name, output in self._states.items():
                    self._kept[name][...] = _from_target(self._kinds[name], written[output], bias)

        return call

    def _held(self, kind: TensorType) -> Array:
        """An array as the target holds such a tensor."""
        return np.zeros(kind.shape, physical_dtype(kind, self.activation_bias))

    def _check_names(self, inputs: Mapping[str, Array]) -> None:
        check_by_name(inputs)
        own = [name for name in inputs if name in self._kinds]
        if own:
            raise DataError(f"input '{own[0]}' is a state, which the program keeps itself; see reset()")
        wanted = self.inputs
        if set(inputs) != set(wanted):
            raise DataError(f"inputs {_listed(sorted(inputs))} given, {_listed(wanted)} wanted")

    def _check_shape(self, name: str, array: Array) -> None:
        """Refuse an output whose shape these inputs changed, where a program takes free shapes."""
        kept = self._kept[name]
        if array.shape != kept.shape:
            raise DataError(
                f"output '{self._states[name]}' has shape {list(array.shape)} for these inputs, "
                f"the state '{name}' has {list(kept.shape)}"
            )


def state_kinds(
    taken: Mapping[str, TensorType], given: Mapping[str, TensorType], states: Mapping[str, str]
) -> dict[str, TensorType]:
    """Types of the states by the name of their input, of inputs `taken` and outputs `given`.

    Raises UsageError for pairs that do not fit.
    """
    for name, output in states.items():
        if name not in taken:
            raise UsageError(f"state '{name}': no input has this name; the inputs are {_listed(taken)}")
        if output not in given:
            raise UsageError(
                f"state '{name}': no output is called '{output}'; the outputs are {_listed(given)}"
            )
        read, written = taken[name], given[output]
        if read != written or read.unsigned != written.unsigned:
            raise UsageError(
                f"state '{name}': the input is {read}, but the output '{output}' is {written}; "
                "their types have to be equal"
            )
    return {name: taken[name] for name in states}


def checked_states(initial: Mapping[str, Array], kept: Mapping[str, Array]) -> dict[str, Array]:
    """Arrays that states may begin with, beside those `kept`. Raises UsageError for what does not fit."""
    given = {name: np.asarray(array) for name, array in initial.items()}
    for name, array in given.items():
        if name not in kept:
            raise UsageError(f"no state is called '{name}'; the states are {_listed(kept)}")
        if array.shape != kept[name].shape or array.dtype != kept[name].dtype:
            raise UsageError(
                f"the initial '{name}' is {array.dtype} of shape {list(array.shape)}, the state is "
                f"{kept[name].dtype} of shape {list(kept[name].shape)}"
            )
    return given


def _listed(names: Mapping[str, object] | list[str]) -> str:
    return ", ".join(names) or "none"


def _dtype(kind: TensorType) -> np.dtype[np.generic]:
    """The numpy type that callers see."""
    return np.dtype(np.uint8) if kind.unsigned else kind.element.dtype


def zero_element(kind: TensorType) -> Array:
    """The element of a program's tensor that stands for 0."""
    return np.asarray(kind.quantization.zero_point if kind.quantization else 0).astype(kind.element.dtype)


def state_element(kind: TensorType) -> Array:
    """The element of a state that stands for 0, as callers see it."""
    zero = zero_element(kind)
    return as_unsigned(zero) if kind.unsigned else zero


def _to_target(kind: TensorType, array: Array, bias: int) -> Array:
    return to_physical(as_signed(array) if kind.unsigned else array, kind, bias)


def _from_target(kind: TensorType, array: Array, bias: int) -> Array:
    if not is_int8_activation(kind):
        return array
    logical = to_logical(array, kind, bias)
    return as_unsigned(logical) if kind.unsigned else logical

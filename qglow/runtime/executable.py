"""A compiled program that can be called."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from qglow.codegen.memory import aligned_tensor
from qglow.core.batch import as_taken
from qglow.core.errors import DataError, QglowError, UsageError
from qglow.core.memory import require_memory
from qglow.core.types import Array, Dimension, Shape, TensorType
from qglow.display.blocks import Paragraph, Section, byte_count, facts
from qglow.display.lines import brief, counted, interface
from qglow.display.plain import to_plain
from qglow.display.shown import Shown
from qglow.instructions.program import Program
from qglow.kernels.emit.operand import is_int8_activation, physical_dtype, to_logical, to_physical
from qglow.numerics.quantize import as_signed, as_unsigned
from qglow.runtime.loaded import Loaded
from qglow.runtime.signature import Signature


class Executable(Shown):
    """A program with its weights, ready to run on one target. Calling it runs the model.

    `executable({name: array}) -> {name: array}` with the model's own names, shapes and element types. Arrays
    that are not contiguous are copied, and int8 ones converted to the form that native code holds. Inputs
    and outputs that are uint8 in the model's file are uint8, and their types those of int8 that is
    `unsigned`; such inputs may also be int8, 128 less.

    Calls from several Python threads are safe: each thread has its own arena, and the interpreter lock is
    released while native code runs. Up to `threads` threads share the work of a call, the caller's among
    them. The caller's works alone while the others are busy with another call, or if the program is too
    small to be shared. Results do not depend on the number of threads.
    """

    def __init__(self, signature: Signature, loaded: Loaded, planned: Callable[[], Program]) -> None:
        """`planned` gives the program when it is asked for.

        Raises MemoryLimitError where activations, constants, inputs and outputs take more than is allowed.
        """
        interface = sum(kind.byte_size for kind in (*signature.inputs.values(), *signature.outputs.values()))
        require_memory(loaded.arena_bytes + loaded.weight_bytes + interface, "the program")
        self._signature = signature
        self._loaded = loaded
        self._planned = planned

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._line()})"

    def _line(self) -> str:
        """Return what the program is, also where none is compiled yet."""
        try:
            what = f"{self.isa}, {counted(self.threads, 'thread')}"
            return f"{what}: {interface(self.inputs, self.outputs)}"
        except QglowError as error:
            return brief(str(error))

    def _sections(self) -> tuple[Section, ...]:
        try:
            known = self.to_dict()
        except QglowError as error:
            return (Section(type(self).__name__, (Paragraph(str(error)),)),)
        rows = [("target", known["isa"]), ("threads", str(known["threads"]))]
        for side in ("inputs", "outputs"):
            rows += [(f"{side[:-1]} {name}", text) for name, text in known[side].items()]
        rows += [("memory of a call", byte_count(known["arena_bytes"]))]
        rows += [("constants", byte_count(known["weight_bytes"]))]
        return (Section(type(self).__name__, (facts(rows),)),)

    def to_dict(self) -> dict[str, Any]:
        """Facts of the program for JSON: target, threads, types of inputs and outputs, bytes.

        Raises UnboundError where a model with free dimensions has no program yet.
        """
        return {
            "isa": self.isa,
            "threads": self.threads,
            "inputs": to_plain(self.inputs),
            "outputs": to_plain(self.outputs),
            "untyped_outputs": list(self.untyped_outputs),
            "arena_bytes": self.arena_bytes,
            "weight_bytes": self.weight_bytes,
        }

    @property
    def isa(self) -> str:
        """Name of the target that the program runs on: an instruction set, or "reference"."""
        return self._loaded.target

    @property
    def activation_bias(self) -> int:
        """Number that the target adds to int8 inputs and outputs that `bind` takes: 128 or 0."""
        return self._loaded.activation_bias

    @property
    def threads(self) -> int:
        """Number of threads that a call may run on; 1 for a program that is too small to be shared."""
        return self._loaded.threads

    @cached_property
    def program(self) -> Program:
        """The instruction program, as planned. Raises ArtefactError if its file is damaged."""
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
    def untyped_outputs(self) -> tuple[str, ...]:
        """Names of the outputs whose shapes data decides, which have no types: none of a program alone."""
        return ()

    @property
    def programs(self) -> tuple[dict[str, Shape], ...]:
        """Shapes of the inputs of every program that is compiled: here those of the only one."""
        return ({name: kind.shape for name, kind in self.inputs.items()},)

    @property
    def free_dimensions(self) -> dict[str, tuple[Dimension, ...]] | None:
        """Dimensions of the inputs of programs for several sizes; None for a program of one size."""
        return None

    @property
    def fixed_because(self) -> str:
        """Reason why inputs have one size where they may have others; "" for a program of its own size."""
        return ""

    def prepare(self, shapes: Mapping[str, Sequence[int]]) -> None:
        """Compile ahead of a call with inputs of these shapes, where dimensions are free.

        Raises DataError for shapes that no call may have.
        """
        check_input_names(shapes, self.inputs)
        for name, kind in self.inputs.items():
            if tuple(shapes[name]) != kind.shape:
                raise DataError(
                    f"input '{name}' has shape {tuple(shapes[name])}, the program wants {kind.shape}"
                )

    @property
    def state(self) -> dict[str, Array]:
        """Tensors that the program keeps from call to call, live: a profile's counts, for one."""
        return dict(self._loaded.state)

    @property
    def arena_bytes(self) -> int:
        """Bytes of activations that a call needs."""
        return self._loaded.arena_bytes

    @property
    def weight_bytes(self) -> int:
        """Bytes of packed constants."""
        return self._loaded.weight_bytes

    def __call__(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Run once. Raises DataError for missing, unknown or misshapen inputs."""
        return self.run_on({}, inputs)

    @property
    def kept(self) -> dict[str, TensorType]:
        """Names and types of the state."""
        return dict(self._signature.state)

    def run_on(self, state: Mapping[str, Array], inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Run once on arrays of the caller in place of states of the program's own; they are written to.

        They must be contiguous and of the exact type. Raises UsageError where they are not, and DataError as
        a call does.
        """
        for name, array in state.items():
            kind = self._signature.state[name]
            if array.shape != kind.shape or array.dtype != kind.element.dtype or not array.flags.c_contiguous:
                raise UsageError(f"the array for the state '{name}' is not contiguous {kind}")
        self._check_names(inputs)
        taken, given = self._signature.inputs, self._signature.outputs
        bias = self.activation_bias
        arrays = {name: _input_array(name, kind, inputs[name], bias) for name, kind in taken.items()}
        results = {name: aligned_tensor(kind) for name, kind in given.items()}
        self._loaded.run({**arrays, **results, **state})
        return {name: _logical(kind, results[name], bias) for name, kind in given.items()}

    def bind(self, inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> Callable[[], None]:
        """A callable without arguments that reads and fills these very arrays, unchecked.

        The arrays must be contiguous, aligned and of the exact type; those for outputs must be writeable and
        lie apart from all others. int8 inputs and outputs are as the target holds them: uint8 of
        `q + activation_bias`, or int8 where that is 0. The callable keeps the arrays alive and has an arena
        of its own, so that it must not run in two threads at once. Raises UsageError for arrays that do not
        fit, DataError for other names of inputs.
        """
        self._check_names(inputs)
        taken, given, bias = self._signature.inputs, self._signature.outputs, self.activation_bias
        unknown = sorted(set(outputs) - set(given))
        if unknown:
            raise UsageError(f"no output is called {unknown[0]!r}; the outputs are {', '.join(given)}")
        read = {name: _bound_array(name, kind, inputs[name], bias) for name, kind in taken.items()}
        written = {name: _bound_array(name, kind, outputs.get(name), bias) for name, kind in given.items()}
        check_writing(written, {**read, **self._loaded.state})
        return self._loaded.bind({**read, **written})

    def activations(self) -> dict[str, Array]:
        """Copies of the activations that this thread's last call left, by buffer name.

        Meaningful only for a program that was planned without reuse of memory.
        """
        return self._loaded.activations(self.program)

    def _check_names(self, inputs: Mapping[str, Array]) -> None:
        check_input_names(inputs, self._signature.inputs)


def check_by_name(given: object) -> None:
    """Raise DataError for inputs that are no mapping from names, such as an array alone."""
    if not isinstance(given, Mapping):
        raise DataError(f"inputs are given by name, as in {{'x': array}}, not as {type(given).__name__}")


def check_input_names(given: Collection[str], wanted: Collection[str]) -> None:
    """Raise DataError where other inputs are given than those that are wanted."""
    check_by_name(given)
    if set(wanted) != set(given):
        raise DataError(
            f"inputs {', '.join(sorted(given)) or 'none'} given, {', '.join(wanted) or 'none'} wanted"
        )


def _input_array(name: str, kind: TensorType, array: Array, bias: int) -> Array:
    array = as_taken(np.asarray(array), kind.shape)
    if array.shape != kind.shape:
        raise DataError(f"input '{name}' has shape {array.shape}, the program wants {kind.shape}")
    if kind.unsigned and array.dtype == np.uint8:
        array = as_signed(array)
    if array.dtype != kind.element.dtype:
        raise DataError(f"input '{name}' is {array.dtype}, the program wants {kind.element.dtype}")
    return to_physical(array, kind, bias)


def _logical(kind: TensorType, array: Array, bias: int) -> Array:
    if not is_int8_activation(kind):
        return array
    logical = to_logical(array, kind, bias)
    return as_unsigned(logical) if kind.unsigned else logical


def _bound_array(name: str, kind: TensorType, array: object, bias: int) -> Array:
    if array is None:
        raise UsageError(f"bind needs an array for '{name}'")
    dtype = physical_dtype(kind, bias)
    if not (isinstance(array, np.ndarray) and array.shape == kind.shape and array.dtype == dtype) or not (
        array.flags.c_contiguous and array.flags.aligned
    ):
        raise UsageError(f"the array for '{name}' is not contiguous {dtype} of shape {list(kind.shape)}")
    return array


def check_writing(written: Mapping[str, Array], others: Mapping[str, Array]) -> None:
    """Refuse arrays that are read-only, or that share memory with other arrays of the call."""
    seen = dict(others)
    for name, array in written.items():
        if not array.flags.writeable:
            raise UsageError(f"the array for output '{name}' is read-only; bind one that may be written")
        for other, used in seen.items():
            if np.may_share_memory(array, used):  # exact, as all of them are contiguous
                raise UsageError(
                    f"the arrays for '{name}' and '{other}' share memory; an output needs its own"
                )
        seen[name] = array

"""A program with run-time sizes that keeps states, some of which grow: the cache of a decoder."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from qglow.core.errors import UsageError
from qglow.core.types import Array, Shape, TensorType
from qglow.runtime.streaming import StreamingExecutable, state_element
from qglow.toolchain.bounded_program import BoundedExecutable, BoundedProgram, leading_part


class GrowingExecutable(StreamingExecutable):
    """States that a program with run-time sizes keeps, such as keys and values of the tokens so far.

    Each state lies in memory for the bound of its program, and the program reads it there; where an output is
    the state followed by new places, the program writes only these, behind the live ones. A stream begins
    without places along axes with run-time sizes, and with zeros elsewhere. See `StreamingExecutable` for
    what else holds.
    """

    _executable: BoundedExecutable

    def __init__(
        self, executable: BoundedExecutable, states: Mapping[str, str], held: Sequence[str] = ()
    ) -> None:
        """`states` pairs an input with the output that the next call reads there.

        held: further inputs that are kept, which `reset` alone changes. Raises UsageError for names that the
        program does not have, and for pairs of different types.
        """
        self._executable = executable
        self._states = dict(states)
        self._unchanged = tuple(held)
        self._counts = executable.dimensions.inputs
        self._kinds = _kinds(executable, self._states, held)
        self._lock = threading.RLock()
        self._shapes: dict[str, Shape] = {}
        self._kept: dict[str, Array] = {}
        self._last: BoundedProgram | None = None
        self.reset()

    def reset(self, initial: Mapping[str, Array] | None = None) -> None:
        """Begin a new stream: states are empty along axes with run-time sizes, or what `initial` has.

        Raises UsageError for arrays of unknown names, or of other types than the states.
        """
        given = {} if initial is None else {name: np.asarray(array) for name, array in initial.items()}
        self._check_initial(given)
        self._begin(given)

    def _begin(self, given: Mapping[str, Array]) -> None:
        """Let states be copies of what is given, the others empty."""
        bounds = self._executable.dimensions.bounds
        least = {name: 0 if sizes[-1] > 1 else 1 for name, sizes in bounds.items()}
        with self._lock:
            self._last = None
            for name, kind in self._kinds.items():
                shape = tuple(count.at(least) for count in self._counts[name])
                array = given.get(name)
                kept = np.full(shape, state_element(kind)) if array is None else array.copy()
                self._kept[name], self._shapes[name] = kept, kept.shape

    def _check_initial(self, given: Mapping[str, Array]) -> None:
        for name, array in given.items():
            if name not in self._kinds:
                raise UsageError(f"no state is called '{name}'; the states are {', '.join(self._kinds)}")
            kind = self._kinds[name]
            fits = array.dtype == kind.element.dtype and array.ndim == len(kind.shape)
            if not fits or any(size > bound for size, bound in zip(array.shape, kind.shape, strict=True)):
                raise UsageError(
                    f"the initial '{name}' is {array.dtype} of shape {list(array.shape)}, the state is "
                    f"{kind.element.dtype} of at most {list(kind.shape)}"
                )

    @property
    def state(self) -> dict[str, Array]:
        """States by the name of their input, live: what the next call reads, which may be written to."""
        return {name: kept[leading_part(self._shapes[name])] for name, kept in self._kept.items()}

    def fork(self) -> GrowingExecutable:
        """Another stream that goes on from a copy of the states; it shares code and weights."""
        forked = GrowingExecutable(self._executable, self._states, self._unchanged)
        with self._lock:
            forked._begin(self.state)  # of a full context too, from which no call goes on
        return forked

    def prepare(self, shapes: Mapping[str, Sequence[int]]) -> None:
        """Check that a program has these shapes of the inputs that are no states. Raises DataError."""
        self._executable.prepare({**shapes, **self._shapes})

    def takes(self, shapes: Mapping[str, Sequence[int]]) -> bool:
        """Whether a program has these shapes of the inputs that are no states."""
        return self._executable.takes({**shapes, **self._shapes})

    def __call__(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Run over the next piece.

        Raises DataError for missing, unknown or misshapen inputs, and where a size goes beyond its bound.
        """
        self._check_names(inputs)
        with self._lock:
            arrays = {name: np.asarray(array) for name, array in inputs.items()}
            shapes = {name: array.shape for name, array in arrays.items()} | self._shapes
            sizes = self._executable.dimensions.sizes(shapes)
            program = self._executable.program_for(sizes)
            for name in self._kinds:
                self._hold(name, program)
            self._last = program
            results = self._executable.run(program, sizes, arrays | self._kept)
            shapes = program.live_shapes(sizes)
            for name, output in self._states.items():
                self._take(name, output, results[output], program, shapes[output])
        return {
            name: np.ascontiguousarray(results[name][leading_part(shape)])
            for name, shape in shapes.items()
            if name not in self._states.values()
        }

    def _hold(self, name: str, program: BoundedProgram) -> None:
        """Let a state lie in memory of the size that a program reads.

        What another program left behind live places may be no zeros, on which this one relies.
        """
        kept, shape = self._kept[name], program.shapes[name]
        if kept.shape != shape or self._last is not program:
            part = leading_part(self._shapes[name])
            self._kept[name] = np.zeros(shape, kept.dtype)
            self._kept[name][part] = kept[part]

    def _take(self, name: str, output: str, result: Array, program: BoundedProgram, shape: Shape) -> None:
        """Write what a call has made of a state, which has this shape now."""
        if program.kept.get(output) != name:
            kept, grown = self._kept[name], program.grown.get(output)
            part, whole = list(leading_part(shape)), tuple(map(max, shape, kept.shape))
            if grown is None or grown.input != name:
                self._kept[name] = np.zeros(whole, kept.dtype)  # programs rely on zeros behind live places
            else:
                part[grown.axis] = slice(self._shapes[name][grown.axis], shape[grown.axis])
                if whole != kept.shape:
                    self._kept[name] = np.zeros(whole, kept.dtype)
                    self._kept[name][leading_part(kept.shape)] = kept
            self._kept[name][tuple(part)] = result[tuple(part)]
        self._shapes[name] = shape

    def bind(self, inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> Callable[[], None]:
        """Raise UsageError: arrays of a fixed size have no run-time sizes."""
        return self._executable.bind(inputs, outputs)


def _kinds(
    executable: BoundedExecutable, states: Mapping[str, str], held: Sequence[str]
) -> dict[str, TensorType]:
    """Types of the states, and of what is held, of the largest sizes. Raises UsageError as the class does."""
    taken, given = executable.inputs, executable.outputs
    missing = [name for name in held if name not in taken]
    if missing:
        raise UsageError(f"no input is called '{missing[0]}'; there are {', '.join(taken)}")
    for name, output in states.items():
        for one, known, what in ((name, taken, "input"), (output, given, "output")):
            if one not in known:
                raise UsageError(f"state '{name}': no {what} is called '{one}'; there are {', '.join(known)}")
        read, written = taken[name], given[output]
        same = read.element is written.element and read.quantization == written.quantization
        if not same or len(read.shape) != len(written.shape):
            raise UsageError(
                f"state '{name}': the input is {read}, but the output '{output}' is {written}; "
                "they have to be equal up to sizes that change while the model runs"
            )
    return {name: taken[name] for name in (*states, *held)}

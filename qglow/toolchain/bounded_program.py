"""Programs of one model for several sizes of its inputs; a call runs the smallest that takes its own."""

from __future__ import annotations

import math
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from qglow.core.errors import DataError, UsageError
from qglow.core.printable import printable
from qglow.core.types import Array, Dimension, Shape, TensorType
from qglow.counts import Count, Filler, GrownInput, LiveAxis, LivePlaces
from qglow.display.blocks import Section, facts
from qglow.display.lines import listed
from qglow.lowering.live import LiveResults
from qglow.runtime.delegating import DelegatingExecutable
from qglow.runtime.executable import Executable, check_input_names
from qglow.toolchain.bounded_inputs import Alike, BoundedInputs, Counts, ProgramSizes, alike
from qglow.toolchain.compilation import RunTimePlaces

KEPT = 64
"""Sizes for which each program keeps the inputs that follow from them."""


@dataclass(frozen=True, eq=False)
class BoundedForm:
    """Knowledge of a program for some sizes that its calls need.

    inputs, outputs: types of those of its graph. counts: sizes of the outputs' axes. grown: outputs that
    continue an input. fillers: inputs that follow from sizes. constants: others, which a graph of the sizes
    of a call computes. live, summed: as those of the bounded graph, needed where it is compiled. loose:
    inputs that may hold anything where they are not live. windows: how many places windows have, which is at
    least one in a call.
    """

    taken: ProgramSizes
    inputs: Mapping[str, TensorType]
    outputs: Mapping[str, TensorType]
    counts: Counts
    grown: Mapping[str, GrownInput]
    fillers: Sequence[Filler]
    constants: Callable[[Mapping[str, int]], Mapping[str, Array]]
    live: Mapping[str, tuple[LiveAxis, ...]] = field(default_factory=dict)
    summed: Mapping[str, str] = field(default_factory=dict)
    loose: frozenset[str] = frozenset()
    windows: Sequence[Count] = ()

    @property
    def places(self) -> RunTimePlaces:
        """Facts that the lowering of its graph uses."""
        growing = [(growth.input, output, growth.axis) for output, growth in self.grown.items()]
        live = {one.name: (str(one.count), one.bound) for one in self.fillers if isinstance(one, LivePlaces)}
        places = {name: tuple((a.axis, a.count) for a in axes) for name, axes in self.live.items()}
        return RunTimePlaces(growing, live, LiveResults(places, self.summed))


@dataclass(frozen=True, eq=False)
class BoundedProgram:
    """A program for the sizes of a form.

    kept: inputs of the grown outputs that are written in place: the program takes the input as state of the
    output's type, and the state is the output.
    """

    form: BoundedForm
    fillers: Sequence[Filler]
    kept: Mapping[str, str]
    executable: Executable

    @staticmethod
    def of(form: BoundedForm, executable: Executable) -> BoundedProgram:
        """The program of a form."""
        grown = form.grown
        kept = {name: growth.input for name, growth in grown.items() if growth.input in executable.kept}
        firsts: dict[Filler, Filler] = {grown[name].joined: grown[name].first for name in kept}
        return BoundedProgram(form, [firsts.get(one, one) for one in form.fillers], kept, executable)

    @property
    def counts(self) -> Counts:
        """Sizes of the outputs' axes."""
        return self.form.counts

    @property
    def grown(self) -> Mapping[str, GrownInput]:
        """Outputs that continue an input."""
        return self.form.grown

    @cached_property
    def _alike(self) -> Alike:
        return alike(self.counts)

    def live_shapes(self, sizes: Mapping[str, int]) -> dict[str, Shape]:
        """Shapes of the live parts of the outputs."""
        shapes = [(tuple([count.at(sizes) for count in counts]), names) for counts, names in self._alike]
        return {name: shape for shape, names in shapes for name in names}

    @cached_property
    def shapes(self) -> Mapping[str, Shape]:
        """Shape of the memory that the program reads each input from."""
        return {name: kind.shape for name, kind in {**self.form.inputs, **self.executable.kept}.items()}


class BoundedExecutable(DelegatingExecutable):
    """Programs of one model, each for all sizes of some dimensions up to its bound.

    A call runs the smallest program that has its sizes, which it finds from the shapes of the inputs. Results
    have the bits of a program that is compiled for these shapes; some programs may lack outputs that others
    have. What a single program has, its memory, its listing and `bind`, is that of the largest.
    """

    def __init__(
        self, dimensions: BoundedInputs, programs: Sequence[BoundedProgram], weight_bytes: int
    ) -> None:
        """`programs` in ascending order, the one of the bounds last, and bytes of the constants of all."""
        self._dimensions = dimensions
        self._weight_bytes = weight_bytes
        self._programs = sorted(programs, key=_volume)
        self._filled: dict[BoundedProgram, OrderedDict[tuple[int, ...], dict[str, Array]]] = {
            program: OrderedDict() for program in self._programs
        }
        self._lock = threading.Lock()

    def __call__(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Run once. Raises DataError for missing, unknown or misshapen inputs, and sizes above the bounds."""
        check_input_names(inputs, self._dimensions.inputs)
        arrays = {name: np.asarray(array) for name, array in inputs.items()}
        sizes = self._dimensions.sizes({name: array.shape for name, array in arrays.items()})
        program = self.program_for(sizes)
        results = self.run(program, sizes, arrays)
        return {
            name: np.ascontiguousarray(results[name][leading_part(shape)])
            for name, shape in program.live_shapes(sizes).items()
        }

    def program_for(self, sizes: Mapping[str, int]) -> BoundedProgram:
        """The smallest program that takes these sizes. Raises DataError where there is none."""
        found = next((one for one in self._programs if one.form.taken.takes(sizes)), None)
        if found is None:
            shapes = self._dimensions.shapes(sizes)
            asked = ", ".join(f"{name} {list(shape)}" for name, shape in shapes.items())
            raise DataError(f"no program takes {asked}; there are programs for {'; '.join(self.ranges)}")
        return found

    def run(
        self, program: BoundedProgram, sizes: Mapping[str, int], arrays: Mapping[str, Array]
    ) -> dict[str, Array]:
        """Run a program once: outputs of the program's size, of which the live places count.

        arrays: inputs of these sizes; those that have the program's size are taken as they are. One that the
        program writes in place is the output itself.
        """
        padded = {
            name: padded_array(array, program.shapes[name], loose=name in program.form.loose)
            for name, array in arrays.items()
            if name in program.form.inputs
        }
        state = {name: padded.pop(name) for name in program.kept.values()}
        results = program.executable.run_on(state, {**padded, **self._follow(program, sizes)})
        return results | {output: state[name] for output, name in program.kept.items()}

    def _follow(self, program: BoundedProgram, sizes: Mapping[str, int]) -> dict[str, Array]:
        """Inputs that follow from the sizes of a call."""
        key, filled = tuple(sizes[name] for name in program.form.taken.sizes), self._filled[program]
        with self._lock:
            if key in filled:
                filled.move_to_end(key)
                return filled[key]
        self._check_windows(program.form, sizes)
        kinds = program.executable.inputs
        made = {filler.name: filler.fill(sizes) for filler in program.fillers}
        made |= {
            name: padded_array(array, kinds[name].shape)
            for name, array in program.form.constants(sizes).items()
        }
        with self._lock:
            filled[key] = made
            while len(filled) > KEPT:
                filled.popitem(last=False)
        return made

    def _check_windows(self, form: BoundedForm, sizes: Mapping[str, int]) -> None:
        for count in form.windows:
            if count.at(sizes) < 1:
                shapes = self._dimensions.shapes(sizes)
                asked = ", ".join(f"{printable(name)} {list(shape)}" for name, shape in shapes.items())
                raise DataError(
                    f"{asked} is too small: there are {count} places, of which a window or a slice needs one"
                )

    @property
    def dimensions(self) -> BoundedInputs:
        """Sizes of the inputs as sums of dimensions, and the bounds of these."""
        return self._dimensions

    @property
    def inputs(self) -> dict[str, TensorType]:
        """Names and types of the inputs, each of its largest size."""
        return dict(self._largest_inputs)

    @cached_property
    def _largest_inputs(self) -> Mapping[str, TensorType]:
        found: dict[str, TensorType] = {}
        for kinds in (program.form.inputs for program in self._programs):
            for name in kinds.keys() & self._dimensions.inputs.keys():
                found[name] = max(found.get(name, kinds[name]), kinds[name], key=lambda kind: kind.size)
        return {name: found[name] for name in self._dimensions.inputs if name in found}

    @property
    def outputs(self) -> dict[str, TensorType]:
        """Names and types of the outputs, each of the largest sizes that give it."""
        found: dict[str, TensorType] = {}
        for program in self._programs:
            found |= program.form.outputs
        return found

    @property
    def continued(self) -> dict[str, str]:
        """Inputs, each with the only output that is this input followed by new places."""
        pairs = {(one.input, output) for program in self._programs for output, one in program.grown.items()}
        times = Counter(name for name, _ in pairs)
        return {name: output for name, output in pairs if times[name] == 1}

    @property
    def taken(self) -> tuple[ProgramSizes, ...]:
        """Sizes that each program takes, the smallest first."""
        return tuple(one.form.taken for one in self._programs)

    @property
    def programs(self) -> tuple[dict[str, Shape], ...]:
        """Largest shapes of the inputs of every program."""
        return tuple(self._dimensions.shapes(one.form.taken.sizes) for one in self._programs)

    @property
    def free_dimensions(self) -> dict[str, tuple[Dimension, ...]]:
        """Dimensions of the inputs: numbers, and names of those that have several sizes."""
        return self._dimensions.declared

    def prepare(self, shapes: Mapping[str, Sequence[int]]) -> None:
        """Check that a program has these shapes. Raises DataError."""
        check_input_names(shapes, self._dimensions.inputs)
        self.program_for(self._dimensions.sizes({name: tuple(shape) for name, shape in shapes.items()}))

    def takes(self, shapes: Mapping[str, Sequence[int]]) -> bool:
        """Whether a program has these shapes of all inputs."""
        try:
            self.prepare(shapes)
        except DataError:
            return False
        return True

    @property
    def ranges(self) -> tuple[str, ...]:
        """Shapes of the inputs that each program takes, as text, the smallest first."""
        return tuple(self._dimensions.range_text(one.form.taken) for one in self._programs)

    def _line(self) -> str:
        return f"{super()._line()}; programs for {listed(self.ranges, most=3)}"

    def to_dict(self) -> dict[str, Any]:
        """Facts of the programs for JSON, as of one, and under "programs" the shapes that each takes."""
        return {**super().to_dict(), "programs": list(self.ranges)}

    def _sections(self) -> tuple[Section, ...]:
        rows = [(f"program {number}", text) for number, text in enumerate(self.ranges, 1)]
        return (*super()._sections(), Section("Programs", (facts(rows),)))

    @property
    def _one(self) -> Executable:
        """The largest program."""
        return self._programs[-1].executable

    def bind(self, inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> Callable[[], None]:
        """Raise UsageError: arrays of a fixed size have no run-time sizes."""
        raise UsageError("a program with run-time sizes is called; compile for shapes to bind arrays")

    @property
    def weight_bytes(self) -> int:
        """Bytes of packed constants of all programs, which share those that they read alike."""
        return self._weight_bytes


def _volume(program: BoundedProgram) -> tuple[int, int]:
    """Places that a call computes, then dimensions of several sizes: a program of one size comes first."""
    taken = program.form.taken
    return math.prod(taken.sizes.values()), len(taken.open)


def leading_part(shape: Shape) -> tuple[slice, ...]:
    """The first elements along every axis."""
    return tuple([slice(size) for size in shape])


def padded_array(array: Array, shape: Shape, loose: bool = False) -> Array:
    """The array with zeros behind its elements along every axis; `loose`: with anything there."""
    if array.shape == shape:
        return array
    result = np.empty(shape, array.dtype) if loose else np.zeros(shape, array.dtype)
    result[leading_part(array.shape)] = array
    return result

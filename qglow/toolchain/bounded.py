"""An executable for all sizes of some dimensions up to a bound, with few programs."""

from __future__ import annotations

import itertools
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from qglow.core.errors import DataError, UnsupportedError, UsageError
from qglow.core.model_place import ModelPlace
from qglow.core.types import Array, Dimension, Shape, TensorType
from qglow.counts import BoundedGraph, Count, Filler, GrownInput, SizedGraph, bounded_graph, parse_count
from qglow.graph.graph import Graph
from qglow.runtime.delegating import DelegatingExecutable
from qglow.runtime.executable import Executable, check_input_names
from qglow.toolchain.compilation import compile_together
from qglow.toolchain.options import CompileOptions
from qglow.toolchain.shape_constants import ShapeConstants

Bounds = Mapping[str, int | Sequence[int] | str]
"""Largest sizes of dimensions by name: one, or one for each program, or a sum of other dimensions as text."""
Counts = Mapping[str, tuple[Count, ...]]
GraphAt = Callable[[Mapping[str, Shape]], Graph]
Narrowed = Callable[[Mapping[str, int], Graph], Graph]
"""Function of the bounds of a program and its graph, which it gives with fewer outputs, or as it is."""

LEAST = 8
"""The least bound above 1: smaller sizes than the bound tell what depends on it."""
KEPT = 64
"""Sizes for which each program keeps the inputs that follow from them."""


@dataclass(frozen=True)
class BoundedInputs:
    """Sizes of the inputs as sums of dimensions, and the bounds of these, least first."""

    inputs: Counts
    bounds: Mapping[str, tuple[int, ...]]

    def shapes(self, sizes: Mapping[str, int]) -> dict[str, Shape]:
        """Shapes of the inputs where dimensions have these sizes."""
        return {name: tuple(count.at(sizes) for count in counts) for name, counts in self.inputs.items()}

    def sizes(self, shapes: Mapping[str, Shape]) -> dict[str, int]:
        """Sizes of the dimensions where inputs have these shapes. Raises DataError where they do not fit."""
        found: dict[str, int] = {}
        for name, counts in self.inputs.items():
            shape = shapes[name]
            if len(shape) != len(counts):
                raise DataError(f"input '{name}' has shape {shape}, the program wants {_text(counts)}")
            for count, size in zip(counts, shape, strict=True):
                for dimension in count.shown:
                    found.setdefault(dimension, size - count.offset)
        for dimension in self.bounds:
            given, bound = found.get(dimension), self.bounds[dimension][-1]
            if given is None or not (given == bound or 0 <= given < bound > 1):
                raise DataError(f"dimension '{dimension}' is {given}, the bound is {bound}")
        for name, counts in self.inputs.items():
            if shapes[name] != tuple(count.at(found) for count in counts):
                raise DataError(f"input '{name}' has shape {shapes[name]}, the program wants {_text(counts)}")
        return found


def dimensions_of(
    declared: Mapping[str, Sequence[Dimension] | None], own: Mapping[str, Shape], bounds: Bounds
) -> BoundedInputs:
    """Sizes of inputs whose shapes a file declares so.

    own: shapes of a call where they are known; a first dimension is else 1. Raises UsageError for a name that
    no dimension has, a bound that is none, and a dimension without a size.
    """
    numbers = {name: _numbers(name, bound) for name, bound in bounds.items() if not isinstance(bound, str)}
    sums = {name: _sum(name, bound, numbers) for name, bound in bounds.items() if isinstance(bound, str)}
    used: set[str] = set()
    inputs: dict[str, tuple[Count, ...]] = {}
    for name, dimensions in declared.items():
        counts = []
        for axis, dimension in enumerate(dimensions if dimensions is not None else own.get(name, ())):
            count = _count(dimension, numbers, sums)
            if count is None and name in own:
                count = Count((), own[name][axis])
            if count is None and axis == 0:
                count = Count((), 1)
            if count is None:
                raise UsageError(
                    f"dimension '{dimension}' of input '{name}' has no size: bind it, or bound it"
                )
            used |= {term for term, _ in count.terms} | {str(dimension)}
            counts.append(count)
        inputs[name] = tuple(counts)
    for name in bounds:
        if name not in used:
            known = sorted({d for dims in declared.values() for d in dims or () if isinstance(d, str)})
            raise UsageError(
                f"no dimension of an input is called '{name}'; there are {', '.join(known) or 'none'}"
            )
    shown = {name for counts in inputs.values() for count in counts for name in count.shown}
    hidden = [name for name in numbers if name not in shown]
    if hidden:
        raise UsageError(f"the inputs show no size of '{hidden[0]}': it is part of sums alone")
    return BoundedInputs(inputs, numbers)


def bounded_executable(
    place: ModelPlace,
    dimensions: BoundedInputs,
    at: GraphAt,
    options: CompileOptions,
    narrowed: Narrowed | None = None,
) -> BoundedExecutable:
    """Compile a model for all sizes of dimensions up to their bounds.

    place: the float model's file or bytes. at: its graph, float or int8, for shapes of the inputs. narrowed:
    the graph of a program for sizes up to these, with fewer outputs where its calls need fewer. Raises
    UnsupportedError that names what depends on how many places there are, and what `at` raises.
    """
    names = list(dimensions.bounds)
    every = [dict(zip(names, sizes, strict=True)) for sizes in itertools.product(*dimensions.bounds.values())]
    parts = [_bounded(place, dimensions, sizes, _narrowing(at, narrowed, sizes)) for sizes in every]
    growing = [
        [(growth.input, output, growth.axis) for output, growth in bounded.grown.items()]
        for bounded, _ in parts
    ]
    graphs = [(bounded.graph, states) for (bounded, _), states in zip(parts, growing, strict=True)]
    executables, weight_bytes = compile_together(graphs, options)
    programs = [
        BoundedProgram.of(sizes, bounded, executable, constants)
        for sizes, (bounded, constants), executable in zip(every, parts, executables, strict=True)
    ]
    return BoundedExecutable(dimensions, programs, weight_bytes)


@dataclass(frozen=True, eq=False)
class BoundedProgram:
    """A program for sizes up to `sizes`.

    inputs, outputs: types of those of its graph. counts: sizes of the outputs' axes. grown: outputs that
    continue an input. kept: inputs of those that are written in place: the program takes the input as state
    of the output's type, and the state is the output. fillers: inputs that follow from sizes. constants:
    others, which a graph of the sizes of a call computes.
    """

    sizes: Mapping[str, int]
    inputs: Mapping[str, TensorType]
    outputs: Mapping[str, TensorType]
    counts: Counts
    grown: Mapping[str, GrownInput]
    kept: Mapping[str, str]
    fillers: Sequence[Filler]
    executable: Executable
    constants: Callable[[Mapping[str, int]], Mapping[str, Array]]

    @staticmethod
    def of(
        sizes: Mapping[str, int], bounded: BoundedGraph, executable: Executable, constants: ShapeConstants
    ) -> BoundedProgram:
        """The program of a graph. It does not hold the graph."""
        graph, grown = bounded.graph, bounded.grown
        inputs, outputs = ({v.name: v.type for v in values} for values in (graph.inputs, graph.outputs))
        kept = {name: growth.input for name, growth in grown.items() if growth.input in executable.kept}
        firsts: dict[Filler, Filler] = {grown[name].joined: grown[name].first for name in kept}
        fillers = [firsts.get(filler, filler) for filler in bounded.fillers]
        counts = bounded.outputs
        return BoundedProgram(sizes, inputs, outputs, counts, grown, kept, fillers, executable, constants)

    def shape(self, name: str) -> Shape:
        """Shape of the memory that the program reads an input from."""
        return (self.executable.kept if name in self.executable.kept else self.inputs)[name].shape


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
        self._programs = sorted(programs, key=lambda one: int(np.prod(list(one.sizes.values()))))
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
            name: np.ascontiguousarray(results[name][live(counts, sizes)])
            for name, counts in program.counts.items()
        }

    def program_for(self, sizes: Mapping[str, int]) -> BoundedProgram:
        """The smallest program that takes these sizes."""
        return next(
            one
            for one in self._programs
            if all(sizes[name] == bound or sizes[name] < bound > 1 for name, bound in one.sizes.items())
        )

    def run(
        self, program: BoundedProgram, sizes: Mapping[str, int], arrays: Mapping[str, Array]
    ) -> dict[str, Array]:
        """Run a program once: outputs of the program's size, of which the live places count.

        arrays: inputs of these sizes; those that have the program's size are taken as they are. One that the
        program writes in place is the output itself.
        """
        padded = {
            name: padded_array(array, program.shape(name))
            for name, array in arrays.items()
            if name in program.inputs
        }
        state = {name: padded.pop(name) for name in program.kept.values()}
        results = program.executable.run_on(state, {**padded, **self._follow(program, sizes)})
        return results | {output: state[name] for output, name in program.kept.items()}

    def _follow(self, program: BoundedProgram, sizes: Mapping[str, int]) -> dict[str, Array]:
        """Inputs that follow from the sizes of a call."""
        key, filled = tuple(sizes[name] for name in program.sizes), self._filled[program]
        with self._lock:
            if key in filled:
                filled.move_to_end(key)
                return filled[key]
        kinds = program.executable.inputs
        made = {filler.name: filler.fill(sizes) for filler in program.fillers}
        made |= {
            name: padded_array(array, kinds[name].shape) for name, array in program.constants(sizes).items()
        }
        with self._lock:
            filled[key] = made
            while len(filled) > KEPT:
                filled.popitem(last=False)
        return made

    @property
    def dimensions(self) -> BoundedInputs:
        """Sizes of the inputs as sums of dimensions, and the bounds of these."""
        return self._dimensions

    @property
    def inputs(self) -> dict[str, TensorType]:
        """Names and types of the inputs, of the largest sizes."""
        kinds = self._programs[-1].inputs
        return {name: kind for name, kind in kinds.items() if name in self._dimensions.inputs}

    @property
    def outputs(self) -> dict[str, TensorType]:
        """Names and types of the outputs, each of the largest sizes that give it."""
        found: dict[str, TensorType] = {}
        for program in self._programs:
            found |= program.outputs
        return found

    @property
    def programs(self) -> tuple[dict[str, Shape], ...]:
        """Largest shapes of the inputs of every program."""
        return tuple(self._dimensions.shapes(one.sizes) for one in self._programs)

    def prepare(self, shapes: Mapping[str, Sequence[int]]) -> None:
        """Check that a program has these shapes. Raises DataError."""
        check_input_names(shapes, self._dimensions.inputs)
        self._dimensions.sizes({name: tuple(shape) for name, shape in shapes.items()})

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


def _bounded(
    place: ModelPlace, dimensions: BoundedInputs, sizes: Mapping[str, int], at: GraphAt
) -> tuple[BoundedGraph, ShapeConstants]:
    """The graph for sizes up to these, and what computes its constants of the sizes of a call."""
    samples = [SizedGraph(entry, at(dimensions.shapes(entry))) for entry in _samples(sizes)]
    if samples[0].graph.tail is not None:
        raise UnsupportedError(
            f"{place}: {samples[0].graph.tail.kinds} run in onnxruntime behind the program, which takes no "
            "bounds then; compile without them, or end the model before these nodes (qglow cut)"
        )
    # Smaller graphs must compute the very constants that a call will be given.
    known = [(entry.sizes, {v.name: v for v in entry.graph.constants()}) for entry in samples]
    bounded = bounded_graph(samples)
    constants = ShapeConstants(place, bounded.computed, dimensions.shapes, sizes)
    for entry, values in known[1:]:
        for name, array in constants.imported(entry).items():
            data = values[name].data
            if data is None or data.shape != array.shape or data.tobytes() != array.tobytes():
                raise UnsupportedError(f"constant '{name}' depends on sizes, and is not that of the file")
    return bounded, constants


def _narrowing(at: GraphAt, narrowed: Narrowed | None, bound: Mapping[str, int]) -> GraphAt:
    """The graphs of a program, which has the outputs that `narrowed` leaves it."""
    return at if narrowed is None else lambda shapes: narrowed(bound, at(shapes))


def _samples(bound: Mapping[str, int]) -> list[dict[str, int]]:
    """The bound, and smaller sizes: one for each dimension that it bounds, and one for all of them."""
    open_ones = [name for name, size in bound.items() if size > 1]
    samples = [dict(bound)]
    samples += [{**bound, name: bound[name] - 1 - place} for place, name in enumerate(open_ones)]
    samples += [{**bound, **{name: bound[name] // 2 - place for place, name in enumerate(open_ones)}}]
    return samples


def live(counts: Sequence[Count], sizes: Mapping[str, int]) -> tuple[slice, ...]:
    """The part of a tensor that is live."""
    return tuple(slice(count.at(sizes)) for count in counts)


def padded_array(array: Array, shape: Shape) -> Array:
    """The array with zeros behind its elements along every axis."""
    if array.shape == shape:
        return array
    result = np.zeros(shape, array.dtype)
    result[tuple(slice(extent) for extent in array.shape)] = array
    return result


def _numbers(name: str, bound: int | Sequence[int]) -> tuple[int, ...]:
    numbers = tuple(bound) if isinstance(bound, Sequence) else (bound,)
    wrong = [n for n in numbers if not isinstance(n, int) or isinstance(n, bool) or (n < LEAST and n != 1)]
    if wrong or not numbers:
        raise UsageError(f"the bound of '{name}' is {bound}, it must be 1 or at least {LEAST}")
    return tuple(sorted(set(numbers)))


def _sum(name: str, text: str, numbers: Mapping[str, object]) -> Count:
    count = parse_count(text, numbers)
    if count is None:
        raise UsageError(f"'{name}' is bounded by '{text}', which is no sum of bounded dimensions")
    return count


def _count(
    dimension: Dimension, numbers: Mapping[str, tuple[int, ...]], sums: Mapping[str, Count]
) -> Count | None:
    if isinstance(dimension, int):
        return Count((), dimension)
    if dimension is None:
        return None
    return sums.get(dimension) or parse_count(dimension, numbers)


def _text(counts: Sequence[Count]) -> str:
    return "[" + ", ".join(map(str, counts)) + "]"

"""Programs of one model for ranges of sizes, or for sizes alone: their graphs, and an executable of them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from qglow.core.errors import QglowError, UnsupportedError
from qglow.core.kept_imports import KeptImports
from qglow.core.memory import release_after
from qglow.core.model_place import ModelPlace
from qglow.core.passes import PassLog
from qglow.core.types import Array, Given, Shape
from qglow.counts import Count, SizedGraph, SmallConstants, bounded_graph, twins_of
from qglow.graph.graph import Graph, Node
from qglow.lowering.decompose import decompose_node
from qglow.passes.share_tables import ShareTables
from qglow.quantization.row_states import keep_rows_in_int8, scales_name
from qglow.toolchain.bounded_inputs import LEAST, BoundedInputs, ProgramSizes
from qglow.toolchain.bounded_program import BoundedExecutable, BoundedForm, BoundedProgram
from qglow.toolchain.compilation import compile_together
from qglow.toolchain.options import CompileOptions
from qglow.toolchain.shape_constants import ShapeConstants, StoredConstants

GraphAt = Callable[[Mapping[str, Shape], KeptImports], Graph]
LARGE = 1 << 12
"""Bytes of a constant from which on equal ones are one array."""
Narrowed = Callable[[Mapping[str, int], Graph], Graph]
"""Function of the bounds of a program and its graph, which it gives with fewer outputs, or as it is."""


@dataclass(frozen=True)
class Int8States:
    """States whose rows are kept in int8, each with a scale.

    names: of their inputs. outputs: which output of a graph continues each of them.
    """

    names: Sequence[str]
    outputs: Callable[[Graph], Mapping[str, str]]

    def keep(self, graph: Graph) -> Graph:
        """The graph with these states in int8. Raises UnsupportedError where one has no such rows."""
        pairs = self.outputs(graph)
        return keep_rows_in_int8(graph, {name: pairs[name] for name in self.names})


@dataclass(frozen=True)
class ResizableModel:
    """A model whose dimensions have names, and its graph in any sizes.

    place: the float model's file or bytes. dimensions: those of its inputs. at: its graph, float or int8, for
    shapes of the inputs, with what imports of the file have in common. narrowed: the graph of a program for
    sizes up to these, with fewer outputs where its calls need fewer. int8_states: states that programs keep
    in int8; None for none. values: of inputs that are constants.

    The file is read, decoded and packed for the first graph alone, until `forget_file`.
    """

    place: ModelPlace
    dimensions: BoundedInputs
    at: GraphAt
    narrowed: Narrowed | None = None
    int8_states: Int8States | None = None
    values: Mapping[str, Given] = field(default_factory=dict)
    _known: dict[str, Array] = field(default_factory=dict, repr=False, compare=False)
    _kept: KeptImports = field(default_factory=KeptImports, repr=False, compare=False)

    @property
    def called(self) -> BoundedInputs:
        """Dimensions of the inputs of programs: those of the model, and of the scales of its states."""
        known = self.dimensions
        names = () if self.int8_states is None else self.int8_states.names
        scales = {scales_name(name): (*known.inputs[name][:-1], Count((), 1)) for name in names}
        return BoundedInputs({**known.inputs, **scales}, known.bounds)

    def form(self, taken: ProgramSizes) -> tuple[Graph, BoundedForm]:
        """The graph for these sizes, and what calls of its program have to know.

        Raises UnsupportedError that names what depends on how many places there are, and what `at` raises.
        """
        return self._bounded(taken) if taken.open else self._exact(taken)

    def _exact(self, taken: ProgramSizes) -> tuple[Graph, BoundedForm]:
        graph = self._graph(taken, taken.sizes)
        self._refuse_tail(graph)
        inputs, outputs = ({v.name: v.type for v in values} for values in (graph.inputs, graph.outputs))
        counts = {name: tuple(Count((), extent) for extent in kind.shape) for name, kind in outputs.items()}
        return graph, BoundedForm(taken, inputs, outputs, counts, {}, (), StoredConstants({}))

    def _bounded(self, taken: ProgramSizes) -> tuple[Graph, BoundedForm]:
        samples = [self._sample(taken, entry) for entry in _samples(taken)]
        if _has_strides(samples[0].graph):
            between = {name: taken.sizes[name] * 3 // 4 for name in taken.open}
            further = {**taken.sizes, **between}
            samples.append(self._sample(taken, further))
        self._refuse_tail(samples[0].graph)
        _decompose_whole([entry.graph for entry in samples])
        made = bounded_graph(samples, self._small_constants(taken))
        known = [entry.sizes for entry in samples]
        shapes = self.dimensions.shapes
        constants = ShapeConstants(
            self.place, made.computed, known, shapes, taken.open, self._kept, self.values
        )
        # Smaller graphs must compute the very constants that a call will be given.
        for place, sizes in enumerate(known[1:], 1):
            for name, array in constants.imported(sizes).items():
                wanted = made.computed[name].arrays[place]
                if wanted.shape != array.shape or wanted.tobytes() != array.tobytes():
                    raise UnsupportedError(f"constant '{name}' depends on sizes, and is not that of the file")
        graph = made.graph
        inputs, outputs = ({v.name: v.type for v in values} for values in (graph.inputs, graph.outputs))
        form = BoundedForm(
            taken,
            inputs,
            outputs,
            made.outputs,
            made.grown,
            made.fillers,
            constants,
            made.live,
            made.summed,
            made.loose,
            made.windows,
        )
        return graph, form

    def _small_constants(self, taken: ProgramSizes) -> SmallConstants:
        """Constants of small sizes, of the smallest that the model takes from 2 on."""
        sizes = {name: 2 if name in taken.open else size for name, size in taken.sizes.items()}
        while (graph := self._graph_if_taken(taken, sizes)) is None:
            larger = {name: min(2 * size, taken.sizes[name]) for name, size in sizes.items()}
            if larger == sizes:
                return SmallConstants({}, {})
            sizes = larger
        return SmallConstants(sizes, {value.name: value for value in graph.constants()})

    def _sample(self, taken: ProgramSizes, sizes: Mapping[str, int]) -> SizedGraph:
        """The graph of some sizes; an error says which of them may have to be equal."""
        try:
            return SizedGraph(sizes, self._graph(taken, sizes))
        except QglowError as error:
            error.details += tuple(
                f"'{one}' and '{other}' have other sizes there; where they are always equal, "
                f"give '{other}' as '{one}'"
                for one, other in self.dimensions.perhaps_equal(taken.sizes, sizes)
            )
            raise

    def _graph_if_taken(self, taken: ProgramSizes, sizes: Mapping[str, int]) -> Graph | None:
        """The graph of some sizes; None where the model takes no such sizes."""
        try:
            return self._graph(taken, sizes)
        except QglowError:
            return None

    def _graph(self, taken: ProgramSizes, sizes: Mapping[str, int]) -> Graph:
        """The graph of some sizes, with the outputs that calls of the program need."""
        graph = self.at(self.dimensions.shapes(sizes), self._kept)
        self._hold_once(graph)
        if self.narrowed is not None:
            # Tables are read where products have them, in programs without these products too.
            graph = graph.copy()
            ShareTables().run(graph, PassLog())
            graph = self.narrowed(taken.sizes, graph)
            self._hold_once(graph)
        return graph if self.int8_states is None else self.int8_states.keep(graph)

    def _hold_once(self, graph: Graph) -> None:
        """Let large constants be the arrays of the graphs before, where these have the same bytes.

        Graphs of all sizes are needed at once, and passes compute some of their constants for each. What is
        replaced is given back at once.
        """
        replaced = 0
        for value in graph.constants():
            data = value.data
            if data is not None and data.nbytes >= LARGE:
                known = self._known.setdefault(value.name, data)
                if known is not data and equal_bytes(known, data):
                    replaced += data.nbytes
                    value.data = known
        release_after(replaced)

    def forget_file(self) -> None:
        """Give back the memory of what only imports need. Another graph has the file read again."""
        held = self._kept.held
        self._kept.forget()
        release_after(held)

    def _refuse_tail(self, graph: Graph) -> None:
        if graph.tail is not None:
            raise UnsupportedError(
                f"{self.place}: {graph.tail.kinds} run in onnxruntime behind the program, which takes no "
                "bounds then; compile without them, or end the model before these nodes (qglow cut)"
            )


def equal_bytes(one: Array, other: Array) -> bool:
    """Whether two arrays have the same elements, bit by bit."""
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    first, second = (np.ascontiguousarray(a).reshape(-1).view(np.uint8) for a in (one, other))
    return bool(np.array_equal(first, second))


def every_bound(dimensions: BoundedInputs) -> list[ProgramSizes]:
    """Sizes of a program for each combination of bounds."""
    names = list(dimensions.bounds)
    every = itertools.product(*dimensions.bounds.values())
    return [ProgramSizes.up_to(dict(zip(names, sizes, strict=True))) for sizes in every]


def within(programs: Sequence[ProgramSizes], dimension: str, added: str, total: int) -> list[ProgramSizes]:
    """The programs, with less room along `dimension` where the sum of it and `added` would exceed `total`.

    Those that are left without room, or with that of another one, are left out.
    """
    found: list[ProgramSizes] = []
    for taken in programs:
        most = min(taken.sizes[dimension], total - taken.sizes[added])
        if most >= LEAST:
            found.append(ProgramSizes.up_to({**taken.sizes, dimension: most}))
    return [taken for place, taken in enumerate(found) if taken not in found[:place]]


def bounded_executable(
    model: ResizableModel, options: CompileOptions, programs: Sequence[ProgramSizes] | None = None
) -> BoundedExecutable:
    """Compile a model for all sizes of dimensions up to their bounds, or for those of `programs`.

    Raises UnsupportedError that names what depends on how many places there are, and what `model.at` raises.
    """
    wanted = every_bound(model.dimensions) if programs is None else programs
    made = [model.form(taken) for taken in wanted]
    model.forget_file()
    executables, weight_bytes = compile_together([(graph, form.places) for graph, form in made], options)
    compiled = [
        BoundedProgram.of(form, executable) for (_, form), executable in zip(made, executables, strict=True)
    ]
    return BoundedExecutable(model.called, compiled, weight_bytes)


def _samples(taken: ProgramSizes) -> list[dict[str, int]]:
    """The bound, and smaller sizes: one for each dimension that is open, and one for all of them."""
    bound, open_ones = taken.sizes, taken.open
    samples = [dict(bound)]
    samples += [{**bound, name: bound[name] - 1 - place} for place, name in enumerate(open_ones)]
    samples += [{**bound, **{name: bound[name] // 2 - place for place, name in enumerate(open_ones)}}]
    return samples


def _decompose_whole(graphs: Sequence[Graph]) -> None:
    """Decompose nodes that need all places along an axis whose size is not the same in all graphs.

    graphs: the same model in several sizes. The sums that a normalization consists of do not need them.
    """
    for twins in twins_of(graphs):
        if _needs_whole(twins):
            for graph, node in zip(graphs, twins, strict=True):
                decompose_node(graph, node)


def _needs_whole(twins: Sequence[Node]) -> bool:
    """Whether nodes need all places along an axis that has other sizes in other graphs."""
    for index, kinds in enumerate(zip(*(node.input_types() for node in twins), strict=False)):
        shapes = [kind.shape for kind in kinds if kind is not None]
        for axis, extents in enumerate(zip(*shapes, strict=False)):
            node = twins[0]
            if len(set(extents)) > 1 and node.operator.axis_effect(index, axis, node.input_types()) is None:
                return True
    return False


def _has_strides(graph: Graph) -> bool:
    """Whether windows of a graph move by more than one place, which takes one size more to explain."""
    windows = (node.operator.window(node.input_types()) for node in graph.nodes)
    return any(window is not None and max(window.strides) > 1 for window in windows)

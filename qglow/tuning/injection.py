"""Injection of errors into values of a float program, to measure what they do to its outputs.

An error changes nothing before the value that it is added to, so the graph is compiled in stages: the
program of a stage starts from values of the run without errors, and computes only what depends on them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from qglow.codegen.memory import aligned_tensor
from qglow.core.types import Array
from qglow.graph.cutting import cut
from qglow.graph.graph import Graph, Node, Value
from qglow.graph.ops.elementwise import Add
from qglow.graph.verifier import verify_graph
from qglow.graph.work import node_multiply_adds
from qglow.toolchain import CompileOptions, compile_graph

STAGES = 4
"""Programs that a graph is compiled to: each further one saves less work, but takes as long to compile."""
_LEAST_WORK = 1e6
"""Multiply-adds of a stage, below which calling the program costs more than what it computes."""


class Injection:
    """A float graph, compiled so that an error can be added to each of `values`, wherever these are read."""

    def __init__(
        self,
        graph: Graph,
        values: Sequence[Value],
        options: CompileOptions | None = None,
        stages: int = STAGES,
    ) -> None:
        places = _Places(graph, _beginnings(graph, stages))
        wanted: dict[int, dict[str, None]] = {}
        for value in values:
            wanted.setdefault(places.stage_of(value), {})[value.name] = None
        self._stages = [_Stage(graph, places.known(at), list(names), options) for at, names in wanted.items()]
        self._stage_of = {
            name: made for made, names in zip(self._stages, wanted.values(), strict=True) for name in names
        }
        self._outputs = [value.name for value in graph.outputs]
        there = {value.name for value in (*graph.inputs, *graph.outputs)}
        borders = dict.fromkeys(name for stage in self._stages for name in stage.taken if name not in there)
        whole = graph.copy()
        whole.outputs = [*whole.outputs, *(value for value in whole.values() if value.name in borders)]
        self._program = compile_graph(whole, options)

    def run(self, inputs: Mapping[str, Array]) -> InjectedRun:
        """Run without errors; the result takes errors for the same inputs."""
        found = self._program(inputs)
        outputs = {name: found[name] for name in self._outputs}
        return InjectedRun(outputs, {**inputs, **found}, self._stage_of)


class InjectedRun:
    """A run over some inputs, to which errors can be added. outputs: by name, without errors."""

    def __init__(
        self, outputs: Mapping[str, Array], known: Mapping[str, Array], stage_of: Mapping[str, _Stage]
    ) -> None:
        self.outputs = outputs
        self._known = known
        self._stage_of = stage_of
        self._bases: dict[_Stage, Mapping[str, Array]] = {}

    @property
    def power(self) -> float:
        """Sum of squares of the outputs."""
        return float(sum(np.sum(np.square(array, dtype=np.float64)) for array in self.outputs.values()))

    def with_error(self, name: str, error: Array) -> dict[str, Array]:
        """Outputs by name, with an error at the value of this name."""
        return {**self.outputs, **self._stage_of[name].run(self._known, name, error)}

    def distance(self, name: str, error: Array) -> float:
        """Sum of squares by which an error at the value of this name moves the outputs."""
        stage = self._stage_of[name]
        if stage not in self._bases:
            # Computed by the same program, so that without an error the distance is exactly 0.
            self._bases[stage] = stage.run(self._known)
        base, found = self._bases[stage], stage.run(self._known, name, error)
        moved = (found[name].astype(np.float64) - array for name, array in base.items())
        return float(sum(np.sum(np.square(difference)) for difference in moved))


class _Places:
    """Stages of a graph, by the index of the node that each begins with, and the values known before each."""

    def __init__(self, graph: Graph, beginnings: Sequence[int]) -> None:
        self._graph = graph
        self._beginnings = beginnings
        self._index = {node: index for index, node in enumerate(graph.nodes)}

    def stage_of(self, value: Value) -> int:
        """The last stage that computes all that depends on a value."""
        readers = [self._index[user] for user in value.users()]
        if self._graph.is_output(value):
            readers.append(-1 if value.producer is None else self._index[value.producer])
        first = min(readers, default=-1)
        return max((s for s, begin in enumerate(self._beginnings) if begin <= first), default=0)

    def known(self, stage: int) -> set[str]:
        """Values that are computed before a stage."""
        before = self._graph.nodes[: self._beginnings[stage]]
        return {value.name for value in (*self._graph.inputs, *(v for n in before for v in n.outputs))}


class _Stage:
    """A program from `known` values to the outputs that depend on them, with inputs for errors at `places`.

    taken: the known values that it reads.
    """

    def __init__(
        self, graph: Graph, known: set[str], places: Sequence[str], options: CompileOptions | None
    ) -> None:
        behind = list(dict.fromkeys(value.name for value in graph.outputs if value.name not in known))
        part = cut(graph, behind, known)
        self.taken = [value.name for value in part.inputs]
        twins = {value.name: value for value in part.values()}
        errors = {name: _add_error(part, twins[name]) for name in places if name not in self.taken}
        errors |= {name: twins[name] for name in places if name in self.taken}
        self._error_at = {name: error.name for name, error in errors.items()}
        verify_graph(part, "with inputs for errors")
        program = compile_graph(part, options)
        self._inputs = {name: aligned_tensor(kind) for name, kind in program.inputs.items()}
        self._results = {name: aligned_tensor(kind) for name, kind in program.outputs.items()}
        self._names = dict(zip(program.outputs, behind, strict=True))
        self._call = program.bind(self._inputs, self._results)

    def run(
        self, known: Mapping[str, Array], place: str | None = None, error: Array | None = None
    ) -> dict[str, Array]:
        """Compute the stage's outputs, by name, from known values, with an error added at `place`."""
        for name in self.taken:
            np.copyto(self._inputs[name], known[name])
        if place is not None and error is not None:
            array = self._inputs[self._error_at[place]]
            np.add(array, error, out=array)
        self._call()
        if place is not None and place not in self.taken:
            self._inputs[self._error_at[place]][...] = 0
        return {name: self._results[own].copy() for own, name in self._names.items()}


def _beginnings(graph: Graph, stages: int) -> list[int]:
    """Indices of the nodes that stages of about equal work begin with; the first is 0."""
    work = np.cumsum([node_multiply_adds(node) for node in graph.nodes] or [0.0])
    count = int(min(stages, max(1.0, work[-1] // _LEAST_WORK)))
    ends = (int(np.searchsorted(work, work[-1] * part / count)) + 1 for part in range(1, count))
    return sorted({0, *(end for end in ends if end < len(graph.nodes))})


def _add_error(graph: Graph, value: Value) -> Value:
    """Let every user of `value`, and the outputs, read the sum of it and a new input, which is returned."""
    users = value.users()
    error = Value(graph.unique_name(f"{value.name}.error"), value.type)
    graph.inputs.append(error)
    total = Value(graph.unique_name(f"{value.name}.with_error"), value.type)
    node = Node(graph.unique_name(f"{value.name}.inject"), Add(), (value, error), (total,))
    for user in users:
        user.inputs = tuple(total if operand is value else operand for operand in user.inputs)
    graph.outputs = [total if output is value else output for output in graph.outputs]
    graph.nodes.insert_after(value.producer, node)
    return error

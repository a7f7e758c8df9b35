"""Profiling by the compiled program: native code counts the statistics as it runs."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from qglow.core.types import Array
from qglow.graph.graph import Graph, Node, Value
from qglow.instructions.ops.control import Structured
from qglow.instructions.ops.profile import RecordProfile
from qglow.instructions.program import Buffer, Instruction, Program
from qglow.profiling.engine import GraphForBatch
from qglow.profiling.histogram import ValueProfile, channel_axis, channel_size
from qglow.profiling.nodes import empty_profile, insert_profile_nodes
from qglow.runtime.executable import Executable
from qglow.toolchain.compilation import compile_graph
from qglow.toolchain.options import CompileOptions

RUNS_KEPT = 64
"""Runs whose sums are counted together: numpy takes longer to be called than to add a few numbers."""


class CompiledEngine:
    """Profiles with native code. Satisfies profiling's `Engine`.

    A program is compiled for every batch size that occurs: the one asked for, and that of the
    last samples where they do not fill a batch. names: the values to profile; None: all.
    """

    def __init__(
        self,
        graph_for_batch: GraphForBatch,
        options: CompileOptions | None = None,
        names: Collection[str] | None = None,
    ) -> None:
        self._graph_for_batch = graph_for_batch
        self._names = names
        self._options = options or CompileOptions()
        self._programs: dict[int, _ProfiledProgram] = {}
        self._statistics: dict[str, ValueProfile] = {}

    def run(self, inputs: Mapping[str, Array]) -> None:
        """Run a batch and count its values in."""
        batch = next(iter(inputs.values())).shape[0]
        if batch not in self._programs:
            graph = insert_profile_nodes(self._graph_for_batch(batch), self._names)
            self._programs[batch] = _ProfiledProgram.compile(graph, self._options)
        program = self._programs[batch]
        program.executable(inputs)
        if program.sums.keep():
            self._count_sums(program)

    def collect(self) -> dict[str, ValueProfile]:
        """Statistics by value name, over all batches since the beginning or the last `clear`."""
        for program in self._programs.values():
            self._count_sums(program)
            state = program.executable.state
            for probe in program.probes:
                arrays = [state[name] for part, name in probe.names.items() if part != "channel_sums"]
                self._profile(probe).observe_state(*arrays)
            program.clear()
        return dict(self._statistics)

    def clear(self) -> None:
        """Forget everything; what `collect` has given before stays as it is."""
        for program in self._programs.values():
            program.clear()
        self._statistics = {}

    def _count_sums(self, program: _ProfiledProgram) -> None:
        taken = program.sums.take()
        for probe in program.probes:
            for name in probe.sums:
                assert probe.channel_size is not None
                self._profile(probe).observe_sums(taken[name], probe.channel_size)

    def _profile(self, probe: _Probe) -> ValueProfile:
        if probe.name not in self._statistics:
            self._statistics[probe.name] = empty_profile(probe.value, probe.channel_size is not None)
        return self._statistics[probe.name]


@dataclass(frozen=True)
class _Probe:
    """A profiled value, its name, and the names of its state by operand of the instruction."""

    name: str
    value: Value
    names: dict[str, str]
    channel_size: int | None

    @property
    def sums(self) -> list[str]:
        """The name of the state that holds the sums of channels, where there are some."""
        return [] if self.channel_size is None else [self.names["channel_sums"]]


class _KeptSums:
    """Sums that a program gives anew in every run, kept until there are enough to count at once."""

    def __init__(self, live: Mapping[str, Array]) -> None:
        self._live = live
        self._kept = {name: np.empty((RUNS_KEPT, *array.shape), array.dtype) for name, array in live.items()}
        self._runs = 0

    def keep(self) -> bool:
        """Keep what the last run gave; whether there is no room for another one now."""
        for name, array in self._live.items():
            self._kept[name][self._runs] = array
        self._runs += 1
        return self._runs == RUNS_KEPT

    def take(self) -> dict[str, Array]:
        """Return the sums by name, [samples of all runs kept, channels], and keep nothing any more."""
        runs, self._runs = self._runs, 0
        return {
            name: array[:runs].reshape(runs * math.prod(array.shape[1:-1]), array.shape[-1])
            for name, array in self._kept.items()
        }


@dataclass(frozen=True)
class _ProfiledProgram:
    executable: Executable
    probes: list[_Probe]
    sums: _KeptSums

    @staticmethod
    def compile(graph: Graph, options: CompileOptions) -> _ProfiledProgram:
        executable = compile_graph(graph, options)
        kept = {buffer: buffer.name for buffer in executable.program.placeholders}
        probes = list(_probes(graph, executable.program, "", kept))
        state = executable.state
        live = {name: state[name] for probe in probes for name in probe.sums}
        program = _ProfiledProgram(executable, probes, _KeptSums(live))
        program.clear()
        return program

    def clear(self) -> None:
        """Back to nothing observed."""
        self.sums.take()
        state = self.executable.state
        for probe in self.probes:
            state[probe.names["counts"]][...] = 0
            for part in ("range", "channel_range"):
                if part in probe.names:
                    state[probe.names[part]][...] = _EMPTY_RANGE.reshape(
                        -1, *(1,) * (state[probe.names[part]].ndim - 1)
                    )


def _probes(graph: Graph, program: Program, path: str, kept: Mapping[Buffer, str]) -> Iterator[_Probe]:
    """The profiled values of a graph and its regions, which a program and those inside of it count.

    path: what precedes the names of values. kept: names of the state, by the program's placeholders.
    """
    nodes = {node.name: node for node in graph.nodes}
    for instruction in program.code:
        operation = instruction.operation
        node = nodes.get(instruction.origin[0]) if instruction.origin else None  # parts have other names
        if node is not None and isinstance(operation, RecordProfile):
            yield _probe(node, instruction, path, kept)
        elif node is not None and isinstance(operation, Structured):
            state = [kept[b] for s in operation.state_slots if (b := instruction.buffers[s]) is not None]
            regions = zip(operation.body_names, node.operator.regions, operation.bodies, strict=True)
            for number, (name, region, body) in enumerate(regions):
                parts = operation.places(number)
                inner = body.placeholders[parts.inputs + parts.results :]
                places = dict(zip(inner, [state[place] for place in parts.state], strict=True))
                yield from _probes(region, body, f"{path}{node.name}.{name}/", places)


def _probe(node: Node, instruction: Instruction, path: str, kept: Mapping[Buffer, str]) -> _Probe:
    value = node.inputs[0]
    assert value is not None
    names = {spec.name: kept[buffer] for spec, buffer in instruction.operands() if spec.name != "src"}
    axis = channel_axis(value.type.shape) if "channel_sums" in names else None
    size = None if axis is None else channel_size(value.type.shape, axis)
    return _Probe(f"{path}{value.name}", value, names, size)


_EMPTY_RANGE = np.array([np.inf, -np.inf], np.float32)

"""Profiling by the compiled program: native code counts the statistics as it runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from qglow.core.types import Array
from qglow.graph.graph import Graph, Value
from qglow.graph.ops.quantize import QuantizationProfile
from qglow.instructions.ops.profile import Profile
from qglow.profiling.engine import GraphForBatch
from qglow.profiling.histogram import ValueProfile, channel_axis, channel_size
from qglow.profiling.nodes import insert_profile_nodes
from qglow.runtime.executable import Executable
from qglow.toolchain.compilation import CompileOptions, compile_graph


class CompiledEngine:
    """Profiles with native code. Satisfies profiling's `Engine`.

    A program is compiled for every batch size that occurs: the one asked for, and that of the
    last samples where they do not fill a batch.
    """

    def __init__(self, graph_for_batch: GraphForBatch, options: CompileOptions | None = None) -> None:
        self._graph_for_batch = graph_for_batch
        self._options = options or CompileOptions()
        self._programs: dict[int, _ProfiledProgram] = {}
        self._statistics: dict[str, ValueProfile] = {}

    def run(self, inputs: Mapping[str, Array]) -> None:
        """Run a batch and count its values in."""
        batch = next(iter(inputs.values())).shape[0]
        if batch not in self._programs:
            graph = insert_profile_nodes(self._graph_for_batch(batch))
            self._programs[batch] = _ProfiledProgram.compile(graph, self._options)
        program = self._programs[batch]
        program.executable(inputs)
        for probe in program.probes:
            if probe.channel_size is not None:
                sums = program.executable.state[probe.names["channel_sums"]]
                self._profile(probe).observe_sums(sums, probe.channel_size)

    def collect(self) -> dict[str, ValueProfile]:
        """Statistics by value name, over all batches since the beginning or the last `clear`."""
        for program in self._programs.values():
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

    def _profile(self, probe: _Probe) -> ValueProfile:
        if probe.value.name not in self._statistics:
            self._statistics[probe.value.name] = ValueProfile.of_shape(probe.value.type.shape)
        return self._statistics[probe.value.name]


@dataclass(frozen=True)
class _Probe:
    """A profiled value, and the names of its state by operand of the instruction."""

    value: Value
    names: dict[str, str]
    channel_size: int | None


@dataclass(frozen=True)
class _ProfiledProgram:
    executable: Executable
    probes: list[_Probe]

    @staticmethod
    def compile(graph: Graph, options: CompileOptions) -> _ProfiledProgram:
        executable = compile_graph(graph, options)
        probed = {n.name: n.inputs[0] for n in graph.nodes if isinstance(n.operator, QuantizationProfile)}
        probes = []
        for instruction in executable.program.code:
            if not isinstance(instruction.operation, Profile):
                continue
            value = probed[instruction.origin[0]]
            assert value is not None
            names = {
                spec.name: buffer.name for spec, buffer in instruction.operands() if spec.name not in ("src",)
            }
            axis = channel_axis(value.type.shape)
            size = None if axis is None else channel_size(value.type.shape, axis)
            probes.append(_Probe(value, names, size))
        program = _ProfiledProgram(executable, probes)
        program.clear()
        return program

    def clear(self) -> None:
        """Back to nothing observed."""
        state = self.executable.state
        for probe in self.probes:
            state[probe.names["counts"]][...] = 0
            for part in ("range", "channel_range"):
                if part in probe.names:
                    state[probe.names[part]][...] = _EMPTY_RANGE.reshape(
                        -1, *(1,) * (state[probe.names[part]].ndim - 1)
                    )


_EMPTY_RANGE = np.array([np.inf, -np.inf], np.float32)

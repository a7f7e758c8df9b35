"""Profiling by the compiled program: the statistics are counted by native code."""

from __future__ import annotations

from collections.abc import Mapping

from qglow.core.types import Array
from qglow.graph.graph import Graph
from qglow.profiling.engine import ProfileState
from qglow.toolchain.compilation import CompileOptions, compile_graph


class CompiledEngine:
    """Runs a graph with profiling nodes as native code. Satisfies profiling's `Engine`."""

    def __init__(self, graph: Graph, options: CompileOptions | None = None) -> None:
        self._executable = compile_graph(graph, options)
        self._state = ProfileState(self._executable.state)

    def run(self, inputs: Mapping[str, Array]) -> None:
        """Run a batch and count its values in."""
        self._executable(inputs)
        self._state.update()

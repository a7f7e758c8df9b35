"""Profiling by jobs: blocks of batches go to where jobs run, and statistics come back."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from qglow.core.jobs import Jobs, Pending
from qglow.core.types import Array
from qglow.graph.graph import Graph
from qglow.profiling.engine import Engine, GraphForBatch, InterpreterEngine
from qglow.profiling.histogram import ValueProfile
from qglow.toolchain.engine import CompiledEngine
from qglow.toolchain.options import CompileOptions

BLOCK_BYTES = 1 << 22
"""Bytes of inputs from which on a job has enough of them."""
BLOCK_BATCHES = 32
"""Batches from which on a job has enough of them."""

Block = Sequence[Mapping[str, Array]]
Statistics = dict[str, ValueProfile]


def make_engine(graph_for_batch: GraphForBatch, name: str, options: CompileOptions | None) -> Engine:
    """Make an engine by its name, "compiled" or "interpreter"."""
    if name == "interpreter":
        return InterpreterEngine(graph_for_batch)
    return CompiledEngine(graph_for_batch, options)


def code_of_jobs(jobs: Jobs, options: CompileOptions | None) -> CompileOptions:
    """Options with the target that all places where jobs run have."""
    options = options or CompileOptions()
    return options if jobs.isa is None else replace(options, isa=jobs.isa)


@dataclass(frozen=True)
class ProfileWork:
    """Profiling of one graph: a job runs a block of batches, and returns their statistics."""

    graph: Graph
    engine: str
    options: CompileOptions

    def begin(self) -> Callable[[Block], Statistics]:
        """Compile the graph."""
        engine = make_engine(lambda batch: self.graph, self.engine, self.options)

        def run(block: Block) -> Statistics:
            engine.clear()
            for inputs in block:
                engine.run(inputs)
            return engine.collect()

        return run


class SpreadEngine:
    """Profiles by jobs. Satisfies profiling's `Engine`.

    Statistics are sums of integers and extremes, so that they do not depend on the order in which blocks are
    done.
    """

    def __init__(
        self, jobs: Jobs, graph_for_batch: GraphForBatch, name: str, options: CompileOptions | None
    ) -> None:
        self._jobs, self._graph_for_batch, self._name = jobs, graph_for_batch, name
        self._options = code_of_jobs(jobs, options)
        self._works: dict[int, ProfileWork] = {}
        self._blocks: dict[int, list[dict[str, Array]]] = {}
        self._waiting: deque[Pending[Statistics]] = deque()
        self._statistics: Statistics = {}

    def run(self, inputs: Mapping[str, Array]) -> None:
        """Take a batch, and begin a job where there are enough of them."""
        batch = next(iter(inputs.values())).shape[0]
        block = self._blocks.setdefault(batch, [])
        block.append({name: array.copy() for name, array in inputs.items()})
        size = len(block) * sum(array.nbytes for array in inputs.values())
        if len(block) == BLOCK_BATCHES or size >= BLOCK_BYTES:
            self._submit(batch)

    def collect(self) -> Statistics:
        """Wait for all jobs, and return the statistics by name of the value."""
        for batch in list(self._blocks):
            self._submit(batch)
        while self._waiting:
            self._take()
        return dict(self._statistics)

    def clear(self) -> None:
        """Forget everything; what `collect` has given before stays as it is."""
        self._blocks, self._statistics = {}, {}
        self._waiting.clear()

    def _submit(self, batch: int) -> None:
        if batch not in self._works:
            self._works[batch] = ProfileWork(self._graph_for_batch(batch), self._name, self._options)
        self._waiting.append(self._jobs.submit(self._works[batch], self._blocks.pop(batch)))
        while len(self._waiting) > self._jobs.ahead:
            self._take()

    def _take(self) -> None:
        for name, found in self._waiting.popleft().result().items():
            known = self._statistics.get(name)
            if known is None:
                self._statistics[name] = found
            else:
                known.merge(found)

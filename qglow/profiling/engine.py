"""Engines that run a profiled program: an interface, and the graph interpreter behind it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from qglow.core.types import Array
from qglow.graph.graph import Graph, Value
from qglow.graph.interpreter import Interpreter
from qglow.graph.ops.quantize import QuantizationProfile
from qglow.profiling.histogram import ValueProfile
from qglow.profiling.nodes import insert_profile_nodes


class Engine(Protocol):
    """Runs batches of any size and keeps statistics of every profiled value, in constant memory."""

    def run(self, inputs: Mapping[str, Array]) -> None:
        """Run one batch, samples along axis 0, and count it in."""

    def collect(self) -> dict[str, ValueProfile]:
        """Statistics by value name, over all batches since the beginning or the last `clear`."""

    def clear(self) -> None:
        """Forget everything; what `collect` has given before stays as it is."""


GraphForBatch = Callable[[int], Graph]
"""The canonical graph for a batch size; values have the same names in all of them."""


class InterpreterEngine:
    """Profiles with the graph interpreter: slow, and runs everywhere."""

    def __init__(self, graph_for_batch: GraphForBatch) -> None:
        self._graph_for_batch = graph_for_batch
        self._interpreters: dict[int, tuple[Interpreter, frozenset[str]]] = {}
        self._statistics: dict[str, ValueProfile] = {}

    def run(self, inputs: Mapping[str, Array]) -> None:
        """See Engine."""
        batch = next(iter(inputs.values())).shape[0]
        interpreter, probed = self._interpreter(batch)

        def tap(value: Value, array: Array) -> None:
            if value.name in probed:
                self._profile(value).observe(array)

        interpreter.run(inputs, tap)

    def collect(self) -> dict[str, ValueProfile]:
        """See Engine."""
        return dict(self._statistics)

    def clear(self) -> None:
        """See Engine."""
        self._statistics = {}

    def _profile(self, value: Value) -> ValueProfile:
        if value.name not in self._statistics:
            self._statistics[value.name] = ValueProfile.of_shape(value.type.shape)
        return self._statistics[value.name]

    def _interpreter(self, batch: int) -> tuple[Interpreter, frozenset[str]]:
        if batch not in self._interpreters:
            graph = insert_profile_nodes(self._graph_for_batch(batch))
            probes = [node for node in graph.nodes if isinstance(node.operator, QuantizationProfile)]
            probed = frozenset(v.name for node in probes for v in node.inputs if v is not None)
            self._interpreters[batch] = Interpreter(graph), probed
        return self._interpreters[batch]

"""Engines that run a profiled program: an interface, and the graph interpreter behind it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from qglow.core.types import Array
from qglow.graph.graph import Graph, Value
from qglow.graph.interpreter import Interpreter
from qglow.profiling.histogram import ValueProfile
from qglow.profiling.nodes import empty_profile, profiled_values


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
        self._interpreters: dict[int, tuple[Interpreter, Mapping[Value, str]]] = {}
        self._statistics: dict[str, ValueProfile] = {}

    def run(self, inputs: Mapping[str, Array]) -> None:
        """See Engine."""
        batch = next(iter(inputs.values())).shape[0]
        interpreter, probed = self._interpreter(batch)
        tops = {value for value, name in probed.items() if name == value.name}

        def tap(value: Value, array: Array) -> None:
            if value in probed:
                self._profile(probed[value], value, value in tops).observe(array)

        interpreter.run(inputs, tap)

    def collect(self) -> dict[str, ValueProfile]:
        """See Engine."""
        unseen = {
            name: empty_profile(value, name == value.name)
            for _, names in self._interpreters.values()
            for value, name in names.items()
            if name not in self._statistics
        }
        return self._statistics | unseen

    def clear(self) -> None:
        """See Engine."""
        self._statistics = {}

    def _profile(self, name: str, value: Value, channels: bool) -> ValueProfile:
        if name not in self._statistics:
            self._statistics[name] = empty_profile(value, channels)
        return self._statistics[name]

    def _interpreter(self, batch: int) -> tuple[Interpreter, Mapping[Value, str]]:
        """The interpreter, and the names of the values that it taps."""
        if batch not in self._interpreters:
            graph = self._graph_for_batch(batch)
            names = {value: name for name, value in profiled_values(graph).items()}
            self._interpreters[batch] = Interpreter(graph), names
        return self._interpreters[batch]

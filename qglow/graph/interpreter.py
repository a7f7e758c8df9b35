"""Execution of a graph in numpy, node by node: the reference for all later stages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from qglow.core.batch import as_taken
from qglow.core.errors import UsageError
from qglow.core.memory import require_memory
from qglow.core.types import Array
from qglow.graph.graph import Graph, Node, Value, unsigned_interface
from qglow.graph.memory import graph_memory, last_uses
from qglow.numerics.quantize import as_signed, as_unsigned

Taps = Callable[[Value, Array], None]
"""Called with every computed value and its data, inputs of the graph first.

Values of regions come whenever a region runs, those of its inputs first.
"""


class Interpreter:
    """Evaluates one graph; holds no state between runs. Values are freed after their last use."""

    def __init__(self, graph: Graph) -> None:
        """Raise MemoryLimitError for a graph whose values take more memory than is allowed."""
        require_memory(graph_memory(graph), f"graph '{graph.name}'")
        self._graph = graph
        self._last_uses = last_uses(graph)
        self._regions: dict[Graph, Interpreter] = {}

    def run(self, inputs: Mapping[str, Array], taps: Taps | None = None) -> dict[str, Array]:
        """Outputs by name, for inputs by name of exactly the declared types.

        Raises UsageError for an input that is missing, unknown or of another type, and for one that holds
        indices out of range.
        """
        held = self._bind(inputs)
        if taps is not None:
            for value in self._graph.inputs:
                taps(value, held[value])
        for node in self._graph.nodes:
            for value, array in zip(node.outputs, self._evaluate(node, held, taps), strict=True):
                held[value] = array
                if taps is not None:
                    taps(value, array)
            for value in self._last_uses[node]:
                held.pop(value, None)
        return {v.name: v.data if v.data is not None else held[v] for v in self._graph.outputs}

    def _evaluate(self, node: Node, held: Mapping[Value, Array], taps: Taps | None) -> tuple[Array, ...]:
        if not node.operator.region_names:
            return _evaluate(node, held)

        def run(region: Graph, inputs: Sequence[Array]) -> list[Array]:
            inner = self._regions.setdefault(region, Interpreter(region))
            return inner.run_in_order(inputs, taps)

        return node.operator.run_regions(_operands(node, held), run)

    def run_in_order(self, inputs: Sequence[Array], taps: Taps | None = None) -> list[Array]:
        """Outputs in their order, for inputs in theirs; see `run`."""
        names = [value.name for value in self._graph.inputs]
        found = self.run(dict(zip(names, inputs, strict=True)), taps)
        return [found[value.name] for value in self._graph.outputs]

    def _bind(self, inputs: Mapping[str, Array]) -> dict[Value, Array]:
        declared = {value.name: value for value in self._graph.inputs}
        unknown = sorted(set(inputs) - set(declared))
        if unknown:
            raise UsageError(f"no input is called '{unknown[0]}'; there are {', '.join(declared)}")
        held: dict[Value, Array] = {}
        for name, value in declared.items():
            if name not in inputs:
                raise UsageError(f"input '{name}' ({value.type}) is missing")
            array = as_taken(inputs[name], value.type.shape)
            if array.dtype != value.type.element.dtype or array.shape != value.type.shape:
                raise UsageError(
                    f"input '{name}' is {array.dtype}{list(array.shape)}, declared is {value.type}"
                )
            held[value] = array
        return held


def interpret(graph: Graph, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Run a graph with inputs and outputs as callers have them: uint8 where the model's file has uint8.

    The outputs are those of the model: its tail, where it has one, is run too. Raises the errors of
    `Interpreter`, and DataError where the tail refuses its operands.
    """
    unsigned = unsigned_interface(graph)
    taken = {n: as_signed(a) if n in unsigned and a.dtype == np.uint8 else a for n, a in inputs.items()}
    found = Interpreter(graph).run(taken)
    given = {name: as_unsigned(array) if name in unsigned else array for name, array in found.items()}
    return given if graph.tail is None else graph.tail.completed(inputs, given)


def _operands(node: Node, held: Mapping[Value, Array]) -> list[Array | None]:
    return [None if v is None else v.data if v.data is not None else held[v] for v in node.inputs]


def _evaluate(node: Node, held: Mapping[Value, Array]) -> tuple[Array, ...]:
    arrays = _operands(node, held)
    with np.errstate(all="ignore"):  # infinities and NaN are results like others
        try:
            return node.operator.run(arrays, node.input_types(), node.output_types())
        except IndexError as error:
            raise UsageError(
                f"node '{node.name}' ({node.operator.name}): {error}; check the inputs"
            ) from error

"""A float program into which errors can be put: what an error inside does to the outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from qglow.core.types import Array
from qglow.graph.graph import Graph, Node, Value
from qglow.graph.ops.elementwise import Add
from qglow.graph.verifier import verify_graph
from qglow.toolchain import CompileOptions, compile_graph


class Injection:
    """The float graph, compiled once, with an input for an error at each of some values.

    An error is added to its value wherever that is read. `values` are of the graph.
    """

    def __init__(self, graph: Graph, values: Sequence[Value], options: CompileOptions | None = None) -> None:
        copy = graph.copy()
        twins = {value.name: value for value in copy.values()}
        self._inputs: dict[str, str] = {}
        self._zeros: dict[str, Array] = {}
        for name in dict.fromkeys(value.name for value in values):
            error = _add_error(copy, twins[name])
            self._inputs[name] = error.name
            self._zeros[error.name] = np.zeros(error.type.shape, np.float32)
        verify_graph(copy, "with inputs for errors")
        self._outputs = {new.name: old.name for old, new in zip(graph.outputs, copy.outputs, strict=True)}
        self._program = compile_graph(copy, options)

    def __call__(self, inputs: Mapping[str, Array], errors: Mapping[str, Array]) -> dict[str, Array]:
        """Outputs by name, with these errors by name of the value."""
        given = {self._inputs[name]: error for name, error in errors.items()}
        found = self._program({**self._zeros, **inputs, **given})
        return {name: found[new] for new, name in self._outputs.items()}

    def distance(
        self, inputs: Mapping[str, Array], errors: Mapping[str, Array], base: Mapping[str, Array]
    ) -> float:
        """Sum of squares by which the outputs move away from `base`."""
        found = self(inputs, errors)
        moved = (found[name].astype(np.float64) - array for name, array in base.items())
        return float(sum(np.sum(np.square(difference)) for difference in moved))


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
    first = 0 if value.producer is None else graph.nodes.index(value.producer) + 1
    graph.nodes.insert(first, node)
    return error

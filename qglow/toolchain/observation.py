"""The values inside a compiled program, as tensors of the graph that it was compiled from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from qglow.core.types import Array, Shape
from qglow.graph.graph import Graph, Node, Value
from qglow.graph.ops.shape import Reshape, Transpose
from qglow.toolchain.compilation import compile_graph
from qglow.toolchain.options import CompileOptions

_NHWC = (0, 2, 3, 1)
_NCHW = (0, 3, 1, 2)


class Observed:
    """Buffers that a program left, read in the axis order of the graph."""

    def __init__(self, buffers: Mapping[str, Array]) -> None:
        self._buffers = buffers

    def logical(self, value: Value) -> Array | None:
        """The tensor of a graph value; None if the program holds it in no buffer of its name.

        Programs hold images as NHWC. Where the shape does not tell the two orders apart, a value
        that a Reshape or a Transpose gives lies as in the graph.
        """
        array = self._buffers.get(value.name)
        if array is None:
            return None
        shape = value.type.shape
        if len(shape) != 4:
            return array.reshape(shape) if _without_ones(array.shape) == _without_ones(shape) else None
        image = tuple(shape[axis] for axis in _NHWC)
        if array.shape == image and not (image == shape and _lies_as_in_graph(value)):
            return array.transpose(_NCHW)
        return array if array.shape == shape else None


def _without_ones(shape: Shape) -> Shape:
    """Shape without axes of one element, which do not tell two orders of the same elements apart."""
    return tuple(size for size in shape if size != 1)


def _lies_as_in_graph(value: Value) -> bool:
    producer = value.producer
    return producer is None or isinstance(producer.operator, Reshape | Transpose)


def observe(
    graph: Graph,
    values: Sequence[Value],
    runs: Iterable[Mapping[str, Array]],
    options: CompileOptions | None = None,
) -> Iterator[dict[Value, Array]]:
    """Yield values of the graph for each run over inputs, from compiled code.

    A value that the program holds in no buffer of its name is worked out from its operands. Inputs of
    the graph have its types.
    """
    program = Observation(graph, values, options)
    for inputs in runs:
        yield program(inputs)


class Observation:
    """A graph compiled so that values in it can be seen; see `observe`."""

    def __init__(self, graph: Graph, values: Sequence[Value], options: CompileOptions | None = None) -> None:
        self._inputs, self._values = graph.inputs, values
        self._executable = compile_graph(graph, replace(options or CompileOptions(), observe=True))

    def __call__(self, inputs: Mapping[str, Array]) -> dict[Value, Array]:
        """Run, and return the values."""
        outputs = self._executable(inputs)
        seen = Observed({**self._executable.activations(), **outputs})
        known: dict[Value, Array] = {value: inputs[value.name] for value in self._inputs}
        return {value: _tensor(value, seen, known) for value in self._values}


def _tensor(value: Value, seen: Observed, known: dict[Value, Array]) -> Array:
    if value.data is not None:
        return value.data
    if value not in known:
        found = seen.logical(value)
        known[value] = _worked_out(value, seen, known) if found is None else found
    return known[value]


def _worked_out(value: Value, seen: Observed, known: dict[Value, Array]) -> Array:
    node: Node | None = value.producer
    assert node is not None
    operands = [None if operand is None else _tensor(operand, seen, known) for operand in node.inputs]
    return node.operator.run(operands, node.input_types(), node.output_types())[value.index]

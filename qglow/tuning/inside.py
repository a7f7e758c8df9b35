"""Errors inside of branches and loops, each put into a float graph alone, and what they do to its outputs.

What a region computes is seen by nobody outside. So one program holds all the errors: beside each value
stands the same with its error, and a number, which every region is given, says which error the others read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from qglow.core.types import Array, ElementType, Quantization, TensorType
from qglow.graph.graph import Graph, Node, Value, constant
from qglow.graph.operator import Operator
from qglow.graph.ops.elementwise import Add, Clip, Div, Mul, Sub
from qglow.graph.ops.logic import Compare
from qglow.graph.ops.quantize import Dequantize, Quantize
from qglow.graph.ops.rows import THEMSELVES, RowScales
from qglow.graph.ops.selection import Where
from qglow.graph.verifier import verify_graph
from qglow.numerics.rows import LARGEST
from qglow.toolchain import CompileOptions, compile_graph

_NUMBER = TensorType(ElementType.INT64, ())
_NONE = -1
"""Number of no error."""

Change = Callable[[Graph, Value], Value]
"""Appends nodes behind a value of a region, and returns the value with an error."""


@dataclass(frozen=True, slots=True)
class ClippingChange:
    """Values that are cut off at what parameters can represent."""

    kind: Quantization

    def __call__(self, region: Graph, value: Value) -> Value:
        return _behind(region, value, Clip(*map(float, self.kind.real_range)), value)


@dataclass(frozen=True, slots=True)
class QuantizedChange:
    """Values that are cut off and rounded, as int8 has them."""

    kind: Quantization

    def __call__(self, region: Graph, value: Value) -> Value:
        integers = TensorType(self.kind.element, value.type.shape, self.kind)
        rounded = _behind(region, value, Quantize(), value, kind=integers)
        return _behind(region, rounded, Dequantize(), rounded, kind=value.type)


@dataclass(frozen=True, slots=True)
class RoundingChange:
    """Values with the error that rounding makes of what is not cut off."""

    kind: Quantization

    def __call__(self, region: Graph, value: Value) -> Value:
        quantized = QuantizedChange(self.kind)(region, value)
        clipped = ClippingChange(self.kind)(region, value)  # and so stands before it
        error = _behind(region, quantized, Sub(), quantized, clipped)
        return _behind(region, error, Add(), value, error)


@dataclass(frozen=True, slots=True)
class ConstantsChange:
    """The result of a node that has other constants, by the places among its operands."""

    constants: Mapping[int, Array]

    def __call__(self, region: Graph, value: Value) -> Value:
        node = value.producer
        assert node is not None
        twin = with_constants(region, node, self.constants)
        return twin.outputs[value.index]


@dataclass(frozen=True, slots=True)
class RowsChange:
    """The result of a product whose rows are measured and rounded (rule 11 of the numeric contract)."""

    def __call__(self, region: Graph, value: Value) -> Value:
        node = value.producer
        assert node is not None
        x, *others = node.inputs
        assert x is not None
        scales = _behind(region, x, RowScales(), x, kind=x.type.with_shape((*x.type.shape[:-1], 1)))
        divided = _behind(region, scales, Div(), x, scales, kind=x.type)
        clipped = _behind(region, divided, Clip(-float(LARGEST), float(LARGEST)), divided)
        whole = QuantizedChange(THEMSELVES)(region, clipped)
        rounded = _behind(region, whole, Mul(), whole, scales)
        return _twin(region, node, [rounded, *others]).outputs[value.index]


def with_constants(graph: Graph, node: Node, constants: Mapping[int, Array]) -> Node:
    """Insert a twin behind a node, with other constants by the places among its operands; return it."""
    operands = [*node.inputs, *(None for _ in range(max(constants) + 1 - len(node.inputs)))]
    for index, data in constants.items():
        operands[index] = constant(graph.unique_name(f"{node.name}.{index}.real"), data)
    return _twin(graph, node, operands)


def _twin(graph: Graph, node: Node, operands: Sequence[Value | None]) -> Node:
    """Insert a node of the same operator behind a node, with other operands; return it."""
    results = [Value(graph.unique_name(f"{value.name}.rounded"), value.type) for value in node.outputs]
    twin = Node(graph.unique_name(f"{node.name}.rounded"), node.operator, operands, results)
    graph.insert_after(node, twin)
    return twin


@dataclass(frozen=True, slots=True)
class InsideError:
    """An error in a region. path: of the region. value: name of a value there."""

    path: str
    value: str
    change: Change


class InsideErrors:
    """A float graph, compiled so that each of `errors` can be made alone."""

    def __init__(
        self, graph: Graph, errors: Sequence[InsideError], options: CompileOptions | None = None
    ) -> None:
        self._count = len(errors)
        if not errors:
            return
        graph = graph.copy()
        self._number = graph.unique_name("number of the error")
        numbered: dict[str, list[tuple[int, InsideError]]] = {}
        for number, error in enumerate(errors):
            numbered.setdefault(error.path, []).append((number, error))
        _give_errors(graph, "", self._number, numbered)
        verify_graph(graph, "with errors inside of regions")
        self._program = compile_graph(graph, options)

    def distances(self, inputs: Mapping[str, Array]) -> tuple[float, list[float]]:
        """The sum of squares of the outputs, and those by which each error alone moves them, in order.

        Without errors nothing runs, and the sum is 0.
        """
        if not self._count:
            return 0.0, []
        base = self._run(inputs, _NONE)
        power = float(sum(np.sum(np.square(array, dtype=np.float64)) for array in base.values()))
        return power, [_distance(base, self._run(inputs, number)) for number in range(self._count)]

    def _run(self, inputs: Mapping[str, Array], number: int) -> dict[str, Array]:
        found = self._program({**inputs, self._number: np.array(number, np.int64)})
        return {name: np.array(array) for name, array in found.items()}


def _distance(base: Mapping[str, Array], found: Mapping[str, Array]) -> float:
    moved = (found[name].astype(np.float64) - array for name, array in base.items())
    return float(sum(np.sum(np.square(difference)) for difference in moved))


def _give_errors(
    graph: Graph, path: str, name: str, errors: Mapping[str, Sequence[tuple[int, InsideError]]]
) -> None:
    """Give a graph, in place, an input for the number of the error, and the errors in it and its regions."""
    chosen = Value(graph.unique_name(name), _NUMBER)
    nodes = [node for node in graph.nodes if node.operator.region_names]
    graph.inputs.append(chosen)
    for value, changes in _by_value(graph, errors.get(path, ())).items():
        _let_read(graph, value, changes, chosen)
    for node in nodes:
        paths = [f"{path}{node.name}.{region}/" for region in node.operator.region_names]
        if not any(inside.startswith(tuple(paths)) for inside in errors):
            continue
        for inner, region in zip(paths, node.operator.regions, strict=True):
            _give_errors(region, inner, name, errors)
        # What a region takes from around its node is last, behind the ends of a loop where it has none.
        ends = sum(not operand.endswith("*?") for operand in node.operator.operands)
        node.inputs = [*node.inputs, *(None for _ in range(ends - len(node.inputs))), chosen]


def _by_value(graph: Graph, errors: Iterable[tuple[int, InsideError]]) -> dict[Value, dict[int, Change]]:
    """The changes of each value of a region, by their numbers."""
    found: dict[Value, dict[int, Change]] = {}
    for number, error in errors:
        (value,) = graph.values_named(error.value)
        found.setdefault(value, {})[number] = error.change
    return found


def _let_read(graph: Graph, value: Value, changes: Mapping[int, Change], chosen: Value) -> None:
    """Let all that reads a value read it with that of the changes whose number is chosen."""
    users, last = value.users(), value
    for number, change in changes.items():
        changed = change(graph, value)
        same = constant(graph.unique_name("number"), np.array(number, np.int64))
        flag = _behind(graph, changed, Compare("equal"), chosen, same, kind=TensorType(ElementType.BOOL, ()))
        anchor = flag if last is value else last
        last = _behind(graph, anchor, Where(), flag, changed, last, kind=value.type)
    for user in users:
        user.inputs = tuple(last if operand is value else operand for operand in user.inputs)
    graph.outputs = [last if output is value else output for output in graph.outputs]


def _behind(
    graph: Graph, anchor: Value, operator: Operator, *operands: Value, kind: TensorType | None = None
) -> Value:
    """Append a node right behind what computes `anchor`; return its result, of its type or `kind`."""
    result = Value(graph.unique_name(f"{anchor.name}.{operator.name.lower()}"), kind or anchor.type)
    node = Node(graph.unique_name(f"{result.name}.node"), operator, operands, (result,))
    graph.nodes.insert_after(anchor.producer, node)
    return result

"""Constants of a rehearsal, which integers of an int8 graph stand for, and what tells its graphs apart."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from qglow.core.files import sha256_hex
from qglow.core.text import format_attributes
from qglow.core.types import Array, Shape
from qglow.graph.fingerprint import fingerprint
from qglow.graph.graph import Graph, Node, Value, constant
from qglow.graph.operator import Accumulate
from qglow.instructions.program import Program
from qglow.numerics.quantize import dequantize_by
from qglow.quantization.tied_tables import looks_up_integers, real_table
from qglow.tuning.sensitivity import real_constants


@dataclass(frozen=True)
class Exchange:
    """Nodes, by name, whose constants are not those of the int8 graph.

    exact: those that keep their float weights and biases. instead: int8 nodes of other int8 forms of the same
    float graph, whose constants count.
    """

    exact: Collection[str] = frozenset()
    instead: Mapping[str, Node] = field(default_factory=dict)


@dataclass(frozen=True)
class Form:
    """Facts that tell graphs apart, without their constants, which may be large.

    skeleton: all but the contents of constants. contents: a digest of each constant, by its name.
    """

    skeleton: list[object]
    contents: Mapping[str, str]

    @staticmethod
    def of(graph: Graph) -> Form:
        contents = {v.name: digest(v.data) for v in graph.constants() if v.data is not None}
        return Form(skeleton_of(graph), contents)


def digest(data: Array) -> str:
    """The same text for the same bytes."""
    return sha256_hex(np.ascontiguousarray(data).reshape(-1).view(np.uint8).data)


def skeleton_of(graph: Graph, names: bool = True) -> list[object]:
    """All of a graph but the contents of its constants; without `names`, but the names of these either.

    Regions stand there as a whole.
    """

    def stated(value: Value) -> tuple[str | None, str]:
        return value.name if names or not value.is_constant else None, str(value.type)

    parts = [graph.inputs, graph.outputs, graph.constants() if names else []]
    found: list[object] = [[stated(value) for value in part] for part in parts]
    for node in graph.nodes:
        operands = [None if value is None else stated(value) for value in node.inputs]
        results = [stated(value) for value in node.outputs]
        inside = [fingerprint(region) for region in node.operator.regions]
        attributes = format_attributes(node.operator)
        found.append((node.name, node.operator.name, attributes, operands, results, inside))
    return found


@dataclass(frozen=True)
class Constant:
    """Shape of a constant, and the nodes that read it, by name, each with the place among its operands."""

    shape: Shape
    readers: tuple[tuple[str, int], ...]

    @staticmethod
    def of(value: Value) -> Constant:
        return Constant(value.type.shape, tuple((node.name, index) for node, index in value.uses))


@dataclass(frozen=True)
class Sources:
    """Names of a program's constants, with the order of axes, by the name of what the graph has there."""

    places: Mapping[str, Sequence[tuple[str, tuple[int, ...] | None]]]

    @staticmethod
    def of(program: Program) -> Sources:
        """Constants of unknown origin hold what the graph has under their name, if there is such."""
        places: dict[str, list[tuple[str, tuple[int, ...] | None]]] = {}
        for buffer in program.constants:
            made_of = buffer.made_of
            name, axes = (buffer.name, None) if made_of is None else (made_of.name, made_of.axes)
            places.setdefault(name, []).append((buffer.name, axes))
        return Sources(places)

    def placed(self, constants: Mapping[str, Array]) -> dict[str, Array]:
        """Contents of the program's constants, by name, that these of the graph give."""
        return {
            place: np.asarray(np.transpose(data, axes) if axes else data, order="C")
            for name, data in constants.items()
            for place, axes in self.places.get(name, ())
        }


def contents_of(operands: Sequence[Value | None], shape: Shape) -> Array:
    """Contents of the first of these constants; a bias that is missing is zero."""
    known = operands[0] if operands else None
    return np.zeros(shape, np.float32) if known is None or known.data is None else known.data


def with_integer_weights(
    source: Graph, int8_graph: Graph, exchange: Exchange
) -> tuple[Graph, dict[str, frozenset[str]]]:
    """Return the float graph with the dequantized weights and biases of the int8 graph, and its regions.

    With it come the names of these constants, by the name of their node.
    """
    graph, names = source.copy(), dict[str, frozenset[str]]()
    nodes = {node.name: node for node in graph.nodes}
    for made in int8_graph.nodes:
        node = nodes.get(made.name)
        reals = reals_of(node, made, exchange)
        regions = exchange.instead.get(made.name, made).operator.regions
        if node is not None and regions and node.operator.region_names:
            node.operator = node.operator.with_regions([region.copy() for region in regions])
        if node is None or not reals:
            continue
        missing = max(reals) + 1 - len(node.inputs)
        operands = [*node.inputs, *(None for _ in range(missing))]
        for index, (name, data) in reals.items():
            operands[index] = constant(name, data)
        node.inputs = operands
        names[node.name] = frozenset(name for name, _ in reals.values())
    return graph, names


def reals_of(node: Node | None, made: Node, exchange: Exchange) -> dict[int, tuple[str, Array]]:
    """Names and contents of the constants of a float node that its int8 form `made` has, by their place."""
    int8 = exchange.instead.get(made.name, made)
    policy = int8.operator.policy
    if node is None or node.operator.name != int8.operator.name or node.operator.is_border:
        return {}  # weights that the model dequantizes itself, for a node that is float, are real already
    if not isinstance(policy, Accumulate):
        return _integer_operands(node, int8)
    found = {}
    for name, data in (real_constants(int8, policy) or {}).items():
        if int8.name in exchange.exact:
            data = _exact(node.operand(name), data)
        found[node.operator.place_of(name)] = f"{node.name}.{name}.real", data
    return found


def _exact(known: Value | None, rounded: Array) -> Array:
    """The contents of a float constant that was rounded; a bias that is missing is zero."""
    if known is None:
        return np.zeros_like(rounded)
    same = known.data is not None and known.data.shape == rounded.shape
    return known.data.astype(np.float32) if same and known.data is not None else rounded


def _integer_operands(node: Node, int8: Node) -> dict[int, tuple[str, Array]]:
    """The reals that constants of the int8 form of a float node stand for, as `reals_of` gives them."""
    if looks_up_integers(int8):
        table = real_table(int8, node)
        return {} if table is None else {0: (f"{node.name}.0.real", table)}
    found = {}
    for index, (value, integers) in enumerate(zip(node.inputs, int8.inputs, strict=False)):
        if value is None or integers is None or value.data is None or integers.data is None:
            continue
        kind = integers.type.quantization
        fits = kind is not None and (len(kind.scales) == 1 or node.operator.recurs is not None)
        if kind is not None and fits and integers.data.shape == value.data.shape:
            real = dequantize_by(integers.data, kind).astype(np.float32)
            found[index] = f"{node.name}.{index}.real", real
    return found

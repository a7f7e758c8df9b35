"""In which order nodes are given up to float, so that each step removes most error for its time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from qglow.graph.graph import Graph, Node, Value
from qglow.graph.operator import Accumulate, Products, ReadsIntegers, SameAs, Unify
from qglow.graph.ops.quantize import Rescale
from qglow.quantization.report import is_int8
from qglow.tuning.sensitivity import CLIPPING, ROUNDING, WEIGHTS, Sensitivity, int8_values

MOST_STEPS = 200
"""Steps that are worked out: beyond so many, int8 has little part in a model."""

_CONVERTED_A_CYCLE = 4.0
"""Elements that are turned from int8 into float or back in a cycle, about."""


@dataclass(frozen=True, slots=True)
class Step:
    """Nodes that become float together.

    noise: what this takes away of the predicted noise, relative to the power of the outputs. cycles: what
    it is estimated to cost, conversions at the new borders included.
    """

    nodes: tuple[str, ...]
    noise: float
    cycles: float


def order_nodes(
    float_graph: Graph,
    int8_graph: Graph,
    found: Sensitivity,
    int8_cycles: Mapping[str, float],
    float_cycles: Mapping[str, float],
) -> list[Step]:
    """Greedy: next comes what takes away most noise for its time, until nothing takes away any.

    What int8 does to a value is gone once all that read it are float, and what computes it can give float:
    sums can as they are, everything else has to be float itself. What it does to the weights of a node is
    gone once that node is float. So a step is what one value, or one node, still needs.
    """
    work = _Order(float_graph, int8_graph, found, int8_cycles, float_cycles)
    steps: list[Step] = []
    while len(steps) < MOST_STEPS and (step := work.next()) is not None:
        steps.append(step)
    return steps


class _Order:
    def __init__(
        self,
        float_graph: Graph,
        int8_graph: Graph,
        found: Sensitivity,
        int8_cycles: Mapping[str, float],
        float_cycles: Mapping[str, float],
    ) -> None:
        known = {node.name for node in float_graph.nodes}
        nodes = [node for node in int8_graph.nodes if node.name in known and is_int8(node)]
        self._weights = {node: found.of(node.outputs[0].name, WEIGHTS) for node in nodes if node.outputs}
        self._needs: dict[Value, frozenset[Node]] = {}
        self._noise: dict[Value, float] = {}
        for value in int8_values(int8_graph):
            needed = frozenset(_needed(value))
            if needed and needed <= set(nodes) and not any(int8_graph.is_output(v) for v in _moved(value)):
                self._needs[value] = needed
                self._noise[value] = found.of(value.name, ROUNDING, CLIPPING)
        self._needed_by: dict[Node, list[Value]] = {}
        for value, needed in self._needs.items():
            for node in needed:
                self._needed_by.setdefault(node, []).append(value)
        alone = (frozenset((node,)) for node, noise in self._weights.items() if noise > 0.0)
        self._candidates = list(dict.fromkeys((*self._needs.values(), *alone)))
        self._slower = {n: float_cycles.get(n.name, 0.0) - int8_cycles.get(n.name, 0.0) for n in nodes}
        self._float: frozenset[Node] = frozenset()

    def next(self) -> Step | None:
        """The best step from here, which is taken; None where none takes any noise away."""
        best: tuple[float, frozenset[Node], Step] | None = None
        for candidate in self._candidates:
            nodes = candidate - self._float
            if not nodes:
                continue
            noise = self._gain(nodes)
            if noise <= 0.0:
                continue
            cycles = self._cost(nodes)
            score = noise / max(cycles, 1.0)
            if best is None or score > best[0]:
                best = score, nodes, Step(tuple(sorted(node.name for node in nodes)), noise, cycles)
        if best is None:
            return None
        self._float |= best[1]
        return best[2]

    def _gain(self, nodes: frozenset[Node]) -> float:
        after = self._float | nodes
        values = {value for node in nodes for value in self._needed_by.get(node, ())}
        freed = sum(self._noise[value] for value in values if self._needs[value] <= after)
        return freed + sum(self._weights.get(node, 0.0) for node in nodes)

    def _cost(self, nodes: frozenset[Node]) -> float:
        after = self._float | nodes
        touched = {v for n in nodes for v in (*n.inputs, *n.outputs) if v is not None and not v.is_constant}
        converted = sum(_converted(v, after) - _converted(v, self._float) for v in touched)
        return sum(max(self._slower[node], 0.0) for node in nodes) + converted / _CONVERTED_A_CYCLE


def _converted(value: Value, is_float: frozenset[Node]) -> int:
    """Elements of a value of the int8 graph that pass a border with these nodes in float."""
    if not value.type.is_quantized:
        return 0
    readers = value.users()
    in_int8 = any(is_int8(node) and node not in is_float for node in readers)
    in_float = any(not is_int8(node) or node in is_float for node in readers)
    producer = value.producer
    if producer is None or producer in is_float or not is_int8(producer):
        return value.type.size if in_int8 else 0
    by_itself = isinstance(producer.operator.policy, Accumulate | Products) and not in_int8
    return value.type.size if in_float and not by_itself else 0


def _needed(value: Value) -> Iterator[Node]:
    """What has to be float so that nothing of a value is int8."""
    for moved in _moved(value):
        yield from _readers(moved)
    producer = value.producer
    if producer is None or not is_int8(producer) or isinstance(producer.operator, Rescale):
        return
    if not isinstance(producer.operator.policy, Accumulate | Products):
        yield producer


def _readers(value: Value) -> Iterator[Node]:
    """The int8 nodes that compute with a value, also on another scale."""
    for node in value.users():
        if isinstance(node.operator, Rescale):
            yield from _readers(node.output)
        elif is_int8(node) and not isinstance(node.operator.policy, ReadsIntegers):
            yield node


def _moved(value: Value) -> list[Value]:
    """The value, and those that only move its integers on."""
    found = [value]
    for current in found:
        for node in current.users():
            same = (v for v in node.outputs if v.type.quantization == value.type.quantization)
            found += [v for v in same if _moves(node) and v not in found]
    return found


def _moves(node: Node) -> bool:
    return isinstance(node.operator.policy, SameAs | Unify)

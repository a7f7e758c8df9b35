"""Order in which nodes become int16 and float: each step removes the most error for its time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from qglow.graph.graph import Graph, Node, Value, nested
from qglow.quantization.dynamic import multiplies_scaled_rows
from qglow.quantization.report import is_int8
from qglow.tuning.costs import placed_nodes
from qglow.tuning.levels import Cycles, Levels
from qglow.tuning.mix import Mix, Precision
from qglow.tuning.needs import Needs, Place, carried_by
from qglow.tuning.sensitivity import CLIPPING, ROUNDING, WEIGHTS, Sensitivity, int8_values

MOST_STEPS = 200
"""Largest number of steps: after so many, little of a model is still int8."""


@dataclass(frozen=True, slots=True)
class Promotion:
    """Nodes that become float or int16 together.

    noise: how much of the predicted noise this removes, relative to the power of the outputs. cycles:
    estimated cost, with conversions at the new borders; below 0 where the nodes become faster by it.
    """

    mix: Mix
    noise: float
    cycles: float


@dataclass(frozen=True, slots=True)
class OrderLimits:
    """Limits on the steps away from int8.

    share: by how much all steps together may slow the program down, as a share of its time; None: no limit.
    least_gain: share of the predicted noise that each step has to remove.
    """

    share: float | None = None
    least_gain: float = 0.0


NO_LIMITS = OrderLimits()


def order_nodes(
    model: Graph,
    int8_graph: Graph,
    found: Sensitivity,
    cycles: Cycles,
    limits: OrderLimits = NO_LIMITS,
    halves: Mapping[str, str] = MappingProxyType({}),
) -> list[Promotion]:
    """Order steps greedily: next is the step that removes the most noise for its time, while any does.

    The error of a value in int8 is gone once all nodes that read it are float and the node that computes it
    gives float: sums of products can in int8 already, all others have to become float. It is gone too
    once the value is int16, with a range of all that was seen: the node that computes it becomes int16,
    and so do the sums that read it. The error of int8 weights is gone once their node is float. So a
    step is the set of changes that one value, or the weights of one node, still need. Precisions without
    estimated cycles are not tried, and steps beyond the limits are passed over.

    model: the graph that was quantized: a recipe can name its nodes only, not those that quantization added.
    halves: the 16-bit float type of nodes that are faster in one than in float32: they become that where they
    would become float, since its errors are small beside those of int8.
    """
    work = _Ladder(model, int8_graph, found, cycles, halves)
    left = math.inf if limits.share is None else limits.share * sum(cycles[Precision.INT8].values())
    steps: list[Promotion] = []
    while len(steps) < MOST_STEPS:
        step = work.next(left, limits.least_gain * found.noise)
        if step is None:
            break
        left -= step.cycles
        steps.append(step)
    return steps


@dataclass(frozen=True, eq=False, slots=True)
class _Candidate:
    """Changes of precision that are made together, and the values and nodes whose noise or time they change.

    reach: nodes whose precision has an influence on the gain and cost of these changes.
    """

    needs: Needs
    places: tuple[Place, ...]
    values: tuple[Value, ...]
    nodes: tuple[Node, ...]
    reach: frozenset[Node]


@dataclass(frozen=True, slots=True)
class _Rated:
    """Changes that a candidate still has to make, the noise that they remove and their cost in cycles."""

    changes: Needs
    noise: float
    cycles: float


class _Ladder:
    def __init__(
        self,
        model: Graph,
        int8_graph: Graph,
        found: Sensitivity,
        cycles: Cycles,
        halves: Mapping[str, str],
    ) -> None:
        self._halves = halves
        known = {placed.name for placed in placed_nodes(model)}
        self._names = {placed.node: placed.name for placed in placed_nodes(int8_graph)}
        nodes = [node for node, name in self._names.items() if name in known and is_int8(node)]
        candidates = {node for node in nodes if node.outputs}
        self._weights: dict[Node, float] = {}
        self._noise: dict[Place, float] = {}
        wanted: list[Needs] = []
        for path, graph in nested(int8_graph):
            own = {node: path + node.outputs[0].name for node in graph.nodes if node in candidates}
            self._weights |= {node: found.of(name, *_own_kinds(node)) for node, name in own.items()}
            for place in map(Place.of, int8_values(graph)):
                if not place.to_float or any(graph.is_output(moved) for moved in place.moved):
                    continue
                # Also where there is no noise: a step that moves a border further may save conversions.
                self._noise[place] = found.of(path + place.value.name, ROUNDING, CLIPPING)
                wanted += [place.to_float, place.to_int16]
        wanted += [{node: Precision.FLOAT} for node, noise in self._weights.items() if noise > 0.0]
        self._places: dict[Node, list[Place]] = {}
        for place in self._noise:
            for node in place.nodes:
                self._places.setdefault(node, []).append(place)
        self._ratings: dict[_Candidate, _Rated] = {}
        self._levels = Levels.of(int8_graph, cycles)
        possible = (n for n in wanted if set(n) <= set(nodes) and all(p in cycles for p in n.values()))
        unlike = {frozenset(needs.items()): needs for needs in possible}
        self._candidates = [self._candidate(needs) for needs in unlike.values()]

    def next(self, most_cycles: float, least_noise: float) -> Promotion | None:
        """Take the best step within the limits and return it; None if no step within them removes noise."""
        rated = (self._rating(candidate) for candidate in self._candidates)
        fitting = (r for r in rated if r.cycles <= most_cycles and r.noise > 0.0 and r.noise >= least_noise)
        best = max(fitting, key=lambda r: r.noise / max(r.cycles, 1.0), default=None)
        if best is None:
            return None
        self._levels = self._levels.changed(best.changes)
        for candidate in [c for c in self._ratings if not c.reach.isdisjoint(best.changes)]:
            del self._ratings[candidate]
        changes = {self._names[node]: to for node, to in best.changes.items()}
        return Promotion(_mix(changes, self._halves), best.noise, best.cycles)

    def _rating(self, candidate: _Candidate) -> _Rated:
        """Return the rating of a candidate, cached until a node that it depends on changes."""
        if candidate not in self._ratings:
            changes = self._levels.raised(candidate.needs)
            after = self._levels.changed(changes)
            around = candidate.nodes, candidate.values
            cycles = after.cost(*around) - self._levels.cost(*around) if changes else 0.0
            self._ratings[candidate] = _Rated(changes, self._gain(candidate, changes, after), cycles)
        return self._ratings[candidate]

    def _gain(self, candidate: _Candidate, changes: Needs, after: Levels) -> float:
        if not changes:
            return 0.0
        gained = sum(self._weights.get(node, 0.0) for node, to in changes.items() if to is Precision.FLOAT)
        for place in candidate.places:
            gained += self._noise[place] * (after.exact(place) - self._levels.exact(place))
        return gained

    def _candidate(self, needs: Needs) -> _Candidate:
        places = tuple(dict.fromkeys(place for node in needs for place in self._places.get(node, ())))
        values = _values_around(needs)
        nodes = _nodes_around(values)
        reach = {*_nodes_around(_values_around(nodes))}
        reach.update(node for place in places for node in _nodes_around(_carried_along(place.moved)))
        return _Candidate(needs, places, values, nodes, frozenset(reach))


def _own_kinds(node: Node) -> tuple[str, ...]:
    """Return the kinds of errors that a node makes in its operands, and that are gone once it is float."""
    return (WEIGHTS, ROUNDING) if multiplies_scaled_rows(node) else (WEIGHTS,)


def _nodes_around(values: Sequence[Value]) -> tuple[Node, ...]:
    """Return the int8 nodes that read or compute these values, in a deterministic order."""
    nodes = dict.fromkeys(user for value in values for user in value.users())
    nodes |= dict.fromkeys(value.producer for value in values if value.producer is not None)
    return tuple(node for node in nodes if is_int8(node))


def _values_around(nodes: Iterable[Node]) -> tuple[Value, ...]:
    """Return the values that the nodes read and compute, and all values that share the precision of these."""
    return _carried_along(v for n in nodes for v in (*n.inputs, *n.outputs) if v is not None)


def _carried_along(values: Iterable[Value]) -> tuple[Value, ...]:
    """Return the values that are not constant, and all that data movement and rescales connect them with."""
    found = [value for value in dict.fromkeys(values) if not value.is_constant]
    seen = set(found)
    for value in found:
        further = [v for user in value.users() if carried_by(user) is value for v in user.outputs]
        carried = None if value.producer is None else carried_by(value.producer)
        further += [] if carried is None else [carried]
        found += [v for v in further if v not in seen]
        seen.update(further)
    return tuple(found)


def _mix(changes: Mapping[str, Precision], halves: Mapping[str, str]) -> Mix:
    real = sorted(name for name, to in changes.items() if to is Precision.FLOAT)
    wide = sorted(name for name, to in changes.items() if to is Precision.INT16)

    def of(element: str) -> tuple[str, ...]:
        return tuple(name for name in real if halves.get(name, "") == element)

    return Mix(of(""), tuple(wide), of("float16"), of("bfloat16"))

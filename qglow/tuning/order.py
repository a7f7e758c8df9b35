"""In which order nodes are given up to int16 and float, so that each step removes most error for its time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from qglow.graph.graph import Graph, Node, Value
from qglow.quantization.report import is_int8
from qglow.tuning.levels import Cycles, Levels
from qglow.tuning.mix import Mix, Precision
from qglow.tuning.needs import Needs, Place, carried_by
from qglow.tuning.sensitivity import CLIPPING, ROUNDING, WEIGHTS, Sensitivity, int8_values

MOST_STEPS = 200
"""Steps that are worked out: beyond so many, int8 has little part in a model."""


@dataclass(frozen=True, slots=True)
class Step:
    """Nodes that become float or int16 together.

    noise: what this takes away of the predicted noise, relative to the power of the outputs. cycles: what
    it is estimated to cost, conversions at the new borders included; less than 0 where float is faster than
    the int16 before it.
    """

    mix: Mix
    noise: float
    cycles: float


@dataclass(frozen=True, slots=True)
class Limits:
    """share: how much longer, as a share, all steps together may take; None: as much as they do.
    least_gain: share of the predicted noise that each step has to take away.
    """

    share: float | None = None
    least_gain: float = 0.0


NO_LIMITS = Limits()


def order_nodes(
    model: Graph,
    int8_graph: Graph,
    found: Sensitivity,
    cycles: Cycles,
    limits: Limits = NO_LIMITS,
) -> list[Step]:
    """Greedy: next comes what takes away most noise for its time, until nothing takes away any.

    What int8 does to a value is gone once all that read it are float, and what computes it can give float:
    sums can as they are, everything else has to be float itself. It is gone too once the value is int16,
    over all that was seen of it: what computes it gives that, and the sums that read it take int16. What
    int8 does to the weights of a node is gone once that node is float. So a step is what one value, or one
    node, still needs. A precision without estimated cycles is not tried, and passed over is what goes beyond
    the limits.

    model: what was quantized: a recipe can only name its nodes, not those that quantization added.
    """
    work = _Ladder(model, int8_graph, found, cycles)
    left = math.inf if limits.share is None else limits.share * sum(cycles[Precision.INT8].values())
    steps: list[Step] = []
    while len(steps) < MOST_STEPS:
        step = work.next(left, limits.least_gain * found.noise)
        if step is None:
            break
        left -= step.cycles
        steps.append(step)
    return steps


@dataclass(frozen=True, eq=False, slots=True)
class _Candidate:
    """What is needed together; the values and nodes whose noise or time that may change.

    reach: the nodes on whose precision it depends what that changes.
    """

    needs: Needs
    places: tuple[Place, ...]
    values: tuple[Value, ...]
    nodes: tuple[Node, ...]
    reach: frozenset[Node]


@dataclass(frozen=True, slots=True)
class _Rated:
    """What a candidate changes now, and what it is worth."""

    changes: Needs
    noise: float
    cycles: float


class _Ladder:
    def __init__(self, model: Graph, int8_graph: Graph, found: Sensitivity, cycles: Cycles) -> None:
        known = {node.name for node in model.nodes}
        nodes = [node for node in int8_graph.nodes if node.name in known and is_int8(node)]
        self._weights = {node: found.of(node.outputs[0].name, WEIGHTS) for node in nodes if node.outputs}
        self._noise: dict[Place, float] = {}
        wanted: list[Needs] = []
        for place in map(Place.of, int8_values(int8_graph)):
            if not place.to_float or any(int8_graph.is_output(moved) for moved in place.moved):
                continue
            # Also where there is no noise: what moves a border further may save conversions.
            self._noise[place] = found.of(place.value.name, ROUNDING, CLIPPING)
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

    def next(self, most_cycles: float, least_noise: float) -> Step | None:
        """The best step from here within limits, which is taken; None where none takes any noise away."""
        rated = (self._rating(candidate) for candidate in self._candidates)
        fitting = (r for r in rated if r.cycles <= most_cycles and r.noise > 0.0 and r.noise >= least_noise)
        best = max(fitting, key=lambda r: r.noise / max(r.cycles, 1.0), default=None)
        if best is None:
            return None
        self._levels = self._levels.changed(best.changes)
        for candidate in [c for c in self._ratings if not c.reach.isdisjoint(best.changes)]:
            del self._ratings[candidate]
        return Step(_mix(best.changes), best.noise, best.cycles)

    def _rating(self, candidate: _Candidate) -> _Rated:
        """Worked out again only where something changed that it depends on."""
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


def _nodes_around(values: Sequence[Value]) -> tuple[Node, ...]:
    """The int8 nodes that read values, or give them, in an order that is always the same."""
    nodes = dict.fromkeys(user for value in values for user in value.users())
    nodes |= dict.fromkeys(value.producer for value in values if value.producer is not None)
    return tuple(node for node in nodes if is_int8(node))


def _values_around(nodes: Iterable[Node]) -> tuple[Value, ...]:
    """What the nodes read and give, and what shares its precision."""
    return _carried_along(v for n in nodes for v in (*n.inputs, *n.outputs) if v is not None)


def _carried_along(values: Iterable[Value]) -> tuple[Value, ...]:
    """The values that are not constant, and what data movement and rescales make of them, or made them of."""
    found = [value for value in dict.fromkeys(values) if not value.is_constant]
    seen = set(found)
    for value in found:
        further = [v for user in value.users() if carried_by(user) is value for v in user.outputs]
        carried = None if value.producer is None else carried_by(value.producer)
        further += [] if carried is None else [carried]
        found += [v for v in further if v not in seen]
        seen.update(further)
    return tuple(found)


def _mix(changes: Needs) -> Mix:
    def named(precision: Precision) -> tuple[str, ...]:
        return tuple(sorted(node.name for node, to in changes.items() if to is precision))

    return Mix(named(Precision.FLOAT), named(Precision.INT16))

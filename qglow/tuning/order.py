"""In which order nodes are given up to int16 and float, so that each step removes most error for its time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from qglow.graph.graph import Graph, Node, Value
from qglow.quantization.report import is_int8
from qglow.tuning.levels import Cycles, Levels
from qglow.tuning.mix import Mix, Precision
from qglow.tuning.needs import Needs, carried_by, float_needs, int16_needs, moved_from, readers
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
    float_graph: Graph,
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
    """
    work = _Ladder(float_graph, int8_graph, found, cycles)
    left = math.inf if limits.share is None else limits.share * sum(cycles[Precision.INT8].values())
    steps: list[Step] = []
    while len(steps) < MOST_STEPS:
        step = work.next(left, limits.least_gain * found.noise)
        if step is None:
            break
        left -= step.cycles
        steps.append(step)
    return steps


@dataclass(frozen=True, slots=True)
class _Candidate:
    """What is needed together; the values and nodes whose noise or time that may change."""

    needs: Needs
    places: tuple[Value, ...]
    values: frozenset[Value]
    nodes: frozenset[Node]


class _Ladder:
    def __init__(self, float_graph: Graph, int8_graph: Graph, found: Sensitivity, cycles: Cycles) -> None:
        known = {node.name for node in float_graph.nodes}
        nodes = [node for node in int8_graph.nodes if node.name in known and is_int8(node)]
        self._weights = {node: found.of(node.outputs[0].name, WEIGHTS) for node in nodes if node.outputs}
        self._noise: dict[Value, float] = {}
        wanted: list[Needs] = []
        for value in int8_values(int8_graph):
            needs = float_needs(value)
            if not needs or any(int8_graph.is_output(v) for v in moved_from(value)):
                continue
            self._noise[value] = found.of(value.name, ROUNDING, CLIPPING)
            wanted += [needs, int16_needs(value)]
        wanted += [{node: Precision.FLOAT} for node, noise in self._weights.items() if noise > 0.0]
        self._places = _places_by_node(self._noise)
        self._levels = Levels.of(int8_graph, cycles)
        possible = (n for n in wanted if set(n) <= set(nodes) and all(p in cycles for p in n.values()))
        unlike = {frozenset(needs.items()): needs for needs in possible}
        self._candidates = [self._candidate(needs) for needs in unlike.values()]

    def next(self, most_cycles: float, least_noise: float) -> Step | None:
        """The best step from here within limits, which is taken; None where none takes any noise away."""
        best: tuple[float, Needs, Step] | None = None
        for candidate in self._candidates:
            changes = self._levels.raised(candidate.needs)
            if not changes:
                continue
            after = self._levels.changed(changes)
            noise = self._gain(candidate, changes, after)
            if noise <= 0.0 or noise < least_noise:
                continue
            around = candidate.nodes, candidate.values
            cycles = after.cost(*around) - self._levels.cost(*around)
            score = noise / max(cycles, 1.0)
            if cycles <= most_cycles and (best is None or score > best[0]):
                best = score, changes, Step(_mix(changes), noise, cycles)
        if best is None:
            return None
        self._levels = self._levels.changed(best[1])
        return best[2]

    def _gain(self, candidate: _Candidate, changes: Needs, after: Levels) -> float:
        gained = sum(self._weights.get(node, 0.0) for node, to in changes.items() if to is Precision.FLOAT)
        for value in candidate.places:
            gained += self._noise[value] * (after.exact(value) - self._levels.exact(value))
        return gained

    def _candidate(self, needs: Needs) -> _Candidate:
        places = (value for node in needs for value in self._places.get(node, ()))
        values = _values_around(needs)
        nodes = {user for value in values for user in value.users() if is_int8(user)}
        nodes |= {v.producer for v in values if v.producer is not None and is_int8(v.producer)}
        return _Candidate(needs, tuple(dict.fromkeys(places)), values, frozenset(nodes | set(needs)))


def _places_by_node(noise: Mapping[Value, float]) -> dict[Node, list[Value]]:
    """For each node the values with noise that its precision can matter to."""
    found: dict[Node, list[Value]] = {}
    for value, power in noise.items():
        if power > 0.0:
            read = {node: Precision.INT8 for moved in moved_from(value) for node in readers(moved)}
            for node in read | float_needs(value) | int16_needs(value):
                found.setdefault(node, []).append(value)
    return found


def _values_around(nodes: Iterable[Node]) -> frozenset[Value]:
    """What the nodes read and give, and what carries the precision of that on or brings it."""
    found = [
        v for node in nodes for v in (*node.inputs, *node.outputs) if v is not None and not v.is_constant
    ]
    seen = set(found)
    for value in found:
        further = [v for user in value.users() if carried_by(user) is value for v in user.outputs]
        carried = None if value.producer is None else carried_by(value.producer)
        further += [] if carried is None else [carried]
        found += [v for v in further if v not in seen]
        seen.update(further)
    return frozenset(seen)


def _mix(changes: Needs) -> Mix:
    def named(precision: Precision) -> tuple[str, ...]:
        return tuple(sorted(node.name for node, to in changes.items() if to is precision))

    return Mix(named(Precision.FLOAT), named(Precision.INT16))

"""Nodes that stay float because of what their values are: marks, constants with rare extremes, indices.

- A mark (see `marks`) would set the scale and leave the other elements no levels. Where it is masked out
  afterwards (the exponential of -10000 is 0) an int8 form would serve, but only with a range that was right
  for all data; in float nothing has to be guessed.
- A constant with rare extremes: all other elements would share a few levels.
- Indices carried as floats, such as positions: 255 steps cannot tell more of them apart. They come from
  integers, or become integers or answers of comparisons in the end.
- Places that a model computes (see `places`): rounding would move what is fetched there.
- Sums that a mean divides by a number of elements: they grow with it, so that no range of calibration holds
  for longer texts or signals. The mean that comes of both may be int8 again.
- Values of unlike ranges put together, such as boxes of hundreds of pixels and scores up to 1, in what a
  model gives: in the range of all, the smaller ones would have a few levels or none. Where sums of products
  read them together, int8 has one scale for them anyway.

Light nodes alone stay float for these reasons: they add up no products. Sums of products stay float where
they read marks, and those of one term, which add up nothing, where they read indices.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from qglow.core.types import Array, ElementType
from qglow.graph.graph import Graph, Node, Value
from qglow.profiling.histogram import ValueProfile
from qglow.quantization.marks import SENTINEL, mark_in_profile
from qglow.quantization.placement import FloatReasons, data_operands, handles_reals
from qglow.quantization.places import keep_places_float
from qglow.quantization.weights import adds_nothing_up

FEWEST = 16
"""Elements of a constant from which on single ones are rare."""
RARE = 0.01
"""Share of the elements of a constant that are extremes at most."""
LEAST_DB = 20.0
"""SQNR of the other elements, in dB, below which the extremes leave them too few levels."""
UNLIKE = 64.0
"""Ratio of ranges from which on the smaller of two values has at most four of the 256 levels of both."""
_WHOLE_NUMBERS = (ElementType.INT32, ElementType.INT64)

Statistics = Mapping[str, ValueProfile]


def keep_unsuited_float(graph: Graph, statistics: Statistics, reasons: FloatReasons) -> None:
    """Add the nodes to `reasons` whose values int8 does not suit.

    statistics: by name of the value. Values without a histogram are taken to have no marks.
    """
    _keep_marks(graph, statistics, reasons)
    _keep_constants(graph, reasons)
    _keep_unlike(graph, statistics, reasons)
    _keep_sums(graph, reasons)
    _keep_carried_integers(graph, statistics, reasons)
    _keep_coming_integers(graph, reasons)
    keep_places_float(graph, reasons)


def _candidates(graph: Graph, reasons: FloatReasons) -> Iterator[Node]:
    return (node for node in graph.nodes if node not in reasons and handles_reals(node))


def _data(node: Node) -> Iterator[Value]:
    """The operands that would be int8."""
    operands = (node.inputs[index] for index in data_operands(node) if index < len(node.inputs))
    return (value for value in operands if value is not None)


def _keep_marks(graph: Graph, statistics: Statistics, reasons: FloatReasons) -> None:
    marks: dict[tuple[str, bool], float | None] = {}

    def mark_of(value: Value, lone: bool) -> float | None:
        key = (value.name, lone)
        if key not in marks:
            profile = statistics.get(value.name)
            if profile is None and value.data is not None and not _is_near_zero(value.data):
                profile = ValueProfile()
                profile.observe(np.asarray(value.data, np.float32).reshape(1, -1))
            marks[key] = None if profile is None else mark_in_profile(profile, lone)
        return marks[key]

    for node in _candidates(graph, reasons):
        light = node.operator.is_light
        for value in (*_data(node), *(node.outputs if light else ())):
            mark = mark_of(value, light)
            if mark is not None:
                reasons[node] = (
                    f"'{value.name}' holds the mark {mark:.4g}, which would leave the rest no levels in int8"
                )
                break


def _is_near_zero(data: Array) -> bool:
    """Whether all elements are too small to be marks; infinities and NaN are not."""
    return bool(np.all(np.abs(data) < SENTINEL))


def _keep_constants(graph: Graph, reasons: FloatReasons) -> None:
    for node in _candidates(graph, reasons):
        for value in _data(node):
            if node.operator.is_light and value.data is not None and has_rare_extremes(value.data):
                reasons[node] = (
                    f"the constant '{value.name}' has rare extremes, which would leave the rest few levels"
                )
                break


def has_rare_extremes(data: Array) -> bool:
    """Whether int8 over the whole range of a constant loses what is not among its few largest elements."""
    elements = np.sort(np.abs(np.asarray(data, np.float64).reshape(-1)))
    if elements.size < FEWEST:
        return False
    rest = elements[: -max(int(RARE * elements.size), 1)]
    step = (float(data.max(initial=0.0)) - float(data.min(initial=0.0))) / 255.0
    power = float(np.mean(rest**2))
    return 0.0 < power < float(step**2 / 12.0 * 10.0 ** (LEAST_DB / 10.0))


def _keep_unlike(graph: Graph, statistics: Statistics, reasons: FloatReasons) -> None:
    """Keep joins of unlike ranges float that no sum of products reads, and what passes their results on."""
    for node in list(_candidates(graph, reasons)):
        if node.operator.joined_axis(node.input_types()) is None:
            continue
        profiles = [(value, statistics.get(value.name)) for value in _data(node) if value.data is None]
        ranges = {value: p.high - p.low for value, p in profiles if p is not None and p.total}
        widest = max(ranges.values(), default=0.0)
        lost = next((value for value, extent in ranges.items() if 0.0 < extent * UNLIKE < widest), None)
        behind = [] if lost is None else _passed_on(node)
        if lost is None or any(user.operator.sums_products or user.operator.recurs for user in behind):
            continue
        why = f"'{lost.name}' would have few levels or none in the range of all that is put together"
        for each in (node, *(user for user in behind if user.operator.passes_integers_on)):
            if handles_reals(each):
                reasons.setdefault(each, why)


def _keep_sums(graph: Graph, reasons: FloatReasons) -> None:
    """Keep light nodes between float sums along axes and what they are divided by, or multiplied with."""
    growing: set[Value] = set()
    for node in graph.nodes:
        if node in reasons:
            growing.update(node.outputs if node.operator.adds_up else ())
            continue
        first, *others = _data(node) if node.operator.is_light and handles_reals(node) else [None]
        by_count = node.operator.divides and not growing.isdisjoint(others)
        if first is None or not (first in growing or (by_count and _is_sum_of_computed(first))):
            continue
        # A larger result is one in which sums are beside other values, each of which takes time.
        if node.output.type.size > first.type.size:
            continue
        reasons[node] = f"'{first.name}' is a sum, which grows with the number of elements"
        if not (node.operator.divides or node.operator.multiplicative):
            growing.update(node.outputs)


def _is_sum_of_computed(value: Value) -> bool:
    """Whether products of computed values, such as those of a mask with tokens, are added up in it."""
    node = value.producer
    while node is not None and node.operator.passes_integers_on and node.inputs[0] is not None:
        node = node.inputs[0].producer
    return node is not None and node.operator.sums_products and node.operator.accumulate is None


def _passed_on(node: Node) -> list[Node]:
    """The nodes that read a node's results, as they are or passed on."""
    found: dict[Node, None] = {}
    waiting = [node]
    while waiting:
        for user in [user for value in waiting.pop().outputs for user in value.users()]:
            if user not in found:
                found[user] = None
                waiting += [user] if user.operator.passes_integers_on else []
    return list(found)


def _keep_carried_integers(graph: Graph, statistics: Statistics, reasons: FloatReasons) -> None:
    """Keep light nodes float whose operands all are integers that became floats, or computed from such.

    Such nodes compute angles of positions, for instance: in int8 those of longer texts than any that was seen
    would be clipped.
    """
    carried: set[Value] = set()
    for node in graph.nodes:
        if not any(value.type.is_float for value in node.outputs):
            continue
        if node in reasons and _gives_floats_of_integers(node):
            profile = statistics.get(node.output.name)
            if profile is not None and max(-profile.low, profile.high) > 1.0:
                carried.add(node.output)
            continue
        operands = [value for value in _data(node) if value.data is None]
        if operands and _is_simple(node) and carried.issuperset(operands):
            carried.update(node.outputs)
            if node not in reasons and handles_reals(node):
                reasons[node] = (
                    f"'{operands[0].name}' holds integers as floats, which int8 could not tell apart"
                )


def _is_simple(node: Node) -> bool:
    """Whether a node is light, or rounds to whole numbers, as a length is divided by a stride.

    A product whose sums have one term is light too: positions by frequencies are angles.
    """
    is_elementwise = node.operator.elementwise and node.output.type.is_float
    return node.operator.is_light or is_elementwise or adds_nothing_up(node)


def _gives_floats_of_integers(node: Node) -> bool:
    operands = [value for value in node.inputs if value is not None]
    return bool(operands) and all(value.type.element in _WHOLE_NUMBERS for value in operands)


def _keep_coming_integers(graph: Graph, reasons: FloatReasons) -> None:
    """Keep light nodes float whose results are read only to become integers or answers of comparisons."""
    exact: dict[Node, Node] = {}
    for node in reversed(graph.nodes):
        if _decides(node):
            exact[node] = node
        elif _is_simple(node) and handles_reals(node):
            users = [user for value in node.outputs for user in value.users()]
            read = any(map(graph.is_output, node.outputs)) or any(user not in exact for user in users)
            if users and not read:
                exact[node] = exact[users[0]]
                reasons.setdefault(node, f"{exact[node]} decides by its result, which rounding could turn")


def _decides(node: Node) -> bool:
    """Whether it makes integers or booleans of floats; in int8 it would make them of rounded ones."""
    operator = node.operator
    if operator.reads_integers or operator.conversion is not None:
        return False
    if operator.evaluate_types(node.input_types()) is not None:
        return False
    reads = any(value.type.is_float for value in _data(node))
    return reads and not any(value.type.is_float or value.type.is_half for value in node.outputs)

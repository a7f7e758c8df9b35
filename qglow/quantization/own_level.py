"""Keep in float what brings an input to a level of its own, and results back to that of the input.

Forecasts, and other networks of signals, measure an input while the model runs (its mean, deviation or
largest size), compute with what is left of it in units of these, and give results in the input's units again.
No calibration tells the level of the next series. What is computed in units of the measures has one range
for all of them, and may be int8.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from qglow.graph.graph import Graph, Node, Value
from qglow.quantization.placement import FloatReasons, handles_reals


def keep_own_level_float(graph: Graph, reasons: FloatReasons) -> None:
    """Add to `reasons` the light nodes that measure inputs, and those that apply measures to reals.

    These are what comes in, before layers, or what is given, behind all layers.
    """
    before, measures = _levels(graph)
    for node in graph.nodes:
        measure = next((value for value in node.inputs if value in measures), None)
        computed = [value for value in node.inputs if value is not None and not value.is_constant]
        if measure is None or not _applies(node) or measures.issuperset(computed):
            continue
        found = [node] if before.issuperset(computed) else _behind(node)
        for each in [*found, *(_computing(measure) if found else ())]:
            if handles_reals(each):
                reasons.setdefault(each, f"'{measure.name}' measures an input, whose next level nobody knows")


def _levels(graph: Graph) -> tuple[set[Value], set[Value]]:
    """The values that come of real inputs without layers in between, and those of them that are measures."""
    before = {value for value in graph.inputs if value.type.is_float}
    measures: set[Value] = set()
    for node in graph.nodes:
        computed = {value for value in node.inputs if value is not None and not value.is_constant}
        if not computed or _is_layer(node) or not before.issuperset(computed):
            continue
        before.update(node.outputs)
        if node.operator.reduces or measures.issuperset(computed):
            measures.update(node.outputs)
    return before, measures


def _applies(node: Node) -> bool:
    operator = node.operator
    return operator.additive or operator.multiplicative or operator.divides


def _is_layer(node: Node) -> bool:
    return node.operator.sums_products or node.operator.recurs is not None


def _behind(node: Node) -> list[Node]:
    """The node and all nodes that its results reach; none where a layer is among them."""
    found = _reached([node], lambda each: (user for value in each.outputs for user in value.users()))
    return [] if any(map(_is_layer, found)) else found


def _computing(value: Value) -> list[Node]:
    """The nodes that a value is computed by."""
    begun = [] if value.producer is None else [value.producer]
    return _reached(begun, lambda each: (v.producer for v in each.inputs if v is not None and v.producer))


def _reached(begun: list[Node], neighbours: Callable[[Node], Iterable[Node]]) -> list[Node]:
    found, waiting = dict.fromkeys(begun), list(begun)
    while waiting:
        new = [node for node in dict.fromkeys(neighbours(waiting.pop())) if node not in found]
        found |= dict.fromkeys(new)
        waiting += new
    return list(found)

"""Keep in float what brings an input to a level of its own, and what gives results in terms of an input.

Forecasts, and other networks of signals, measure an input while the model runs (its mean, deviation or
largest size), compute with what is left of it in units of these, and give results in the input's units again.
No calibration tells the level of the next series. What is computed in units of the measures has one range
for all of them, and may be int8.

Others give the input itself, with a mask or a correction: speech without its noise, an image made sharper. In
int8 the weak parts of a spectrum would be lost, and every output would have the noise of a rounded input.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from qglow.graph.graph import Graph, Node, Value
from qglow.quantization.placement import FloatReasons, handles_reals


def keep_own_level_float(graph: Graph, reasons: FloatReasons) -> None:
    """Add to `reasons` light nodes that measure inputs, apply measures to them, or end a model with inputs.

    A model ends where no layers are behind.
    """
    before, measures, masks = _levels(graph)
    for node in graph.nodes:
        computed = [value for value in node.inputs if value is not None and not value.is_constant]
        given = [value for value in computed if value in before]
        if not given or not _applies(node) or measures.issuperset(computed):
            continue
        measure = next((value for value in given if value in measures), None)
        others = [value for value in computed if value not in before]
        if measure is not None and masks.issuperset(others):
            found = [node]
        else:
            found = _behind(node) if others else []
        why = f"it gives results in terms of '{given[0].name}', which comes from outside"
        if measure is not None:
            why = f"'{measure.name}' measures an input, whose next level nobody knows"
        for each in [*found, *(one for value in given if found for one in _computing(value))]:
            if handles_reals(each):
                reasons.setdefault(each, why)


def in_own_units(graph: Graph) -> set[Value]:
    """The values that come of inputs without layers in between, in units of measures of these inputs."""
    before, measures, _ = _levels(graph)
    found: set[Value] = set()
    for node in graph.nodes:
        given = [value for value in node.inputs if value in before]
        if _applies(node) and not measures.isdisjoint(given) and not measures.issuperset(given):
            found.update(node.outputs)
        elif not found.isdisjoint(given):
            found.update(value for value in node.outputs if value in before)
    return found - measures


def _levels(graph: Graph) -> tuple[set[Value], set[Value], set[Value]]:
    """The values that come of real inputs without layers in between, measures among them, and masks.

    Masks come of inputs of integers or booleans alone, such as which places of a series are padding.
    """
    before = {value for value in graph.inputs if value.type.is_float}
    masks = set(graph.inputs) - before
    measures: set[Value] = set()
    for node in graph.nodes:
        computed = {value for value in node.inputs if value is not None and not value.is_constant}
        if not computed or _is_layer(node):
            continue
        real = computed - masks
        if not real:
            masks.update(() if node.operator.looks_up_rows else node.outputs)
        elif before.issuperset(real):
            before.update(node.outputs)
            if node.operator.reduces or measures.issuperset(real):
                measures.update(node.outputs)
    return before, measures, masks


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

"""Outputs whose elements the model itself chooses by rank, such as the best 300 boxes of a detector.

The least noise turns the order of nearly equal scores, and with it every element of such an output. So what
the elements are chosen from is compared, in the order that the model computes it in.
"""

from __future__ import annotations

from qglow.graph.cutting import cut
from qglow.graph.graph import Graph, Node, Value


def before_ranking(real: Graph, int8: Graph) -> tuple[Graph, Graph, tuple[str, ...]] | None:
    """Parts of both graphs up to what rankings choose from, and the names of the outputs that they leave out.

    Other outputs stay. None where no output is chosen by rank, or the graphs have no such parts in common.
    """
    names, left_out = _compared(real)
    if not left_out:
        return None
    try:
        parts = cut(real, names, ()), cut(int8, names, ())
    except KeyError:
        return None
    interfaces = [(_shapes(part.inputs), _shapes(part.outputs)) for part in parts]
    return (*parts, left_out) if interfaces[0] == interfaces[1] else None


def without_ranking(real: Graph) -> Graph:
    """The part of a float graph up to what rankings choose its outputs from; the graph itself if none do."""
    names, left_out = _compared(real)
    return cut(real, names, ()) if left_out else real


def _compared(real: Graph) -> tuple[list[str], tuple[str, ...]]:
    """Names of what is compared in place of the outputs, and of the outputs that are chosen by rank."""
    if real.tail is not None:
        return [], ()
    sources = {output: _chosen_from(output) for output in real.outputs}
    names = dict.fromkeys(v.name for output, found in sources.items() for v in (found or [output]))
    return list(names), tuple(output.name for output, found in sources.items() if found)


def _shapes(values: list[Value]) -> dict[str, tuple[int, ...]]:
    return {value.name: value.type.shape for value in values}


def _chosen_from(output: Value) -> list[Value]:
    """Values that an output's elements are chosen from, and those that decide which; [] if none are chosen.

    Layers with weights end the way back from the output.
    """
    found: dict[Value, None] = {}
    seen: set[Node] = set()
    waiting = [output]
    while waiting:
        node = waiting.pop().producer
        if node is None or node in seen or node.operator.sums_products or node.operator.recurs:
            continue
        seen.add(node)
        sources = _sources(node)
        found |= dict.fromkeys(sources)
        waiting += [] if sources else [value for value in node.inputs if value is not None]
    return list(found)


def _sources(node: Node) -> list[Value]:
    """The reals that a node chooses elements of, and those that decide which; [] for another node."""
    if len(node.inputs) < 2 or node.inputs[0] is None or node.inputs[1] is None:
        return []
    x, places = node.inputs[0], node.inputs[1]
    effects = (node.operator.axis_effect(0, axis, node.input_types()) for axis in range(len(x.type.shape)))
    chooses = any(effect is not None and effect.chosen for effect in effects)
    if not chooses or not x.type.is_float or x.is_constant or places.type.is_float:
        return []
    deciding = _deciding(places)
    return [x, *deciding] if deciding else []


def _deciding(places: Value) -> list[Value]:
    """The computed reals that integers are made of."""
    found: dict[Value, None] = {}
    seen: set[Node] = set()
    waiting = [places]
    while waiting:
        node = waiting.pop().producer
        if node is None or node in seen:
            continue
        seen.add(node)
        for value in node.inputs:
            if value is not None and value.type.is_float and value.producer is not None:
                found[value] = None
            elif value is not None:
                waiting.append(value)
    return list(found)

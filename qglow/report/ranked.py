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
    known: dict[Value, list[Value]] = {}
    sources = {output: _chosen_from(output, known) for output in real.outputs}
    names = dict.fromkeys(v.name for output, found in sources.items() for v in (found or [output]))
    return list(names), tuple(output.name for output, found in sources.items() if found)


def _shapes(values: list[Value]) -> dict[str, tuple[int, ...]]:
    return {value.name: value.type.shape for value in values}


def _chosen_from(output: Value, known: dict[Value, list[Value]]) -> list[Value]:
    """Values that an output's elements are chosen from, and those that decide which; [] if none are chosen.

    Layers with weights end the way back from the output. Where such a value is chosen by rank itself, as the
    places are where an image is sampled at keypoints, what it is chosen from takes its place. known: what
    was found for other values.
    """
    if output in known:
        return known[output]
    found: dict[Value, None] = {}
    seen: set[Node] = set()
    waiting = [output]
    while waiting:
        node = waiting.pop().producer
        if node is None or node in seen or node.operator.sums_products or node.operator.recurs:
            continue
        seen.add(node)
        sources = _sources(node) or _ranked(node)
        found |= dict.fromkeys(sources)
        waiting += [] if sources else [value for value in node.inputs if value is not None]
    behind = {value: _chosen_from(value, known) or [value] for value in found}
    known[output] = list(dict.fromkeys(each for values in behind.values() for each in values))
    return known[output]


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


def _ranked(node: Node) -> list[Value]:
    """The reals by whose rank there are the places that a node makes reals of, such as those of keypoints."""
    x = node.inputs[0] if node.inputs else None
    if x is None or not x.type.is_plain_integer or not node.output.type.is_float:
        return []
    return _deciding(x, by_rank=True)


def _deciding(places: Value, by_rank: bool = False) -> list[Value]:
    """The computed reals that integers are made of; `by_rank`: those alone whose order the integers tell."""
    found: dict[Value, None] = {}
    seen: set[Node] = set()
    waiting = [places]
    while waiting:
        node = waiting.pop().producer
        if node is None or node in seen:
            continue
        seen.add(node)
        for value in filter(None, node.inputs):
            if not value.type.is_float:
                waiting.append(value)
            elif value.producer is not None and (node.operator.gives_ranks or not by_rank):
                found[value] = None
    return list(found)

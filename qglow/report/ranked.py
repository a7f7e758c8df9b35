"""Outputs whose elements the model itself chooses by rank, such as the best 300 boxes of a detector.

The least noise turns the order of nearly equal scores, and with it every element of such an output. So what
the elements are chosen from is compared, in the order that the model computes it in. Where layers follow on
what was chosen, as the decoder of a detector on the best 300 places, they are compared too: both models go on
with the float model's choice.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from math import prod

from qglow.core.batch import batch_of
from qglow.core.types import Shape
from qglow.graph.cutting import cut
from qglow.graph.graph import Graph, Node, Value


@dataclass(frozen=True)
class RankedParts:
    """Parts of a float graph and of its int8 form that are compared where the model chooses by rank.

    given: names of ranks that are inputs of both parts, for which those of the float graph are taken.
    left_out: names of the outputs that the parts leave out.
    """

    real: Graph
    int8: Graph
    given: tuple[str, ...]
    left_out: tuple[str, ...]


def before_ranking(real: Graph, int8: Graph) -> RankedParts | None:
    """Parts of both graphs that compute what is compared in place of the outputs; see `RankedParts`.

    None where nothing that an output tells is chosen by rank, or the graphs have no such parts in common.
    """
    names, given, left_out = _compared(real)
    if not left_out and not given:
        return None
    try:
        parts = cut(real, names, given), cut(int8, names, given)
    except KeyError:
        return None
    if any(_shapes(parts[0].inputs) != _shapes(part.inputs) for part in parts):
        return None
    same = _shapes(parts[0].outputs) == _shapes(parts[1].outputs)
    return RankedParts(*parts, given, left_out) if same else None


def without_ranking(real: Graph) -> tuple[Graph, tuple[str, ...]]:
    """The part of a float graph that is compared, and the names of the ranks that are its inputs.

    The graph itself where it chooses nothing by rank.
    """
    names, given, left_out = _compared(real)
    return (cut(real, names, given) if left_out or given else real), given


def _compared(real: Graph) -> tuple[list[str], tuple[str, ...], tuple[str, ...]]:
    """Names of what is compared in place of the outputs, of given ranks, and of outputs that are left out."""
    if real.tail is not None:
        return [], (), ()
    given = _ranks_before_layers(real)
    known: dict[Value, list[Value]] = {}
    sources = {
        output: [given[output]] if output in given else _chosen_from(output, known, given)
        for output in real.outputs
    }
    names = dict.fromkeys(v.name for output, found in sources.items() for v in (found or [output]))
    names |= dict.fromkeys(value.name for value in given.values())
    left_out = tuple(output.name for output, found in sources.items() if found)
    return list(names), tuple(rank.name for rank in given), left_out


def _ranks_before_layers(real: Graph) -> dict[Value, Value]:
    """Ranks in whose order layers with weights work on what they choose, up to an output; and what they rank.

    Each element of the output along one of its axes belongs to a rank then. Ranks among which samples are not
    apart are left out.
    """
    batch = batch_of(_shapes(real.inputs))
    found: dict[Value, Value] = {}
    waiting = [(value, axis, False) for value in real.outputs for axis in range(len(value.type.shape))]
    seen = set(waiting)
    while waiting:
        value, axis, layers = waiting.pop()
        node = value.producer
        if node is None:
            continue
        origins = [*_origins(node, value, axis)]
        ranked = node.inputs[0] if node.operator.gives_ranks and not origins and layers else None
        computed = ranked is not None and ranked.type.is_float and ranked.producer is not None
        if ranked is not None and computed and batch in (1, value.type.shape[0]):
            found[value] = ranked
        layers = layers or node.operator.sums_products or node.operator.recurs is not None
        new = {(operand, place, layers) for operand, place in origins} - seen
        seen |= new
        waiting += new
    return found


def _origins(node: Node, value: Value, axis: int) -> Iterator[tuple[Value, int]]:
    """The computed operands, and their axes, whose places decide those along an axis of a node's result.

    Of a reshape, which may merge samples with what is behind them, all axes that have a part in this one.
    """
    kinds, first = node.input_types(), node.inputs[0] if node.inputs else None
    if node.operator.rearranges and node.operator.states_shape and first is not None:
        spans = _spans(first.type.shape)
        low, high = _spans(value.type.shape)[axis]
        yield from ((first, place) for place, (a, b) in enumerate(spans) if max(a, low) < min(b, high))
        return
    for index, operand in enumerate(node.inputs):
        if operand is None or operand.is_constant:
            continue
        for place, size in enumerate(operand.type.shape):
            effect = node.operator.axis_effect(index, place, kinds) if size > 1 else None
            if effect is not None and effect.keeps_places and effect.axis_of(value.index) == axis:
                yield operand, place


def _spans(shape: Shape) -> list[tuple[int, int]]:
    """Elements between neighbours along each axis, and between those along the axis in front of it."""
    inner = [prod(shape[axis + 1 :]) for axis in range(len(shape))]
    return [(few, few * size) for few, size in zip(inner, shape, strict=True)]


def _shapes(values: list[Value]) -> dict[str, Shape]:
    return {value.name: value.type.shape for value in values}


def _chosen_from(output: Value, known: dict[Value, list[Value]], given: Collection[Value]) -> list[Value]:
    """Values that an output's elements are chosen from, and those that decide which; [] if none are chosen.

    Layers with weights end the way back from the output. Where such a value is chosen by rank itself, as the
    places are where an image is sampled at keypoints, what it is chosen from takes its place. known: what
    was found for other values. given: ranks that choose nothing, because they are the same in all models.
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
        sources = _sources(node, given) or _ranked(node, given)
        found |= dict.fromkeys(sources)
        waiting += [] if sources else [value for value in node.inputs if value is not None]
    behind = {value: _chosen_from(value, known, given) or [value] for value in found}
    known[output] = list(dict.fromkeys(each for values in behind.values() for each in values))
    return known[output]


def _sources(node: Node, given: Collection[Value]) -> list[Value]:
    """The reals that a node chooses elements of, and those that decide which; [] for another node."""
    if len(node.inputs) < 2 or node.inputs[0] is None or node.inputs[1] is None:
        return []
    x, places = node.inputs[0], node.inputs[1]
    effects = (node.operator.axis_effect(0, axis, node.input_types()) for axis in range(len(x.type.shape)))
    chooses = any(effect is not None and effect.chosen for effect in effects)
    if not chooses or not x.type.is_float or x.is_constant or places.type.is_float:
        return []
    deciding = _deciding(places, given)
    return [x, *deciding] if deciding else []


def _ranked(node: Node, given: Collection[Value]) -> list[Value]:
    """The reals by whose rank there are the places that a node makes reals of, such as those of keypoints."""
    x = node.inputs[0] if node.inputs else None
    if x is None or not x.type.is_plain_integer or not node.output.type.is_float:
        return []
    return _deciding(x, given, by_rank=True)


def _deciding(places: Value, given: Collection[Value], by_rank: bool = False) -> list[Value]:
    """The computed reals that integers are made of, without `given` ones; `by_rank`: of an order alone."""
    found: dict[Value, None] = {}
    seen: set[Node] = set()
    waiting = [places]
    while waiting:
        rank = waiting.pop()
        node = rank.producer
        if node is None or node in seen or rank in given:
            continue
        seen.add(node)
        for value in filter(None, node.inputs):
            if not value.type.is_float:
                waiting.append(value)
            elif value.producer is not None and (node.operator.gives_ranks or not by_rank):
                found[value] = None
    return list(found)

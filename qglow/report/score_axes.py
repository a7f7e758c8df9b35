"""Outputs that are scores of classes: along which axis the classes lie, and what has one set of them.

Scores [N, classes], but for axes of size 1, have one set a sample. Scores at positions, such as
[N, T, classes] of a tagger, a CTC recogniser or a language model, are shares of classes, their logarithms,
or what a linear layer gives. An axis whose size the data decides is never one of classes, as M of a waveform
[N, M], and neither is one that convolutions or pools slide along, or that has the rows of a linear layer.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from qglow.core.types import Array, Shape
from qglow.graph.graph import Graph, Node, Value

OpenAxes = Mapping[str, Collection[int]]
"""Axes of outputs whose size the data decides, by name of the output."""


@dataclass(frozen=True, slots=True)
class ScoreAxis:
    """The axis of the classes of one output.

    by_position: each sample has one set of scores at every place of the other axes. probabilities: they are
    shares that add up to 1.
    """

    axis: int
    by_position: bool = False
    probabilities: bool = False

    def chosen(self, scores: Array) -> Array:
        """The best class of each set of scores, the lower one of equals, as a vector of integers."""
        return np.asarray(np.argmax(scores, axis=self.axis)).reshape(-1)


def sample_scores(shape: Shape) -> ScoreAxis | None:
    """The axis of the classes where a shape is [N, classes], two or more, but for axes of size 1."""
    if len(shape) < 2 or shape[1] < 2 or int(np.prod(shape)) != shape[0] * shape[1]:
        return None
    return ScoreAxis(1)


def score_axes(graph: Graph, open_axes: OpenAxes) -> dict[str, ScoreAxis]:
    """Find the outputs of a float graph that are scores of classes, by name."""
    makers = {value: node for node in graph.nodes for value in node.outputs}
    found: dict[str, ScoreAxis] = {}
    for output in graph.outputs:
        if not output.type.is_float:
            continue
        scores = sample_scores(output.type.shape)
        if scores is None:
            scores = _scores_of_positions(output, makers)
        elif _has_places(output, scores.axis, makers):
            continue
        if scores is not None and scores.axis not in open_axes.get(output.name, ()):
            found[output.name] = scores
    return found


def _has_places(value: Value, axis: int, makers: Mapping[Value, Node]) -> bool:
    """Whether an axis is one of pixels, of time or of other rows in the layer or pool that it comes from."""
    node = makers.get(value)
    while node is not None:
        operator, rank = node.operator, len(node.output.type.shape)
        slides = operator.window(node.input_types()) is not None
        if operator.filters is not None or operator.recurs:
            return axis != (1 if slides else rank - 1)
        if operator.multiplies_activations and node.inputs[0] is not None:
            return axis != rank - 1 and node.inputs[0].data is None
        if slides:
            return rank > 2 and axis > 1
        origin = _origin(node, axis)
        if origin is None:
            return False
        value, axis = origin
        node = makers.get(value)
    return False


def _origin(node: Node, axis: int) -> tuple[Value, int] | None:
    """The computed operand, and its axis, whose places decide those of a result; None where there is none."""
    for index, value in enumerate(node.inputs):
        if value is None or value.data is not None or not value.type.is_float:
            continue
        for place in range(len(value.type.shape)):
            effect = node.operator.axis_effect(index, place, node.input_types())
            if effect is None or effect.axis != axis or not effect.keeps_places:
                continue
            if value.type.shape[place] > 1:
                return value, place
    return None


def _scores_of_positions(output: Value, makers: Mapping[Value, Node]) -> ScoreAxis | None:
    """The axis of the classes of an output of three axes or more, behind nodes that only move elements."""
    moved: list[Node] = []
    node = makers.get(output)
    while node is not None and node.operator.passes_integers_on and node.inputs[0] is not None:
        moved.append(node)
        node = makers.get(node.inputs[0])
    if node is None or len(output.type.shape) < 3:
        return None
    axis = _axis_of_classes(node, makers, len(output.type.shape))
    if axis is None:
        return None
    classes, place = node.output.type.shape[axis], _place_behind(moved, axis)
    if not place or output.type.shape[place] != classes:
        return None
    return ScoreAxis(place, True, node.operator.distributes_along(node.input_types()) is not None)


def _place_behind(moved: list[Node], axis: int) -> int | None:
    """The place of an axis behind nodes that move elements, the last one first; None where it is merged."""
    for step in reversed(moved):
        effect = step.operator.axis_effect(0, axis, step.input_types())
        if effect is None or effect.axis is None or not effect.keeps_places:
            return None
        axis = effect.axis
    return axis


def _axis_of_classes(node: Node, makers: Mapping[Value, Node], rank: int) -> int | None:
    """The axis of a result along which it has scores; None where it has none.

    A linear layer's are scores in an output [N, T, classes] alone: of more axes they may be of an image.
    """
    operator = node.operator
    axis = operator.scores_along(node.input_types())
    if axis is not None:
        return None if _weighs(node, makers) else axis
    is_linear = operator.filters is not None and operator.window(node.input_types()) is None
    bounded = np.isfinite(operator.bounds).any()
    return len(node.output.type.shape) - 1 if rank == 3 and is_linear and not bounded else None


def _weighs(node: Node, makers: Mapping[Value, Node]) -> bool:
    """Whether shares are the weights of attention, from products of two activations."""
    source: Node | None = node
    while source is node or (source is not None and source.operator.is_light):
        operands = [value for value in source.inputs if value is not None and value.data is None]
        source = makers.get(operands[0]) if operands else None
    return source is not None and source.operator.multiplies_activations

"""Gathers of all places of an axis in their order, which follow from sizes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from qglow.counts.twins import twins_of
from qglow.graph.graph import Graph, Node, Value
from qglow.graph.ops.movement import Gather
from qglow.graph.ops.shape import Reshape
from qglow.graph.rewriting import operand, producer_of


def reshape_whole_gathers(graphs: Sequence[Graph]) -> None:
    """Turn gathers of all places of an axis, in ascending order, into reshapes of what they read.

    graphs: the same model in several sizes, all of which are changed alike. TorchScript's exporter writes the
    padding mask `mask[b, k]` as a gather of its flattened elements, at `b * length + k`.
    """
    for twins in twins_of(graphs):
        if all(_reads_all(node) for node in twins):
            for node in twins:
                _reshape(node)


def _reads_all(node: Node) -> bool:
    if producer_of(node.outputs[0], Gather) is None:
        return False
    shape, indices = operand(node, 0).type.shape, operand(node, 1)
    effects = [node.operator.axis_effect(0, axis, node.input_types()) for axis in range(len(shape))]
    chosen = [size for size, effect in zip(shape, effects, strict=True) if effect is None or effect.chosen]
    return chosen == [indices.type.size] and _is(indices, np.arange(indices.type.size))


def _reshape(node: Node) -> None:
    """Reshape what was flattened before: an axis that is merged and divided again has no other places."""
    source = operand(node, 0)
    while (before := producer_of(source, Reshape)) is not None:
        source = operand(before, 0)
    node.operator, node.inputs = Reshape(node.output.type.shape), (source,)


def _is(value: Value, numbers: ArrayLike) -> bool:
    return value.data is not None and np.array_equal(value.data.ravel(), numbers)

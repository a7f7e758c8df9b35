"""Gathers of places that follow from sizes: of all in their order, and of rows by two indices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from qglow.counts.twins import twins_of
from qglow.graph.axes import AxisEffect
from qglow.graph.graph import Graph, Node, Value, constant
from qglow.graph.ops.elementwise import Add, Mul
from qglow.graph.ops.movement import Gather
from qglow.graph.ops.shape import Reshape
from qglow.graph.rewriting import operand, private, producer_of


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


def keep_row_strides(graphs: Sequence[Graph]) -> set[Node]:
    """Let gathers of rows at `first * extent + second` keep the extent of the bound; returns its gathers.

    graphs: the same model in several sizes, the bound first, all of which are changed alike. The rows are
    those of two axes that a reshape merges, as in `hidden[batch, last_token]`, or what is computed of each of
    them, as in scores of a classifier; they lie in the bound's order.
    """
    gathers = set()
    for twins in twins_of(graphs):
        pairs = zip(graphs, twins, strict=True)
        found = [starts for graph, node in pairs if (starts := _starts(graph, node)) is not None]
        if len(found) < len(twins):
            continue
        kept = found[0].extent
        for graph, (reader, place, extent) in zip(graphs, found, strict=True):
            data = operand(reader, place).data
            assert data is not None, "what rows begin with is a constant"
            made = constant(graph.unique_name(f"{reader.name}__kept"), data // extent * kept)
            reader.inputs = tuple(made if i == place else value for i, value in enumerate(reader.inputs))
        gathers.add(twins[0])
    return gathers


class _Starts(NamedTuple):
    """The constant operand of a node that has the places of first rows, multiples of `extent`."""

    reader: Node
    place: int
    extent: int


def _starts(graph: Graph, node: Node) -> _Starts | None:
    """Operand from which a gather of rows of two axes gets the first of each outer place, if it is one.

    That is `first * extent`, or a constant that has it for all places. Nothing else may read what changes.
    """
    if producer_of(node.outputs[0], Gather) is None:
        return None
    merge, total = _merge(operand(node, 0)), producer_of(operand(node, 1), Add)
    if merge is None or total is None or private(graph, total.output) is not None:
        return None
    (outer, *more), rows = operand(merge, 0).type.shape, merge.output.type.shape
    if not more or rows != (outer * more[0], *more[1:]):
        return None
    for index, part in enumerate(total.inputs):
        assert part is not None, "a sum has no optional operands"
        product = producer_of(part, Mul)
        alone = product is not None and private(graph, part) is None
        if product is not None and alone and _is(operand(product, 1), [more[0]]):
            return _Starts(product, 1, more[0])
        if _is(part, np.arange(outer) * more[0]):
            return _Starts(total, index, more[0])
    return None


def _merge(rows: Value) -> Node | None:
    """The reshape that made rows of two axes, of which nodes may have computed each by itself since then."""
    value = rows
    while (node := value.producer) is not None and producer_of(value, Reshape) is None:
        given = node.inputs[0]
        if given is None or given.type.shape[:1] != rows.type.shape[:1]:
            return None
        if node.operator.axis_effect(0, 0, node.input_types()) != AxisEffect(0):
            return None
        value = given
    return node


def _is(value: Value, numbers: ArrayLike) -> bool:
    return value.data is not None and np.array_equal(value.data.ravel(), numbers)

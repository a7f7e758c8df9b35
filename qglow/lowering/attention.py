"""Attention in single operators, from the product of queries and keys to that with the values, as one.

Between both products may lie a factor, a mask that is added, one that chooses, the choice of live places, and
the shares of a row; heads that share keys are repeated by Expand, or are rows of one product. Bits are those
of the single instructions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from qglow.core.types import ElementType, Shape
from qglow.graph.graph import Graph, Node, Value
from qglow.graph.ops.linear import MatMul
from qglow.graph.ops.movement import Expand
from qglow.graph.ops.selection import Where
from qglow.graph.ops.shape import Reshape, Transpose
from qglow.graph.rewriting import operand, producer_of
from qglow.instructions.ops.attention import Attention
from qglow.instructions.program import Buffer
from qglow.lowering.attention_steps import Live, StepsWalk, walk_back
from qglow.lowering.context import Lowering, natural


@dataclass(frozen=True, eq=False)
class FoundAttention:
    """Nodes that become one instruction (see `joins.Join`), of which `last` gives the result.

    scores: shape of the scores, [..., M, T]. keys: [..., T, D] if `rows_of_keys`, else [..., D, T]. addend,
    condition, live: operands of `operation`, where it has them.
    """

    operation: Attention
    scores: Shape
    queries: Value
    keys: Value
    rows_of_keys: bool
    values: Value
    addend: Value | None
    condition: Value | None
    live: Value | None
    inner: tuple[Node, ...]
    last: Node

    @property
    def place(self) -> Node:
        """The node whose place the instruction takes."""
        return self.last

    @property
    def nodes(self) -> tuple[Node, ...]:
        """All nodes that it computes."""
        return (*self.inner, self.last)

    def lower(self, lowering: Lowering) -> None:
        """Lower to one instruction; operands and result are seen in the shape of the scores."""
        leading, (rows, count) = self.scores[:-2], self.scores[-2:]
        queries = _seen(lowering, self.queries, (*leading, rows, self.queries.type.shape[-1]))
        rank = len(self.keys.type.shape)
        order = natural(self.keys.type.shape)
        keys = lowering.read(self.keys, order if self.rows_of_keys else (*order[:-2], rank - 1, rank - 2))
        values = lowering.read(self.values, natural(self.values.type.shape))
        dest = lowering.write(self.last.output)
        shape = (*leading, rows, self.values.type.shape[-1])
        if dest.type.shape != shape:
            dest = lowering.view(f"{dest.name}.heads", dest, dest.type.with_shape(shape))
        masks = [_spread(lowering, value, len(self.scores)) for value in (self.addend, self.condition)]
        live = None if self.live is None else _seen(lowering, self.live, (count,))
        lowering.emit(self.operation, dest, queries, keys, values, *masks, live)


def find_attention(graph: Graph, live: Live) -> list[FoundAttention]:
    """The blocks of a graph; `live` as for `lower`."""
    found = (_block(graph, node, live) for node in graph.nodes if node.operator == MatMul())
    return [block for block in found if block is not None]


def _seen(lowering: Lowering, value: Value, shape: Shape) -> Buffer:
    """A value in natural order in another shape."""
    source = lowering.read(value, natural(value.type.shape))
    if source.type.shape == shape:
        return source
    return lowering.view(f"{value.name}.for.attention", source, source.type.with_shape(shape))


def _spread(lowering: Lowering, value: Value | None, rank: int) -> Buffer | None:
    """A mask with as many axes as the scores."""
    if value is None:
        return None
    return _seen(lowering, value, (*(1,) * (rank - len(value.type.shape)), *value.type.shape))


def _block(graph: Graph, last: Node, live: Live) -> FoundAttention | None:
    """The block that ends in a product, or None."""
    found = walk_back(graph, last, live)
    if found is None:
        return None
    walk, scores, product = found
    return _finished(walk, scores, product, last)


def _finished(walk: StepsWalk, scores: Shape, product: Node, last: Node) -> FoundAttention | None:
    """The block with keys and values as they are before heads repeat them, if all shapes fit."""
    queries, keys, values = operand(product, 0), operand(product, 1), operand(last, 1)
    multiplied = queries.type.element, keys.type.element
    known = multiplied in ((ElementType.FLOAT, ElementType.FLOAT), (ElementType.INT8, ElementType.INT8))
    if not known or not values.type.is_float:
        return None
    base_values = _unrepeated(_unmasked(walk, values))
    base_keys, rows_of_keys = _transposed_keys(keys)
    base_keys = _unrepeated(base_keys) if rows_of_keys else base_keys
    if base_keys.type.shape[:-2] != base_values.type.shape[:-2]:
        base_keys, rows_of_keys, base_values = keys, False, _unmasked(walk, values)
    stacks, leading = base_values.type.shape[:-2], scores[:-2]
    if len(stacks) != len(leading) or stacks[:-1] != leading[:-1] or 0 in (*scores, *stacks):
        return None
    if leading[-1] % stacks[-1] or base_keys.type.shape[:-2] != stacks:
        return None
    own = last.output.type.size, queries.type.size
    sizes = [int(np.prod(scores[:-1])) * n for n in (values.type.shape[-1], queries.type.shape[-1])]
    if list(own) != sizes or base_keys.type.size == 0 or base_values.type.size == 0:
        return None
    operation = replace(walk.steps, shared=leading[-1] // stacks[-1])
    masks = walk.addend, walk.condition, walk.live
    inner = tuple(reversed(walk.inner))
    return FoundAttention(
        operation, scores, queries, base_keys, rows_of_keys, base_values, *masks, inner, last
    )


def _transposed_keys(keys: Value) -> tuple[Value, bool]:
    """Keys [..., T, D] whose transposition is read, and True; or what is read, and False."""
    node = producer_of(keys, Transpose)
    if node is None:
        return keys, False
    rank = len(keys.type.shape)
    swapped = (*range(rank - 2), rank - 1, rank - 2)
    return (operand(node, 0), True) if node.operator == Transpose(perm=swapped) else (keys, False)


def _unrepeated(value: Value) -> Value:
    """Value that heads repeat to share it, [..., H, T, D] of [..., H * times, T, D]; else the value."""
    merged = producer_of(value, Reshape)
    repeated = None if merged is None else producer_of(operand(merged, 0), Expand)
    if repeated is None:
        return value
    apart = operand(repeated, 0)
    single, shape = apart.type.shape, value.type.shape
    wide = repeated.output.type.shape
    rank = len(shape)
    fits = len(single) == len(wide) == rank + 1 and single[-3] == 1
    fits = fits and single[:-3] == wide[:-3] and single[-2:] == wide[-2:] == shape[-2:]
    if not fits or shape[:-3] != wide[: rank - 3] or shape[-3] != wide[-4] * wide[-3]:
        return value
    split = producer_of(apart, Reshape)
    source = None if split is None else operand(split, 0)
    whole = (*single[:-3], *single[-2:])
    return source if source is not None and source.type.shape == whole else value


def _unmasked(walk: StepsWalk, values: Value) -> Value:
    """Values without the choice of live places, where the scores have the same one."""
    node = producer_of(values, Where)
    if walk.live is None or node is None:
        return values
    condition, chosen, other = (operand(node, index) for index in range(3))
    same = walk.live_names.get(condition.name) == walk.live_names[walk.live.name]
    places = condition.type.shape[-2:] == (values.type.shape[-2], 1)
    zeros = other.data is not None and not np.any(other.data)
    alone = condition.type.size == values.type.shape[-2] and chosen.type == values.type
    return chosen if same and places and zeros and alone else values

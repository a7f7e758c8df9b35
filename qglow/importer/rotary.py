"""Import of onnxruntime's rotary embedding: pairs of elements turn by the angles of their positions.

https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md RotaryEmbedding
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qglow.graph.graph import Value
from qglow.graph.ops.elementwise import Add, Mul, Sub
from qglow.graph.ops.movement import Gather, Slice
from qglow.graph.ops.shape import Identity, Reshape
from qglow.importer.attention import heads_apart, side_by_side
from qglow.importer.node import ImportNode, ImportRule
from qglow.importer.shape import joined


@dataclass(frozen=True)
class Turn:
    """Cosines and sines [batch or 1, 1, length, pairs] of tokens, and how many elements of a head turn.

    near: pairs are neighbours, not one of each half.
    """

    cosines: Value
    sines: Value
    elements: int
    near: bool


def import_rotary_embedding(node: ImportNode) -> None:
    """Import com.microsoft's RotaryEmbedding: positions come before the tables."""
    node.ignore("scale")
    node.require(node.integer("is_packed_batching", 0) == 0, "is_packed_batching is 1")
    x, flat, cosines = node.value(0), node.rank() == 3, node.value(2)
    heads, elements = node.integer("num_heads", 0), node.integer("rotary_embedding_dim", 0)
    if flat:
        if not heads:
            # Without a count the tables tell how wide a head is.
            heads = x.type.shape[2] // (2 * cosines.type.shape[-1])
            node.require(elements == 0, "rotary_embedding_dim without num_heads")
        x = heads_apart(node, x, heads, "x")
    batch, _, length, depth = x.type.shape
    positions = _counted(node, node.value(1), length)
    rows = batch if positions is node.value(1) else 1
    cos, sin = (
        angles(node, table, positions, (rows, length), name)
        for name, table in (("cos", cosines), ("sin", node.value(3)))
    )
    turn = Turn(cos, sin, elements or depth, node.integer("interleaved", 0) != 0)
    result = turned_heads(node, x, turn, "x")
    if flat:
        side_by_side(node, result)
    else:
        node.emit(Identity(), result)


def _counted(node: ImportNode, positions: Value, length: int) -> Value:
    """Positions of tokens: one number is that of the first token of every text."""
    if positions.type.shape not in ((1,), ()):
        return positions
    steps = node.part_constant("steps", np.arange(length, dtype=np.int64))
    return node.emit(Add(), positions, steps, part="positions")


def angles(node: ImportNode, table: Value, positions: Value, sizes: tuple[int, int], name: str) -> Value:
    """Rows of a table for positions of these sizes, [batch, 1, length, pairs]."""
    batch, length = sizes
    rows = node.emit(Gather(), table, positions, part=f"{name}_chosen")
    return node.emit(Reshape(shape=(batch, 1, length, table.type.shape[-1])), rows, part=f"{name}_rows")


def turned_heads(node: ImportNode, x: Value, turn: Turn, name: str) -> Value:
    """Heads [batch, heads, length, depth] whose first elements are turned."""
    batch, count, length, depth = x.type.shape
    turned = turn.elements
    node.require(turned % 2 == 0 and 0 < turned <= depth, f"{turned} of {depth} elements turn in pairs")
    first, second = _pairs(node, x, turn, name)

    def times(left: Value, right: Value, part: str) -> Value:
        return node.emit(Mul(), left, right, part=f"{name}_{part}")

    a = node.emit(
        Sub(), times(first, turn.cosines, "ac"), times(second, turn.sines, "bs"), part=f"{name}_turned0"
    )
    b = node.emit(
        Add(), times(first, turn.sines, "as"), times(second, turn.cosines, "bc"), part=f"{name}_turned1"
    )
    if turn.near:
        shape = (batch, count, length, turned // 2, 1)
        lines = [node.emit(Reshape(shape=shape), v, part=f"{name}_column{i}") for i, v in enumerate((a, b))]
        both = joined(node, lines, f"{name}_columns", axis=4)
        result = node.emit(Reshape(shape=(batch, count, length, turned)), both, part=f"{name}_turned")
    else:
        result = joined(node, (a, b), f"{name}_turned", axis=3)
    if turned == depth:
        return result
    whole = (batch, count, length, depth)
    rest = node.emit(Slice((0, 0, 0, turned), whole, (1,) * 4), x, part=f"{name}_rest")
    return joined(node, (result, rest), f"{name}_whole", axis=3)


def _pairs(node: ImportNode, x: Value, turn: Turn, name: str) -> tuple[Value, Value]:
    """Both elements of the pairs that turn: neighbours, or one of each half."""
    shape, places, half = x.type.shape, range(turn.elements), turn.elements // 2
    chosen = (places[0::2], places[1::2]) if turn.near else (places[:half], places[half:])
    first, second = (
        node.emit(
            Slice((0, 0, 0, part.start), (*shape[:3], part[-1] + 1), (1, 1, 1, part.step)),
            x,
            part=f"{name}_half{i}",
        )
        for i, part in enumerate(chosen)
    )
    return first, second


CONTRIBUTED: dict[str, ImportRule] = {"RotaryEmbedding": ImportRule(import_rotary_embedding, newest=1)}
"""Operators of onnxruntime's own domain, com.microsoft."""

"""Import of onnxruntime's fused attention, as products, masks and probabilities.

https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md Attention, MultiHeadAttention
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from qglow.core.types import ElementType
from qglow.graph.graph import Value
from qglow.graph.ops.elementwise import Add
from qglow.graph.ops.linear import MatMul
from qglow.graph.ops.logic import Compare
from qglow.graph.ops.movement import Slice
from qglow.graph.ops.selection import Where
from qglow.graph.ops.shape import Cast, Identity, Reshape
from qglow.importer.attention import (
    AttentionSizes,
    attention_scores,
    heads_apart,
    real,
    side_by_side,
    weighted_values,
)
from qglow.importer.node import ImportNode, ImportRule
from qglow.importer.shape import joined
from qglow.importer.softmax import probabilities

HIDDEN = -10000.0
"""Added to scores of keys that a mask hides, where a node states nothing."""


@dataclass(frozen=True)
class Masks:
    """Places of the inputs of a node that say which keys are hidden: a mask, and what is added to scores."""

    mask: int
    added: int | None = None


def import_multi_head_attention(node: ImportNode) -> None:
    """Import MultiHeadAttention of queries, keys and values that lie apart."""
    for index, what in ((8, "past_sequence_length"), (9, "cache_indirection")):
        node.require(not node.has_input(index), f"{what} is given, for a cache of a fixed size")
    node.require(node.has_input(1) and node.has_input(2), "queries, keys and values lie in one tensor")
    heads = node.integer("num_heads", 0)
    parts = []
    for index, name in enumerate("qkv"):
        value = node.value(index)
        if len(value.type.shape) == 4:
            parts.append(value)
            continue
        node.require(len(value.type.shape) == 3, f"input {index} is {value.type}; 3 or 4 axes are supported")
        if node.has_input(3):
            value = node.emit(Add(), value, _bias_part(node, index), part=f"{name}_biased")
        parts.append(heads_apart(node, value, heads, name))
    _attend(node, parts, (node.optional(6), node.optional(7)), Masks(4, 5), present=(1, 2))


def _bias_part(node: ImportNode, index: int) -> Value:
    """The part of the bias [queries + keys + values] for an operand."""
    sizes = [node.kind(place).shape[-1] for place in range(3)]
    if node.rank(1) == 4:
        sizes = [node.kind(0).shape[-1]] * 3
    start = sum(sizes[:index])
    return node.emit(Slice((start,), (start + sizes[index],), (1,)), node.value(3), part=f"bias{index}")


def import_attention(node: ImportNode) -> None:
    """Import com.microsoft's Attention: projections of x in one product, then attention over heads."""
    node.require(not node.has_input(6), "past_sequence_length is given, for a cache of a fixed size")
    width = node.kind(1).shape[-1]
    sizes = node.integers("qkv_hidden_sizes", ()) or (width // 3,) * 3
    node.require(
        len(sizes) == 3 and sum(sizes) == width, f"qkv_hidden_sizes {sizes} are not {width} together"
    )
    whole = node.emit(MatMul(), node.value(0), node.value(1), part="projected")
    if node.has_input(2):
        whole = node.emit(Add(), whole, node.value(2), part="projected_biased")
    attend_projected(node, whole, sizes, node.optional(4), Masks(3, 5))


def attend_projected(
    node: ImportNode, whole: Value, sizes: Sequence[int], past: Value | None, masks: Masks
) -> None:
    """Emit attention over heads of queries, keys and values, which are columns of one value.

    past: keys and values before these, one tensor [2, batch, heads, past, depth].
    """
    for name in ("do_rotary", "past_present_share_buffer"):
        node.require(node.integer(name, 0) == 0, f"{name} is not 0")
    node.ignore("rotary_embedding_dim")
    heads = node.integer("num_heads", 0)
    batch, length, _ = whole.type.shape
    parts = []
    for index, name in enumerate("qkv"):
        start = sum(sizes[:index])
        bounds = (0, 0, start), (batch, length, start + sizes[index]), (1, 1, 1)
        parts.append(heads_apart(node, node.emit(Slice(*bounds), whole, part=name), heads, name))
    before = (None, None) if past is None else (_half(node, past, 0), _half(node, past, 1))
    _attend(node, parts, before, masks, present=None)


def _half(node: ImportNode, both: Value, place: int) -> Value:
    shape = both.type.shape
    starts, ends = (place, *(0,) * (len(shape) - 1)), (place + 1, *shape[1:])
    one = node.emit(Slice(starts, ends, (1,) * len(shape)), both, part=f"past{place}_apart")
    return node.emit(Reshape(shape=shape[1:]), one, part=f"past{place}")


def _attend(
    node: ImportNode,
    parts: list[Value],
    past: tuple[Value | None, Value | None],
    masks: Masks,
    present: tuple[int, int] | None,
) -> None:
    """Emit attention of queries, keys and values by heads; present: outputs of all keys and values.

    Without places of their own keys and values are the second output together.
    """
    q, *own = parts
    kept = []
    for index, (value, before) in enumerate(zip(own, past, strict=True)):
        whole = value if before is None else joined(node, (before, value), f"all{index}", axis=2)
        kept.append(whole)
        if present is not None and node.is_used(present[index]):
            node.emit(Identity(), whole, output=present[index])
    if present is None and node.is_used(1):
        lines = [node.emit(Reshape(shape=(1, *v.type.shape)), v, part=f"line{i}") for i, v in enumerate(kept)]
        node.emit(Identity(), joined(node, lines, "both", axis=0), output=1)
    k, v = kept
    (batch, heads, queries, depth), keys = q.type.shape, k.type.shape[2]
    extents = AttentionSizes(batch, heads, 1, queries, keys)
    scale = node.number("scale", 0.0) or 1 / math.sqrt(depth)
    scores = attention_scores(node, q, k, scale, extents)
    for number, term in enumerate(_hidden(node, extents, masks)):
        scores = node.emit(Add(), scores, term, part=f"masked{number}")
    shares = probabilities(node, scores, "probabilities")
    result = weighted_values(node, shares, v, extents)
    side_by_side(node, result)


def _hidden(node: ImportNode, extents: AttentionSizes, masks: Masks) -> list[Value]:
    """Terms of scores [batch, heads, queries, keys] that hide keys."""
    terms: list[Value] = []
    low = node.number("mask_filter_value", HIDDEN)
    if node.has_input(masks.mask):
        terms.append(_mask_term(node, node.value(masks.mask), extents, low))
    if node.integer("unidirectional", 0):
        before = extents.keys - extents.queries
        seen = np.tril(np.ones((extents.queries, extents.keys), np.bool_), before)
        least = np.finfo(np.float32).min
        terms.append(node.part_constant("causal", np.where(seen, np.float32(0), least)))
    if masks.added is not None and node.has_input(masks.added):
        terms.append(node.value(masks.added))
    return terms


def _mask_term(node: ImportNode, mask: Value, extents: AttentionSizes, low: float) -> Value:
    """Return 0 for keys that a mask leaves, `low` for others.

    The mask has a number for each key, [batch, keys] or [batch, queries, keys], or counts of keys, [batch].
    """
    shape, batch, keys = mask.type.shape, extents.batch, extents.keys
    known = {(batch,), (batch, keys), (batch, extents.queries, keys)}
    node.require(shape in known, f"its mask is {mask.type}; [batch], [batch, keys] and 3 axes are supported")
    numbers = node.emit(Cast(to=ElementType.FLOAT), mask, part="mask_numbers")
    rows = extents.queries if len(shape) == 3 else 1
    wide = node.emit(
        Reshape(shape=(batch, 1, rows, 1 if len(shape) == 1 else keys)), numbers, part="mask_wide"
    )
    if len(shape) == 1:
        places = node.part_constant("places", np.arange(keys, dtype=np.float32))
        seen = node.emit(Compare(relation="less"), places, wide, part="seen")
    else:
        seen = node.emit(Compare(relation="greater"), wide, real(node, "none", 0.0), part="seen")
    return node.emit(Where(), seen, real(node, "shown", 0.0), real(node, "hidden", low), part="mask_term")


CONTRIBUTED: dict[str, ImportRule] = {
    "Attention": ImportRule(import_attention, newest=1),
    "MultiHeadAttention": ImportRule(import_multi_head_attention, newest=1),
}
"""Operators of onnxruntime's own domain, com.microsoft."""

"""Import of attention, as its products, masks and probabilities.

https://onnx.ai/onnx/operators/onnx__Attention.html
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from qglow.core.memory import require_more_memory
from qglow.core.types import Array, ElementType
from qglow.graph.graph import Value
from qglow.graph.ops.elementwise import Add, Mul, Sub
from qglow.graph.ops.functions import Tanh
from qglow.graph.ops.linear import MatMul
from qglow.graph.ops.logic import Compare
from qglow.graph.ops.reduce import ReduceMax
from qglow.graph.ops.selection import Where
from qglow.graph.ops.shape import Cast, Identity, Reshape, Transpose
from qglow.importer.node import ImportNode, ImportRule
from qglow.importer.shape import joined
from qglow.importer.softmax import probabilities

HEADS_FIRST = (0, 2, 1, 3)
RAW, CAPPED, BIASED, PROBABLE = range(4)
"""What the fourth output holds, by qk_matmul_output_mode."""


@dataclass(frozen=True)
class AttentionSizes:
    """Sizes of queries [batch, groups * shared, queries, depth], keys and values [batch, groups, keys].

    shared: heads of queries that read one head of keys.
    """

    batch: int
    groups: int
    shared: int
    queries: int
    keys: int


def import_attention(node: ImportNode) -> None:
    """Import Attention: softmax(Q K^T * scale + masks) V over heads.

    Where heads share keys, their queries are rows of one product. A query that may see no key gives zeros.
    """
    node.ignore("softmax_precision")
    flat = node.rank() == 3
    q, k, v = (_heads(node, index, "q_num_heads" if index == 0 else "kv_num_heads") for index in range(3))
    k, v = _present(node, k, 1), _present(node, v, 2)
    (batch, heads, queries, depth), (_, groups, keys, _) = q.type.shape, k.type.shape
    node.require(groups > 0 and heads % groups == 0, f"{heads} heads of queries for {groups} of keys")
    extents = AttentionSizes(batch, groups, heads // groups, queries, keys)
    mode = node.integer("qk_matmul_output_mode", RAW)
    node.require(RAW <= mode <= PROBABLE, f"qk_matmul_output_mode {mode}")
    scale = node.number("scale", 0.0) or 1 / math.sqrt(depth)
    scores = attention_scores(node, q, k, scale, extents)
    steps = [scores]
    cap = node.number("softcap", 0.0)
    if cap:
        scores = capped(node, scores, cap)
    steps.append(scores)
    bias = _bias(node, extents)
    if bias is not None:
        scores = node.emit(Add(), scores, bias, part="biased")
    steps.append(scores)
    shares = _guarded(node, probabilities(node, scores, "probabilities"), bias)
    steps.append(shares)
    if node.is_used(3):
        node.emit(Identity(), steps[mode], output=3)
    result = weighted_values(node, shares, v, extents)
    if flat:
        side_by_side(node, result)
    else:
        node.emit(Identity(), result)


def real(node: ImportNode, part: str, value: float) -> Value:
    """A constant number, as a part of a node."""
    return node.part_constant(part, np.array(value, np.float32))


def _heads(node: ImportNode, index: int, attribute: str) -> Value:
    """An operand [batch, heads, length, depth]; heads of three axes are told apart."""
    value, count = node.value(index), node.integer(attribute, 0)
    node.require(value.type.is_float, f"input {index} is {value.type}; only float is supported")
    if node.rank() == 4:
        node.require(node.rank(index) == 4, f"input {index} is {value.type}; it must have four dimensions")
        return value
    fits = node.rank() == 3 and node.rank(index) == 3 and count > 0 and value.type.shape[2] % count == 0
    node.require(fits, f"input {index} is {value.type}, which {count} heads do not divide")
    batch, length, width = value.type.shape
    apart = node.emit(Reshape(shape=(batch, length, count, width // count)), value, part=f"apart{index}")
    return node.emit(Transpose(perm=HEADS_FIRST), apart, part=f"heads{index}")


def _present(node: ImportNode, value: Value, index: int) -> Value:
    """Keys or values after those that are kept from before; they are an output, too."""
    past = node.optional(index + 3)
    if past is not None:
        value = joined(node, (past, value), f"all{index}", axis=2)
    if node.is_used(index):
        node.emit(Identity(), value, output=index)
    return value


def attention_scores(node: ImportNode, q: Value, k: Value, scale: float, extents: AttentionSizes) -> Value:
    """[batch, heads, queries, keys]."""
    q = node.emit(Mul(), q, real(node, "scale", scale), part="scaled")
    shared, depth = extents.shared * extents.queries, q.type.shape[3]
    if extents.shared > 1:
        q = node.emit(Reshape(shape=(extents.batch, extents.groups, shared, depth)), q, part="together")
    keys = node.emit(Transpose(perm=(0, 1, 3, 2)), k, part="keys")
    scores = node.emit(MatMul(), q, keys, part="scores")
    if extents.shared == 1:
        return scores
    shape = (extents.batch, extents.groups * extents.shared, extents.queries, extents.keys)
    return node.emit(Reshape(shape=shape), scores, part="scores_apart")


def capped(node: ImportNode, scores: Value, cap: float) -> Value:
    """Scores bent towards a bound: cap * tanh(scores / cap)."""
    small = node.emit(Mul(), scores, real(node, "cap_inverse", 1 / cap), part="small")
    return node.emit(Mul(), node.emit(Tanh(), small, part="bent"), real(node, "cap", cap), part="capped")


def weighted_values(node: ImportNode, shares: Value, v: Value, extents: AttentionSizes) -> Value:
    """[batch, heads, queries, depth of values]."""
    if extents.shared == 1:
        return node.emit(MatMul(), shares, v, part="heads")
    rows = (extents.batch, extents.groups, extents.shared * extents.queries, extents.keys)
    shares = node.emit(Reshape(shape=rows), shares, part="shares_together")
    result = node.emit(MatMul(), shares, v, part="heads_together")
    shape = (extents.batch, extents.groups * extents.shared, extents.queries, v.type.shape[3])
    return node.emit(Reshape(shape=shape), result, part="heads")


def heads_apart(node: ImportNode, value: Value, heads: int, name: str) -> Value:
    """[batch, heads, length, depth] of [batch, length, heads * depth]."""
    batch, length, width = value.type.shape
    node.require(heads > 0 and width % heads == 0, f"{heads} heads do not divide {width}")
    apart = node.emit(Reshape(shape=(batch, length, heads, width // heads)), value, part=f"{name}_apart")
    return node.emit(Transpose(perm=HEADS_FIRST), apart, part=f"{name}_heads")


def side_by_side(node: ImportNode, result: Value) -> None:
    """Give heads [batch, heads, queries, depth] as the node's result [batch, queries, heads * depth]."""
    batch, heads, queries, depth = result.type.shape
    turned = node.emit(Transpose(perm=HEADS_FIRST), result, part="side_by_side")
    node.emit(Reshape(shape=(batch, queries, heads * depth)), turned)


# Masks


def _bias(node: ImportNode, extents: AttentionSizes) -> Value | None:
    """Sum what is added to scores: 0 or a number of the mask, and -inf for keys that a query may not see."""
    terms = [*_places_seen(node, extents), *_lengths_seen(node, extents)]
    parts = [_as_bias(node, seen, f"seen{i}") for i, seen in enumerate(terms)]
    mask = node.optional(3)
    if mask is not None:
        parts.append(_padded(node, _as_bias(node, mask, "mask"), extents.keys))
    if not parts:
        return None
    bias = parts[0]
    for i, part in enumerate(parts[1:]):
        bias = node.emit(Add(), bias, part, part=f"bias{i}")
    return bias


def _as_bias(node: ImportNode, mask: Value, part: str) -> Value:
    if mask.type.element is not ElementType.BOOL:
        node.require(mask.type.is_float, f"mask is {mask.type}; bool and float are supported")
        return mask
    zero, hidden = real(node, f"{part}_zero", 0.0), real(node, f"{part}_hidden", -math.inf)
    return node.emit(Where(), mask, zero, hidden, part=f"{part}_bias")


def _padded(node: ImportNode, mask: Value, keys: int) -> Value:
    """A mask that hides the keys for which it has no entry."""
    shape = mask.type.shape
    missing = keys - shape[-1] if shape else 0
    if missing <= 0 or shape[-1] == 1:
        return mask
    hidden = node.part_constant("beyond", np.full((*shape[:-1], missing), -np.inf, np.float32))
    return joined(node, (mask, hidden), "mask_padded", axis=len(shape) - 1)


def _distances(node: ImportNode, extents: AttentionSizes) -> Array:
    """The place of every key less that of every query, as reals like all places."""
    require_more_memory(8 * extents.queries * extents.keys, f"node '{node.name}'")
    return np.subtract.outer(np.arange(extents.queries), np.arange(extents.keys)).astype(np.float32) * -1


def _places_seen(node: ImportNode, extents: AttentionSizes) -> list[Value]:
    """Whether the places of a key and a query allow that it is seen: in front of it, and in the window."""
    left, right = node.integer("left_window_size", -1), node.integer("right_window_size", -1)
    if node.integer("is_causal", 0):
        right = 0
    limits = [("greater-or-equal", -left)] * (left >= 0) + [("less-or-equal", right)] * (right >= 0)
    if not limits:
        return []
    distances = node.part_constant("distances", _distances(node, extents))
    if node.has_input(6) and not node.has_input(4):
        offset = node.emit(Sub(), _lengths(node), real(node, "queries", extents.queries), part="offset")
    else:
        offset = real(node, "offset", node.kind(4).shape[2] if node.has_input(4) else 0)
    seen = []
    for relation, limit in limits:
        bound = node.emit(Add(), offset, real(node, "limit", limit), part="bound")
        seen.append(node.emit(Compare(relation=relation), distances, bound, part="seen"))
    return seen


def _lengths_seen(node: ImportNode, extents: AttentionSizes) -> list[Value]:
    """Whether a key lies within its sample."""
    if not node.has_input(6):
        return []
    places = node.part_constant("places", np.arange(extents.keys, dtype=np.float32))
    return [node.emit(Compare(relation="less"), places, _lengths(node), part="within")]


def _lengths(node: ImportNode) -> Value:
    """Counts of keys, [batch, 1, 1, 1]."""
    lengths = node.emit(Cast(to=ElementType.FLOAT), node.value(6), part="counts")
    return node.emit(Reshape(shape=(lengths.type.size, 1, 1, 1)), lengths, part="lengths")


def _guarded(node: ImportNode, shares: Value, bias: Value | None) -> Value:
    """Zeros in place of the NaN of queries that see no key."""
    if bias is None or (bias.data is not None and bool((bias.data.max(-1) > -np.inf).all())):
        return shares
    most = node.emit(ReduceMax((len(bias.type.shape) - 1,), True), bias, part="most")
    hidden = real(node, "none", -math.inf)
    sees = node.emit(Compare(relation="greater"), most, hidden, part="sees")
    return node.emit(Where(), sees, shares, real(node, "zero", 0.0), part="shares")


RULES: dict[str, ImportRule] = {"Attention": ImportRule(import_attention, newest=25)}

"""Import of onnxruntime's attention of decoders, GroupQueryAttention, with its cache of keys and values.

https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md GroupQueryAttention
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from qglow.core.types import ElementType
from qglow.graph.graph import Value
from qglow.graph.ops.elementwise import Add
from qglow.graph.ops.logic import And, Compare
from qglow.graph.ops.movement import Expand, Slice
from qglow.graph.ops.selection import Min, Where
from qglow.graph.ops.shape import Cast, Identity, Reshape
from qglow.importer.attention import (
    AttentionSizes,
    attention_scores,
    capped,
    heads_apart,
    real,
    side_by_side,
    weighted_values,
)
from qglow.importer.node import ImportNode, ImportRule
from qglow.importer.rotary import Turn, angles, turned_heads
from qglow.importer.shape import joined
from qglow.importer.softmax import probabilities

KEYS, VALUES, LENGTHS, TOTAL, COSINES, SINES, POSITIONS, BIAS, SINKS = 3, 4, 5, 6, 7, 8, 9, 10, 11
"""Places of inputs behind queries, keys and values."""
HIDDEN = float(np.finfo(np.float32).min)
_FOREIGN = {
    12: "keys that are stored as integers",
    13: "values that are stored as integers",
    14: "a norm of queries",
    15: "a norm of keys",
    16: "query_seqlens",
}
"""Inputs that are not supported; the last one pads pieces of a prompt."""


@dataclass(frozen=True)
class _Cache:
    """Sizes of a cache: samples, new tokens, places `past` that are given, and `total` tokens after the call.

    Samples have numbers of tokens of their own, of which `total` is the largest.
    """

    samples: int
    new: int
    past: int
    total: int

    @property
    def begins(self) -> bool:
        """Whether all tokens are new, whatever the cache holds."""
        return self.total == self.new

    @property
    def apart(self) -> bool:
        """Whether samples write their token at places of their own."""
        return self.samples > 1 and not self.begins


def import_group_query_attention(node: ImportNode) -> None:
    """Import GroupQueryAttention: new keys and values go into the cache, then each query sees what it may.

    Places beyond the tokens of a sample, which the operator leaves open, hold what the cache had there. A
    cache of a sliding window (`sliding_window_cache`) that has held all tokens so far grows like others,
    where onnxruntime keeps its size and drops the oldest ones: no query sees those again.
    """
    _require_plain(node)
    heads, groups = node.integer("num_heads", 0), node.integer("kv_num_heads", 0)
    node.require(groups > 0 and heads % groups == 0, f"{heads} heads of queries for {groups} of keys")
    q, k, v = _operands(node, heads, groups)
    cache = _cache(node, q)
    places = _places(node, cache)
    if node.integer("do_rotary", 0):
        q, k = _rotated(node, (q, k), places, cache)
    else:
        node.ignore("rotary_interleaved")
    seen = []
    for index, new in ((KEYS, k), (VALUES, v)):
        whole, present = _cached(node, index, new, places, cache)
        output = index - KEYS + 1
        if node.is_used(output):
            node.emit(Identity(), present, output=output)
        seen.append(_repeated(node, whole, heads // groups, f"shared{output}"))
    _attend(node, q, (seen[0], seen[1]), _hidden(node, places, cache), cache)


def _require_plain(node: ImportNode) -> None:
    """Refuse what the node states beyond floats in a cache that holds all tokens."""
    for index, what in _FOREIGN.items():
        node.require(not node.has_input(index), f"{what} (input {index})")
    node.require(node.integer("qk_output", 0) == 0 and not node.is_used(3), "its output 3 is used")
    for name in ("k_quant_type", "v_quant_type"):
        node.require(node.string(name, "NONE") == "NONE", f"{name} is not NONE")
    node.ignore("qk_norm_epsilon", "q_norm_epsilon", "k_norm_epsilon", "kv_cache_bit_width")


def _operands(node: ImportNode, heads: int, groups: int) -> tuple[Value, Value, Value]:
    """Queries, keys and values [samples, heads, new, depth]; they may lie side by side in one tensor."""
    x = node.value(0)
    node.require(len(x.type.shape) == 3, f"queries are {x.type}; 3 axes are supported")
    samples, new, width = x.type.shape
    counts, parts = (heads, groups, groups), [x]
    if node.has_input(1):
        parts += [node.value(1), node.value(2)]
    else:
        every = sum(counts)
        node.require(every > 0 and width % every == 0, f"{every} heads do not divide {width}")
        ends = np.cumsum(counts) * (width // every)
        parts = [
            node.emit(
                Slice((0, 0, int(end) - count * (width // every)), (samples, new, int(end)), (1,) * 3),
                x,
                part=name,
            )
            for name, count, end in zip("qkv", counts, ends, strict=True)
        ]
    q, k, v = (
        heads_apart(node, part, count, name) for part, count, name in zip(parts, counts, "qkv", strict=True)
    )
    fit = k.type == v.type and k.type.shape[::2] == q.type.shape[::2] and k.type.shape[3] == q.type.shape[3]
    node.require(
        fit, f"queries are {q.type}, keys {k.type}, values {v.type}; one length and depth is supported"
    )
    return q, k, v


def _cache(node: ImportNode, q: Value) -> _Cache:
    """Sizes of the cache. The number of all tokens has to be a constant: it decides the shape of results."""
    samples, _, new, _ = q.type.shape
    node.require(node.has_input(KEYS) == node.has_input(VALUES), "keys or values alone are cached")
    past = node.kind(KEYS).shape[2] if node.has_input(KEYS) else 0
    total = int(node.scalar(TOTAL, "total_sequence_length", 0))
    cache = _Cache(samples, new, past, total)
    node.require(0 < new <= total, f"{new} new tokens of {total}")
    grows, fits = total == past + new, total in range(new, past + 1)
    # One that forgets what its window has passed holds the same as others while all tokens have places.
    forgets = node.integer("sliding_window_cache", 0) != 0
    known = grows or fits or (cache.begins and not forgets)
    node.require(known, f"{total} tokens, {new} of them new, with {past} places in the cache")
    node.require(
        not cache.apart or new == 1, f"{new} new tokens of {samples} samples that have others before"
    )
    return cache


def _places(node: ImportNode, cache: _Cache) -> Value:
    """Places of new tokens in their samples, [samples or 1, new].

    The last place of a sample bounds them: padding behind its tokens sees what the last one sees.
    """
    lengths = node.emit(Cast(to=ElementType.INT64), node.value(LENGTHS), part="lengths")
    node.require(lengths.type.size == cache.samples, f"seqlens_k has {lengths.type.size} elements")
    last = node.emit(Reshape(shape=(cache.samples, 1)), lengths, part="last")
    if cache.apart:
        return last
    steps = np.arange(cache.total - cache.new, cache.total, dtype=np.int64)
    return node.emit(Min(), node.part_constant("steps", steps), last, part="places")


# Positions


def _rotated(
    node: ImportNode, heads: tuple[Value, Value], places: Value, cache: _Cache
) -> tuple[Value, Value]:
    """Queries and keys, turned by the angles of their positions."""
    for index in (COSINES, SINES):
        count = node.kind(index).shape[0]
        node.require(
            count >= cache.total,
            f"{cache.total} tokens, but '{node.value(index).name}' has {count} positions",
        )
    positions = _positions(node, places, cache)
    rows = positions.type.shape[0], cache.new
    cos, sin = (
        angles(node, node.value(index), positions, rows, name)
        for index, name in ((COSINES, "cos"), (SINES, "sin"))
    )
    turn = Turn(cos, sin, 2 * cos.type.shape[3], node.integer("rotary_interleaved", 0) != 0)
    q, k = (turned_heads(node, x, turn, name) for x, name in zip(heads, "qk", strict=True))
    return q, k


def _positions(node: ImportNode, places: Value, cache: _Cache) -> Value:
    """Positions [samples or 1, new]. Where all tokens are new, the first one's counts for all samples."""
    if not node.has_input(POSITIONS):
        return places
    stated = node.value(POSITIONS)
    shape = (cache.samples, cache.new)
    node.require(stated.type.shape == shape, f"position_ids are {stated.type}, not {list(shape)}")
    if not cache.begins:
        return stated
    first = node.emit(Slice((0, 0), (1, 1), (1, 1)), stated, part="first")
    steps = node.part_constant("turns", np.arange(cache.new, dtype=np.int64)[None])
    return node.emit(Add(), first, steps, part="positions")


# Keys and values


def _cached(node: ImportNode, index: int, new: Value, places: Value, cache: _Cache) -> tuple[Value, Value]:
    """Keys or values [samples, groups, total, depth] with the new ones, and the cache after the call."""
    if not node.has_input(index):
        return new, new
    past = node.value(index)
    samples, groups, _, depth = new.type.shape
    wanted = (samples, groups, cache.past, depth)
    node.require(past.type.shape == wanted, f"input {index} is {past.type}, not {list(wanted)}")

    def part(begin: int, end: int) -> list[Value]:
        """Places of the past."""
        if (begin, end) == (0, cache.past):
            return [past] if cache.past else []
        bounds = (0, 0, begin, 0), (samples, groups, end, depth), (1,) * 4
        return [node.emit(Slice(*bounds), past, part=f"past{index}_{begin}")] if begin < end else []

    def line(parts: list[Value], name: str) -> Value:
        return parts[0] if len(parts) == 1 else joined(node, parts, f"{name}{index}", axis=2)

    if not cache.apart:
        whole = line([*part(0, cache.total - cache.new), new], "whole")
        return whole, line([whole, *part(cache.total, cache.past)], "present")
    present = line([past] if cache.past >= cache.total else [past, new], "places")
    size = present.type.shape[2]
    known = node.part_constant("known", np.arange(size, dtype=np.int64))
    at = node.emit(Compare(relation="equal"), known, places, part=f"at{index}")
    is_new = node.emit(Reshape(shape=(samples, 1, size, 1)), at, part=f"is_new{index}")
    present = node.emit(Where(), is_new, new, present, part=f"present{index}")
    if size == cache.total:
        return present, present
    bounds = (0, 0, 0, 0), (samples, groups, cache.total, depth), (1,) * 4
    return node.emit(Slice(*bounds), present, part=f"whole{index}"), present


def _repeated(node: ImportNode, x: Value, times: int, name: str) -> Value:
    """Keys or values for each of the heads that share them."""
    if times == 1:
        return x
    samples, groups, total, depth = x.type.shape
    apart = node.emit(Reshape(shape=(samples, groups, 1, total, depth)), x, part=f"{name}_apart")
    many = node.emit(Expand(shape=(samples, groups, times, total, depth)), apart, part=f"{name}_many")
    return node.emit(Reshape(shape=(samples, groups * times, total, depth)), many, part=name)


# Attention


def _attend(
    node: ImportNode, q: Value, cached: tuple[Value, Value], hidden: Value | None, cache: _Cache
) -> None:
    """Emit the result of queries over keys and values [samples, heads, total, depth]."""
    samples, heads, new, depth = q.type.shape
    extents = AttentionSizes(samples, heads, 1, new, cache.total)
    scores = attention_scores(node, q, cached[0], node.number("scale", 0.0) or 1 / math.sqrt(depth), extents)
    cap = node.number("softcap", 0.0)
    if cap:
        scores = capped(node, scores, cap)
    if node.has_input(BIAS):
        scores = node.emit(Add(), scores, node.value(BIAS), part="biased")
    if hidden is not None:
        scores = node.emit(Add(), scores, hidden, part="masked")
    shares = _shares(node, scores)
    side_by_side(node, weighted_values(node, shares, cached[1], extents))


def _shares(node: ImportNode, scores: Value) -> Value:
    """Shares of the keys, of which a sink of a head takes a part: one score more, which weighs nothing."""
    smooth = node.integer("smooth_softmax", -1) == 1
    if not smooth and not node.has_input(SINKS):
        return probabilities(node, scores, "probabilities")
    samples, heads, new, total = scores.type.shape
    sinks = node.part_constant("sink", np.zeros((1, heads, 1, 1), np.float32))
    if node.has_input(SINKS):
        sinks = node.emit(Reshape(shape=(1, heads, 1, 1)), node.value(SINKS), part="sinks")
    column = node.emit(Expand(shape=(samples, heads, new, 1)), sinks, part="column")
    # In front, so that how many places follow, live ones or not, does not change the order of any sum.
    shares = probabilities(node, joined(node, [column, scores], "with_sinks", axis=3), "probabilities")
    return node.emit(Slice((0, 0, 0, 1), (samples, heads, new, total + 1), (1,) * 4), shares, part="shares")


def _hidden(node: ImportNode, places: Value, cache: _Cache) -> Value | None:
    """0 for keys that a query may see, else the least float, [samples or 1, 1, new or 1, total].

    Those are the keys up to the query's own place, or all of its sample, and as many as a window holds.
    """
    causal, window = node.integer("causal", 1), node.integer("local_window_size", -1)
    node.require(causal != 0 or window < 0, f"local_window_size {window} of attention in both directions")
    if not causal and not cache.apart and cache.samples == 1:
        return None
    if causal:
        bound = node.emit(Reshape(shape=(places.type.shape[0], 1, cache.new, 1)), places, part="bound")
    else:
        lengths = node.emit(Cast(to=ElementType.INT64), node.value(LENGTHS), part="ends")
        bound = node.emit(Reshape(shape=(cache.samples, 1, 1, 1)), lengths, part="bound")
    keys = node.part_constant("keys", np.arange(cache.total, dtype=np.int64))
    seen = node.emit(Compare(relation="less-or-equal"), keys, bound, part="seen")
    if window > 0:
        width = node.part_constant("window", np.array(window, np.int64))
        within = node.emit(Add(), keys, width, part="reach")
        near = node.emit(Compare(relation="greater"), within, bound, part="near")
        seen = node.emit(And(), seen, near, part="seen_near")
    return node.emit(Where(), seen, real(node, "shown", 0.0), real(node, "hidden", HIDDEN), part="mask")


CONTRIBUTED: dict[str, ImportRule] = {
    "GroupQueryAttention": ImportRule(import_group_query_attention, newest=1)
}
"""Operators of onnxruntime's own domain, com.microsoft."""

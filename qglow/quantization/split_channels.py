"""Splitting of channels that reach far beyond the others, so that the others get finer steps.

A channel becomes two of half its size, both read with the weights that it had: x w = x/2 w + x/2 w. The
node that computes the channel computes both halves, by its weights: no node is added. After R. Zhao et al.,
"Improving Neural Network Quantization without Retraining using Outlier Channel Splitting" (ICML 2019,
arXiv 1901.09504), for activations.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from qglow.core.passes import PassLog
from qglow.core.types import Array
from qglow.graph.graph import Graph, Node
from qglow.graph.rewriting import operand
from qglow.graph.traits import Filters
from qglow.numerics.histogram import BIN_COUNT
from qglow.profiling.histogram import ChannelProfile, ValueProfile
from qglow.quantization.corrections import Correction
from qglow.quantization.equalize import Statistics, renewed, scaled_statistics
from qglow.quantization.placement import FloatReasons
from qglow.quantization.scopes import NoScope, Scope, Scopes, producers_of

PASS = "split-channels"
LARGEST_REST = 0.75
"""Largest magnitude after over before a split, at most (geometric mean of the values read): 2.5 dB gain."""
_SIGN, _EXPONENT, _INFINITY = 0x8000, 0x80, 0x7F80
"""Fields of a histogram's bin, the top half of a float32: sign, one step of the exponent, infinity."""


@dataclass(frozen=True)
class Split:
    """Number of copies of each channel, int64[C], powers of two; a copy is the channel over that number."""

    copies: Array

    @property
    def source(self) -> Array:
        """Original channel of each channel after the split, int64[C + n]; the first C keep their places."""
        channels = np.arange(self.copies.size)
        return np.concatenate([channels, np.repeat(channels, self.copies - 1)])

    @property
    def shares(self) -> Array:
        """Factor of each channel after the split relative to its original one, float32[C + n]."""
        return np.asarray(1.0 / self.copies[self.source], np.float32)


def split_channels(
    graph: Graph,
    statistics: Statistics,
    reasons: FloatReasons,
    share: float,
    log: PassLog,
    left_out: Mapping[str, str] | None = None,
) -> list[Correction]:
    """Split up to `share` of the channels of each value, in place, in the graph and in the statistics.

    A value is split if nodes with weights and without groups compute it and read it, directly or through
    activations, pooling and additions, and if that reduces the largest magnitude of what they read by a
    quarter. The function stays the same, but float32 sums have another order. Histograms are estimates
    afterwards, see `_split_counts`. left_out: rules in words that leave nodes out, by name. Returns what was
    done.
    """
    log.pass_name = PASS
    done: set[Node] = set()
    made: list[Correction] = []
    scopes = Scopes(graph)
    for node in list(producers_of(graph)):
        if log.exhausted:
            break
        if node in done:
            continue
        try:
            scope = scopes.of(node)
            done.update(scope.producers)
            _check(scope, reasons, left_out or {})
            split, before, after = _choose(scope, statistics, share)
        except NoScope as refusal:
            log.refused(node.name, str(refusal))
            continue
        _apply(graph, scope, split, statistics)
        count = int(np.count_nonzero(split.copies > 1))
        what = (
            f"{count} of {scope.size} channels of %{node.output.name} split, {split.source.size} in all: "
            f"it reaches to {after:.4g} and not to {before:.4g}"
        )
        log.applied(node.name, what)
        made.append(scope.correction("split_channels"))
    return made


def _check(scope: Scope, reasons: FloatReasons, left_out: Mapping[str, str]) -> None:
    """Raise NoScope where channels cannot be split or are not to be, or where no reader is int8."""
    for node in scope.producers:
        if node.name in left_out:
            raise NoScope(f"{left_out[node.name]} leaves split_channels out")
    for node in (*scope.producers, *scope.consumers):
        filters = node.operator.filters
        if filters is None:
            raise NoScope(f"{node} cannot give a channel twice")
        if filters.groups > 1:
            raise NoScope(f"{node} has groups")
    if scope.clamps:
        value, bound = scope.clamps[0]
        raise NoScope(f"%{value.name} is cut off at {bound:g}, which half a channel would not be")
    if all(node in reasons for node in scope.consumers):
        raise NoScope("what reads it stays float")
    for value, layout in scope.values.items():
        if layout.axis != 1 or not np.array_equal(layout.channels, np.arange(scope.size)):
            raise NoScope(f"%{value.name} has its channels in another order")
        source = value.producer
        if source is not None and source.operator.with_channels(scope.size, source.input_types()) is None:
            raise NoScope(f"{source} is of a fixed number of channels")


def _choose(scope: Scope, statistics: Statistics, share: float) -> tuple[Split, float, float]:
    """Return the split, and the largest magnitude of the first value that is read, before and after it.

    Raises NoScope where channel ranges are not known, or the split is not worth it.
    """
    for value in scope.values:
        if not _is_known(statistics.get(value.name), scope.size):
            raise NoScope(f"no finite channel ranges of %{value.name}")
    read = dict.fromkeys(operand(node) for node in scope.consumers)
    reaches = np.stack([_reach(statistics[value.name]) for value in read])
    largest = np.max(reaches, axis=1)
    if not np.all(largest > 0.0):
        raise NoScope("a value that is read is always 0")
    split = Split(_copies(np.max(reaches / largest[:, None], axis=0), math.ceil(share * scope.size)))
    after = np.max(reaches / split.copies, axis=1)
    rest = float(np.exp(np.mean(np.log(after / largest))))
    if rest > LARGEST_REST:
        raise NoScope(
            f"no channels far beyond the others: %{next(iter(read)).name} would still reach to "
            f"{100.0 * rest:.0f} % of its range"
        )
    return split, float(largest[0]), float(after[0])


def _copies(reach: Array, budget: int) -> Array:
    """Number of copies of each channel: the farthest-reaching one is doubled while the budget lasts."""
    copies = np.ones(reach.size, np.int64)
    while True:
        channel = int(np.argmax(reach / copies))
        if copies[channel] > budget:
            return copies
        budget -= int(copies[channel])
        copies[channel] *= 2


def _is_known(profile: ValueProfile | None, size: int) -> bool:
    channels = None if profile is None else profile.channels
    if channels is None or channels.axis != 1 or channels.low.size != size:
        return False
    return bool(np.all(np.isfinite(channels.low)) and np.all(np.isfinite(channels.high)))


def _reach(profile: ValueProfile) -> Array:
    """float64[C]: the largest magnitude in each channel."""
    assert profile.channels is not None
    return np.maximum(np.abs(profile.channels.low), np.abs(profile.channels.high)).astype(np.float64)


def _apply(graph: Graph, scope: Scope, split: Split, statistics: Statistics) -> None:
    source, shares = split.source, split.shares
    for node in scope.producers:
        _give(graph, node, source, shares)
    for node in scope.consumers:
        _read(graph, node, source)
    changed = [node for node in graph.nodes if node.outputs and node.output in scope.values]
    # Types are those before the split: operators are asked before any result has more channels.
    resized = [node.operator.with_channels(source.size, node.input_types()) for node in changed]
    for node, operator in zip(changed, resized, strict=True):
        assert operator is not None, "_check has asked each of them"
        node.operator = operator
        (node.output.type,) = node.operator.infer(node.input_types())
    for value in scope.values:
        statistics[value.name] = _split_statistics(statistics[value.name], split)


def _give(graph: Graph, node: Node, source: Array, shares: Array) -> None:
    """Change the weights of a node so that it gives the new channels."""
    inputs = list(node.inputs)
    weights = inputs[1]
    assert weights is not None and weights.data is not None
    filters = _filters(node)
    made = np.take(weights.data, source, filters.outputs) * filters.along_outputs(shares, weights.data.ndim)
    inputs[1] = renewed(graph, weights, made, "split")
    bias = inputs[2] if len(inputs) > 2 else None
    if bias is not None and bias.data is not None:
        inputs[2] = renewed(graph, bias, bias.data[source] * shares, "split")
    node.inputs = inputs


def _read(graph: Graph, node: Node, source: Array) -> None:
    """Let a node read the new channels, each with the weights of its original channel."""
    inputs = list(node.inputs)
    weights = inputs[1]
    assert weights is not None and weights.data is not None
    inputs[1] = renewed(graph, weights, np.take(weights.data, source, _filters(node).inputs), "split")
    node.inputs = inputs


def _filters(node: Node) -> Filters:
    """The layout of the weights of a producer or a consumer."""
    filters = node.operator.filters
    assert filters is not None, "_check has refused all others"
    return filters


def _split_statistics(profile: ValueProfile, split: Split) -> ValueProfile:
    channels = profile.channels
    assert channels is not None
    arrays = (channels.low, channels.high, channels.whole, channels.fraction)
    taken = ChannelProfile(channels.axis, *(array[split.source] for array in arrays))
    found = scaled_statistics(replace(profile, channels=taken), split.shares.astype(np.float64))
    found.counts = _split_counts(profile.counts, _reach(profile), split.copies)
    return found


def _split_counts(counts: Array, reach: Array, copies: Array) -> Array:
    """Estimate the histogram after the split, int64[65536].

    Elements beyond all channels that stay whole can only be of split channels, and are divided. Smaller
    elements may be of any channel, and stay. So the range is right, and the bulk nearly.
    """
    whole = float(np.max(reach[copies == 1], initial=0.0))
    bins = np.flatnonzero(counts)
    magnitudes = bins & ~_SIGN
    edges = (magnitudes.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    made = np.zeros(BIN_COUNT, np.int64)
    for index, edge, magnitude in zip(bins.tolist(), edges.tolist(), magnitudes.tolist(), strict=True):
        candidates = copies[(reach >= edge) & (copies > 1)]
        halvings = int(candidates.min()).bit_length() - 1 if candidates.size else 0
        if edge <= whole or magnitude >= _INFINITY or magnitude <= halvings * _EXPONENT:
            halvings = 0
        made[index - halvings * _EXPONENT] += counts[index] << halvings
    return made

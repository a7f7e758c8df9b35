"""Channels that reach far beyond the others are split, so that these get finer steps.

A channel becomes two of half its size, both read with the weights that it had: x w = x/2 w + x/2 w. The
halves are made by whoever makes the channel, in its weights, and cost no operator. After R. Zhao et al.,
"Improving Neural Network Quantization without Retraining using Outlier Channel Splitting" (ICML 2019,
arXiv 1901.09504), for activations.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from qglow.core.passes import PassLog
from qglow.core.types import Array
from qglow.graph.graph import Graph, Node
from qglow.graph.operator import Operator
from qglow.graph.ops.conv import Conv
from qglow.graph.ops.elementwise import PRelu
from qglow.graph.ops.linear import Gemm
from qglow.graph.ops.resize import ResizeNearest
from qglow.graph.ops.shape import ChannelShuffle, Reshape, Slice, Transpose
from qglow.graph.rewriting import operand
from qglow.numerics.histogram import BIN_COUNT
from qglow.profiling.histogram import ChannelProfile, ValueProfile
from qglow.quantization.equalize import Statistics, renewed, scaled_statistics
from qglow.quantization.placement import FloatReasons
from qglow.quantization.scopes import NoScope, Scope, producers_of, scope_from

PASS = "split-channels"
LARGEST_REST = 0.75
"""How much of its reach a value may keep, in the geometric mean of those that are read: 2.5 dB at least."""
_SIGN, _EXPONENT, _INFINITY = 0x8000, 0x80, 0x7F80
"""Of a histogram's bin, the top half of a float32: the sign, one step of the exponent, infinity."""


@dataclass(frozen=True)
class Split:
    """copies: int64[C], powers of two, of each channel; each is the channel divided by their number."""

    copies: Array

    @property
    def source(self) -> Array:
        """int64[C + n]: the channel that each new one is of. The first C stay where they are."""
        channels = np.arange(self.copies.size)
        return np.concatenate([channels, np.repeat(channels, self.copies - 1)])

    @property
    def shares(self) -> Array:
        """float32[C + n]: what part of its channel each new one is."""
        return np.asarray(1.0 / self.copies[self.source], np.float32)


def split_channels(
    graph: Graph, statistics: Statistics, reasons: FloatReasons, share: float, log: PassLog
) -> None:
    """Split up to `share` of the channels of each value, in place, in the graph and in the statistics.

    Values are those that Conv without groups and Gemm give and that such nodes read, through activations,
    pooling and sums, where it lets all that is read reach a quarter less far. In reals the function stays;
    in float32 sums have another order. Histograms are estimates afterwards, see `_split_counts`.
    """
    log.pass_name = PASS
    done: set[Node] = set()
    for node in list(producers_of(graph)):
        if log.exhausted:
            break
        if node in done:
            continue
        try:
            scope = scope_from(graph, node)
            done.update(scope.producers)
            _check(scope, reasons)
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


def _check(scope: Scope, reasons: FloatReasons) -> None:
    """Raise NoScope where channels cannot be split, or where nobody would gain."""
    for node in (*scope.producers, *scope.consumers):
        if not isinstance(node.operator, Conv | Gemm):
            raise NoScope(f"{node} cannot give a channel twice")
        if isinstance(node.operator, Conv) and node.operator.group > 1:
            raise NoScope(f"{node} has groups")
    if scope.clamps:
        value, bound = scope.clamps[0]
        raise NoScope(f"%{value.name} is cut off at {bound:g}, which half a channel would not be")
    if all(node in reasons for node in scope.consumers):
        raise NoScope("what reads it stays float")
    for value, layout in scope.values.items():
        if layout.axis != 1 or not np.array_equal(layout.channels, np.arange(scope.size)):
            raise NoScope(f"%{value.name} has its channels in another order")
        if value.producer is not None and not _is_resizable(value.producer):
            raise NoScope(f"{value.producer} is of a fixed number of channels")


def _is_resizable(node: Node) -> bool:
    if isinstance(node.operator, Reshape):
        return node.operator.shape == operand(node).type.shape[:2]
    return not isinstance(node.operator, PRelu | ChannelShuffle | Slice | Transpose)


def _choose(scope: Scope, statistics: Statistics, share: float) -> tuple[Split, float, float]:
    """The split, and how far the first value that is read reaches before and after.

    Raises NoScope where it is not known or not worth it.
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
    """How often to have each channel: the one that reaches farthest twice as often, as long as that fits."""
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
    for node in graph.nodes:
        if node.outputs and node.output in scope.values:
            node.operator = _resized(node.operator, source.size)
            (node.output.type,) = node.operator.infer(node.input_types())
    for value in scope.values:
        statistics[value.name] = _split_statistics(statistics[value.name], split)


def _give(graph: Graph, node: Node, source: Array, shares: Array) -> None:
    """Let a node give the new channels."""
    inputs = list(node.inputs)
    weights = inputs[1]
    assert weights is not None and weights.data is not None
    if isinstance(node.operator, Conv):
        made = weights.data[source] * shares.reshape(-1, 1, 1, 1)
    else:
        made = weights.data[:, source] * shares
    inputs[1] = renewed(graph, weights, made, "split")
    bias = inputs[2] if len(inputs) > 2 else None
    if bias is not None and bias.data is not None:
        inputs[2] = renewed(graph, bias, bias.data[source] * shares, "split")
    node.inputs = inputs


def _read(graph: Graph, node: Node, source: Array) -> None:
    """Let a node read the new channels, each with the weights of the one it is of."""
    inputs = list(node.inputs)
    weights = inputs[1]
    assert weights is not None and weights.data is not None
    made = weights.data[:, source] if isinstance(node.operator, Conv) else weights.data[source]
    inputs[1] = renewed(graph, weights, made, "split")
    node.inputs = inputs


def _resized(operator: Operator, channels: int) -> Operator:
    """The operator for another number of channels."""
    if isinstance(operator, Reshape):
        return replace(operator, shape=(operator.shape[0], channels))
    if isinstance(operator, ResizeNearest):
        return replace(operator, sizes=(operator.sizes[0], channels, *operator.sizes[2:]))
    return operator


def _split_statistics(profile: ValueProfile, split: Split) -> ValueProfile:
    channels = profile.channels
    assert channels is not None
    arrays = (channels.low, channels.high, channels.whole, channels.fraction)
    taken = ChannelProfile(channels.axis, *(array[split.source] for array in arrays))
    found = scaled_statistics(replace(profile, channels=taken), split.shares.astype(np.float64))
    found.counts = _split_counts(profile.counts, _reach(profile), split.copies)
    return found


def _split_counts(counts: Array, reach: Array, copies: Array) -> Array:
    """An estimate of the histogram: int64[65536].

    What lies beyond all channels that stay whole can only be of those that were split, and is divided; of
    what lies below it is not known, and it stays. So the range is right, and the bulk nearly.
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

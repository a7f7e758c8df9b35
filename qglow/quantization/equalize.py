"""Bring the channels between a convolution and a depthwise one to one range.

int8 has one scale for all channels of an activation, so channels much smaller than the largest keep
few levels. Where the only user is a depthwise convolution, each channel can be scaled up in the
producer's weights and down again in the user's, at no cost: both have one scale a channel.
After M. Nagel et al., "Data-free quantization through weight equalization and bias correction"
(ICCV 2019), with the observed ranges in place of the weights'.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from qglow.core.passes import PassLog
from qglow.core.types import Array
from qglow.graph.graph import Graph, Node, Value, constant
from qglow.graph.ops.conv import Conv
from qglow.profiling.histogram import ChannelProfile, ValueProfile
from qglow.quantization.placement import FloatReasons

PASS = "equalize-depthwise"
LARGEST_FACTOR = 2.0**10
"""A channel is scaled up by at most this; one that is smaller still hardly matters."""

Statistics = dict[str, ValueProfile]


def equalize(graph: Graph, statistics: Statistics, reasons: FloatReasons, log: PassLog) -> None:
    """Scale channels in place, in the graph and in the statistics.

    A scaled value has no histogram any more: its range is that of its channels. Where a bound above
    (ReLU6) lies on the result, channels grow up to it, so beyond the calibration data it may cut off
    what it did not before.
    """
    log.pass_name = PASS
    for node in graph.nodes:
        if log.exhausted:
            return
        value = node.inputs[0] if node.inputs else None
        if value is None or node in reasons or not is_depthwise(node):
            continue
        refusal = _refusal(graph, value, statistics, reasons)
        if refusal is None:
            _scale(graph, node, value, statistics, log)
        else:
            log.refused(node.name, refusal)


def is_depthwise(node: Node) -> bool:
    """Whether each output channel of a Conv sees one input channel."""
    weights = node.inputs[1] if isinstance(node.operator, Conv) else None
    return weights is not None and weights.type.shape[1] == 1 and weights.type.shape[0] > 1


def _refusal(graph: Graph, value: Value, statistics: Statistics, reasons: FloatReasons) -> str | None:
    producer = value.producer
    if producer is None or not isinstance(producer.operator, Conv) or producer in reasons:
        return "its input does not come from an int8 convolution"
    if len(value.users()) > 1 or graph.is_output(value):
        return f"%{value.name} has other users"
    if producer.operator.lo not in (0.0, -math.inf):
        return f"the bound {producer.operator.lo:g} of {producer} is not the same for scaled channels"
    profile = statistics.get(value.name)
    if profile is None or profile.channels is None or not np.all(np.isfinite(profile.channels.low)):
        return f"no finite channel ranges of %{value.name}"
    return None


def _scale(graph: Graph, node: Node, value: Value, statistics: Statistics, log: PassLog) -> None:
    producer, profile = value.producer, statistics[value.name]
    assert producer is not None and isinstance(producer.operator, Conv) and profile.channels is not None
    factors = _factors(profile.channels, producer.operator.hi)
    if np.all(factors == 1.0):
        return
    _multiply(graph, producer, factors)
    _divide(graph, node, factors)
    statistics[value.name] = scaled_statistics(profile, factors)
    exact = math.isinf(producer.operator.hi)
    what = f"channels of %{value.name} scaled by up to {factors.max():.3g}; ranges replace its histogram"
    log.applied(node.name, what, exact)


def _factors(channels: ChannelProfile, hi: float) -> Array:
    """float64[C]: what brings each channel to the largest, or to the bound above; never below 1."""
    magnitude = np.maximum(np.abs(channels.low), np.abs(channels.high)).astype(np.float64)
    largest = min(float(magnitude.max(initial=0.0)), hi)
    room = np.divide(largest, magnitude, out=np.ones_like(magnitude), where=magnitude > 0.0)
    return np.asarray(np.clip(room, 1.0, LARGEST_FACTOR))


def _multiply(graph: Graph, node: Node, factors: Array) -> None:
    x, weights, *rest = node.inputs
    assert weights is not None and weights.data is not None
    scaled = weights.data * factors.reshape(-1, 1, 1, 1)
    inputs: list[Value | None] = [x, _renewed(graph, weights, scaled)]
    if rest and rest[0] is not None and rest[0].data is not None:
        inputs.append(_renewed(graph, rest[0], rest[0].data * factors))
    node.inputs = inputs


def _divide(graph: Graph, node: Node, factors: Array) -> None:
    x, weights, *rest = node.inputs
    assert weights is not None and weights.data is not None
    per_output = np.repeat(factors, weights.data.shape[0] // factors.size)
    scaled = weights.data / per_output.reshape(-1, 1, 1, 1)
    node.inputs = [x, _renewed(graph, weights, scaled), *rest]


def _renewed(graph: Graph, old: Value, data: Array) -> Value:
    name = old.name if len(old.uses) == 1 else graph.unique_name(f"{old.name}_equalized")
    return constant(name, data.astype(np.float32))


def scaled_statistics(profile: ValueProfile, factors: Array) -> ValueProfile:
    """Statistics of channels times `factors`: ranges and means; the histogram is left empty."""
    channels = profile.channels
    assert channels is not None
    low = (channels.low * factors).astype(np.float32)
    high = (channels.high * factors).astype(np.float32)
    pairs = zip(channels.totals(), factors.tolist(), strict=True)
    totals = [round(total * factor) for total, factor in pairs]
    scaled = ChannelProfile.from_totals(channels.axis, low, high, totals)
    empty = replace(ValueProfile(), channels=scaled)
    empty.low, empty.high = float(low.min()), float(high.max())
    return empty

"""Scale channels up and down again, so that one scale of int8 serves all of them better.

The factors go into constants that are there anyway: the weights of convolutions and Gemms, the scale and
shift of a normalization. In float the function stays what it was.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from qglow.core.passes import PassLog
from qglow.core.types import Array
from qglow.graph.graph import Graph, Node, Value, constant
from qglow.graph.ops.conv import Conv
from qglow.graph.ops.normalization import Affine, LayerNormalization
from qglow.profiling.histogram import ChannelProfile, ValueProfile
from qglow.quantization.channel_factors import ALPHAS, Factors, FactorSearch, SchemaOf
from qglow.quantization.placement import FloatReasons
from qglow.quantization.scopes import Layout, NoScope, Scope, producers_of, scope_from

PASS = "equalize-channels"

Statistics = dict[str, ValueProfile]


@dataclass(frozen=True)
class Equalization:
    """What may be scaled. equalize: results of Conv, Gemm and Affine; smooth: of LayerNormalization.

    alpha: the exponent of SmoothQuant for the latter, taken in any case; None for the best, where it pays.
    """

    equalize: bool = True
    smooth: bool = True
    alpha: float | None = None

    def __bool__(self) -> bool:
        return self.equalize or self.smooth

    def includes(self, producer: Node) -> bool:
        """Whether the channels that this node gives may be scaled."""
        return self.smooth if isinstance(producer.operator, LayerNormalization) else self.equalize


def equalize(
    graph: Graph,
    statistics: Statistics,
    samples: int,
    reasons: FloatReasons,
    wanted: Equalization,
    schema_of: SchemaOf,
    log: PassLog,
) -> set[str]:
    """Scale channels in place, in the graph and in the statistics; the names of the values scaled.

    A scaled value has no histogram any more: its range is that of its channels. Where a bound above
    (ReLU6) lies on the result, channels grow up to it, so beyond the calibration data it may cut off
    what it did not before.
    """
    log.pass_name = PASS
    done: set[Node] = set()
    scaled: set[str] = set()
    for node in list(producers_of(graph)):
        if log.exhausted:
            break
        if node in done or not wanted.includes(node):
            continue
        try:
            scope = scope_from(graph, node)
            done.update(scope.producers)
            factors = _factors(graph, statistics, samples, reasons, wanted, schema_of, scope)
        except NoScope as refusal:
            log.refused(node.name, str(refusal))
            continue
        _scale(graph, scope, factors.channels, statistics)
        scaled |= {value.name for value in scope.values}
        what = (
            f"channels of %{node.output.name} scaled by {factors.channels.min():.3g} to "
            f"{factors.channels.max():.3g}: the error that int8 adds where they are read should fall by "
            f"{factors.decibels:.1f} dB; ranges replace histograms"
        )
        log.applied(node.name, what, exact=not scope.clamps)
    return scaled


def _factors(
    graph: Graph,
    statistics: Statistics,
    samples: int,
    reasons: FloatReasons,
    wanted: Equalization,
    schema_of: SchemaOf,
    scope: Scope,
) -> Factors:
    """Raises NoScope where the scope is not to be scaled, or gains too little."""
    if not all(wanted.includes(node) for node in scope.producers):
        raise NoScope("it is added to what is not to be scaled")
    if all(node in reasons for node in scope.consumers):
        raise NoScope("what reads it stays float")
    smooths = any(isinstance(node.operator, LayerNormalization) for node in scope.producers)
    given = wanted.alpha if smooths else None
    search = FactorSearch(graph, statistics, samples, schema_of)
    factors = search.best(scope, ALPHAS if given is None else (given,))
    if given is None and not factors.worthwhile:
        raise NoScope(f"the predicted error would fall by {factors.decibels:.1f} dB only")
    return factors


def _scale(graph: Graph, scope: Scope, factors: Array, statistics: Statistics) -> None:
    for node in scope.producers:
        _multiply(graph, node, factors[scope.values[node.output].channels])
    for node in scope.consumers:
        value = node.inputs[0]
        assert value is not None
        _divide(graph, node, factors[scope.values[value].channels])
    along = {v: layout for v, layout in scope.values.items() if _has_channels(statistics, v, layout)}
    for value, layout in along.items():
        profile = statistics[value.name]
        statistics[value.name] = scaled_statistics(profile, factors[layout.channels])
    known = [statistics[value.name] for value in along]
    for value in scope.values.keys() - along.keys():
        # Its channels were counted along another axis: the range is that of the same elements elsewhere.
        low, high = min(p.low for p in known), max(p.high for p in known)
        statistics[value.name] = ValueProfile(low=low, high=high)


def _has_channels(statistics: Statistics, value: Value, layout: Layout) -> bool:
    profile = statistics.get(value.name)
    return profile is not None and profile.channels is not None and profile.channels.axis == layout.axis


def _multiply(graph: Graph, node: Node, factors: Array) -> None:
    """Scale what a producer gives, channel by channel."""
    x, weights, *rest = node.inputs
    assert weights is not None and weights.data is not None
    if isinstance(node.operator, Conv):
        scaled = weights.data * factors.reshape(-1, 1, 1, 1)
    elif isinstance(node.operator, Affine | LayerNormalization):
        scaled = np.broadcast_to(weights.data, factors.shape) * factors
    else:
        scaled = weights.data * factors
    inputs: list[Value | None] = [x, renewed(graph, weights, scaled, "equalized")]
    if rest and rest[0] is not None and rest[0].data is not None:
        inputs.append(
            renewed(graph, rest[0], np.broadcast_to(rest[0].data, factors.shape) * factors, "equalized")
        )
    node.inputs = inputs


def _divide(graph: Graph, node: Node, factors: Array) -> None:
    """Scale the weights that read channels, input channel by input channel."""
    x, weights, *rest = node.inputs
    assert weights is not None and weights.data is not None
    data = weights.data
    if isinstance(node.operator, Conv):
        group = node.operator.group
        rows = data.reshape(group, -1, *data.shape[1:]) / factors.reshape(group, 1, -1, 1, 1)
        scaled = rows.reshape(data.shape)
    else:
        scaled = data / factors[:, None]
    node.inputs = [x, renewed(graph, weights, scaled, "equalized"), *rest]


def renewed(graph: Graph, old: Value, data: Array, what: str) -> Value:
    """A float32 constant in place of another for one of its readers; `what` is in its name if it has more."""
    name = old.name if len(old.uses) == 1 else graph.unique_name(f"{old.name}_{what}")
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

"""Scale channels of activations, and divide the weights that read them, so that one int8 scale suits all.

The factors go into constants that are there anyway: the weights of convolutions and Gemms, the scale and
shift of a normalization. The float function stays the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from qglow.core.passes import PassLog
from qglow.core.types import Array
from qglow.graph.graph import Graph, Node, Value, constant
from qglow.profiling.histogram import ChannelProfile, ValueProfile
from qglow.quantization.channel_factors import ALPHAS, Factors, FactorSearch
from qglow.quantization.choices import Choices
from qglow.quantization.corrections import Correction
from qglow.quantization.known_factors import KnownFactors
from qglow.quantization.placement import FloatReasons
from qglow.quantization.scopes import ChannelLayout, NoScope, Scope, Scopes, producers_of
from qglow.quantization.searched_factors import remembered
from qglow.recipe.schema import Recipe

PASS = "equalize-channels"

Statistics = dict[str, ValueProfile]


@dataclass(frozen=True)
class Equalization:
    """Kinds of values that may be scaled.

    equalize: results of sums of products and of channel factors. smooth: results of normalizations. alpha:
    the exponent of SmoothQuant for these, used even if it does not pay; None: the best one, if it pays.
    left_out: the rule in words that leaves `equalize` or `smooth` out, by that word and the name of a node.
    """

    equalize: bool = True
    smooth: bool = True
    alpha: float | None = None
    left_out: Mapping[tuple[str, str], str] = field(default_factory=dict)

    @staticmethod
    def of(recipe: Recipe, choices: Choices | None = None) -> Equalization:
        """The kinds that a recipe wants, and where its rules leave them out; `smooth` may be the exponent."""
        alpha = None if isinstance(recipe.smooth, bool) else recipe.smooth
        nodes = {} if choices is None else choices.nodes
        left_out = {
            (kind, name): by for name, choice in nodes.items() for kind, by in choice.left_out.items()
        }
        return Equalization(recipe.equalize, recipe.smooth is not False, alpha, left_out)

    def __bool__(self) -> bool:
        return self.equalize or self.smooth

    def includes(self, producer: Node) -> bool:
        """Whether channels of results of such nodes may be scaled."""
        return self.smooth if producer.operator.standardizes else self.equalize

    def kind(self, producer: Node) -> str:
        """The kind of correction that scales the channels of this node's result."""
        return "smooth" if producer.operator.standardizes else "equalize"

    def refusal(self, producer: Node) -> str:
        """The rule in words that leaves this node out, or ""."""
        return self.left_out.get((self.kind(producer), producer.name), "")


def equalize(
    graph: Graph,
    statistics: Statistics,
    search: FactorSearch,
    reasons: FloatReasons,
    wanted: Equalization,
    log: PassLog,
    known: KnownFactors | None = None,
) -> list[Correction]:
    """Scale channels in place, in the graph and in the statistics; return what was done.

    search: finds factors in this graph by these statistics. known: what earlier calls with the same
    arguments found, to which this one adds.

    A scaled value has no histogram any more: its range is that of its channels. Where a value has an upper
    bound (ReLU6), channels may grow up to it, so that on other data than the calibration data it may
    clip elements that it did not clip before.
    """
    log.pass_name = PASS
    done: set[Node] = set()
    scopes = Scopes(graph)
    made: list[Correction] = []
    for node in list(producers_of(graph)):
        if log.exhausted:
            break
        if node in done or not wanted.includes(node):
            continue
        try:
            scope = scopes.of(node)
            done.update(scope.producers)
            chosen = partial(_factors, search, reasons, wanted, scope)
            factors = remembered({} if known is None else known, node.name, chosen)
        except NoScope as refusal:
            log.refused(node.name, str(refusal))
            continue
        _scale(graph, scope, factors.channels, statistics)
        made.append(scope.correction(wanted.kind(node)))
        what = (
            f"channels of %{node.output.name} scaled by {factors.channels.min():.3g} to "
            f"{factors.channels.max():.3g}: the error that int8 adds where they are read should fall by "
            f"{factors.decibels:.1f} dB; ranges replace histograms"
        )
        log.applied(node.name, what, exact=not scope.clamps)
    return made


def _factors(search: FactorSearch, reasons: FloatReasons, wanted: Equalization, scope: Scope) -> Factors:
    """Choose the factors of a scope. Raises NoScope if it is not to be scaled, or gains too little."""
    if not all(wanted.includes(node) for node in scope.producers):
        raise NoScope("it is added to what is not to be scaled")
    for node in scope.producers:
        if wanted.refusal(node):
            raise NoScope(f"{wanted.refusal(node)} leaves {wanted.kind(node)} out")
    if all(node in reasons for node in scope.consumers):
        raise NoScope("what reads it stays float")
    smooths = any(node.operator.standardizes for node in scope.producers)
    given = wanted.alpha if smooths else None
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
        # Its channels were profiled along another axis, but its elements are those of the known values.
        low, high = min(p.low for p in known), max(p.high for p in known)
        statistics[value.name] = ValueProfile(low=low, high=high)


def _has_channels(statistics: Statistics, value: Value, layout: ChannelLayout) -> bool:
    profile = statistics.get(value.name)
    return profile is not None and profile.channels is not None and profile.channels.axis == layout.axis


def _multiply(graph: Graph, node: Node, factors: Array) -> None:
    """Multiply the channels of a producer's result by factors, through its constants."""
    x, weights, *rest = node.inputs
    assert weights is not None and weights.data is not None
    filters = node.operator.filters
    if filters is None:
        scaled = np.broadcast_to(weights.data, factors.shape) * factors
    else:
        scaled = weights.data * filters.along_outputs(factors, weights.data.ndim)
    inputs: list[Value | None] = [x, renewed(graph, weights, scaled, "equalized")]
    if rest and rest[0] is not None and rest[0].data is not None:
        inputs.append(
            renewed(graph, rest[0], np.broadcast_to(rest[0].data, factors.shape) * factors, "equalized")
        )
    node.inputs = inputs


def _divide(graph: Graph, node: Node, factors: Array) -> None:
    """Divide the weights of a consumer by the factors of its input channels."""
    x, weights, *rest = node.inputs
    assert weights is not None and weights.data is not None
    filters = node.operator.filters
    assert filters is not None, "scopes have consumers with weights only"
    scaled = weights.data / filters.along_inputs(factors, weights.data.shape)
    node.inputs = [x, renewed(graph, weights, scaled, "equalized"), *rest]


def renewed(graph: Graph, old: Value, data: Array, what: str) -> Value:
    """Return a float32 constant to replace `old` for one reader; if `old` has more, its name gets `what`."""
    name = old.name if len(old.uses) == 1 else graph.unique_name(f"{old.name}_{what}")
    return constant(name, data.astype(np.float32))


def scaled_statistics(profile: ValueProfile, factors: Array) -> ValueProfile:
    """Return a profile with channels multiplied by `factors`: ranges and means, and an empty histogram."""
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

"""Noise that values and weights of an int8 model add, and SQNR of its outputs, predicted without a run."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from qglow.core.threads import each
from qglow.core.types import Array
from qglow.graph.graph import Node, nested
from qglow.graph.operator import Accumulate
from qglow.profiling.histogram import ValueProfile
from qglow.quantization.choices import Choices
from qglow.quantization.tensors import TensorRange
from qglow.quantization.value_noise import ValueNoise, value_noise
from qglow.report.parts import QuantizedParts
from qglow.report.verdict import SHOWN, WorstValue
from qglow.tuning.costs import placed_nodes
from qglow.tuning.sensitivity import decibels, real_constants

FAR = 8.0
"""Least ratio of an extreme to the 99.9 % quantile of magnitudes for it to be given as a reason."""
FEW_LEVELS = 32
"""Levels, of 256, for 99 % of the elements, below which they are given as a reason: most values use more."""


CLIPPING_WEIGHT = 0.1
"""Share of the noise of clipping that reaches the outputs, approximately: it is low because extremes are few.

With it, most predicted verdicts are the measured ones on eleven networks with four calibrations each, and a
network that is broken by clipping is predicted to be broken.
"""


BRANCH_SHARE = 0.2
"""Share of the noise of places in attention regions that reaches the outputs, approximately.

What branches add is a part of the stream's power. Without it 14 networks of 2 to 24 layers were predicted to
have less than was measured, 10 dB less in the median; with it it is 4.
"""
LARGEST_SHARED = 0.01
"""Noise above which all of a place's noise counts there too: a ruined branch ruins the stream."""


@dataclass(frozen=True)
class PlaceNoise:
    """One place that adds noise: a value, or the weights of the node whose result it names.

    noise: squared error relative to the power of all values that have the same scale and zero point, since
    these are mostly parts of one tensor. clipping: the part of it that clipping adds. reason: in words.
    share: of the noise that reaches the outputs, approximately.
    """

    value: str
    noise: float
    reason: str
    clipping: float = 0.0
    share: float = 1.0


def noise_sources(parts: QuantizedParts, statistics: Mapping[str, ValueProfile]) -> list[PlaceNoise]:
    """Return the noise of every value with a histogram and of all int8 weights, the largest first."""
    found = [*_values(parts, statistics), *_weights(parts)]
    inside = _in_branches(parts)
    shared = [
        replace(each, share=BRANCH_SHARE) if each.value in inside and each.noise < LARGEST_SHARED else each
        for each in found
    ]
    return sorted(shared, key=lambda source: -source.noise)


def _in_branches(parts: QuantizedParts) -> set[str]:
    """Names of the values that nodes of attention regions read and compute."""
    choices = Choices.of(parts.real, parts.recipe)
    inside = [node for node in parts.int8.nodes if choices.of_node(node).in_attention]
    return {v.name for node in inside for v in (*node.inputs, *node.outputs) if v is not None}


def worst_values(sources: Sequence[PlaceNoise]) -> tuple[WorstValue, ...]:
    """The first few of `noise_sources`, for a verdict."""
    return tuple(
        WorstValue(source.value, decibels(source.noise), source.reason)
        for source in sources[:SHOWN]
        if source.noise > 0.0
    )


def predicted_sqnr_db(sources: Sequence[PlaceNoise]) -> float:
    """Estimate the SQNR of the outputs in dB, as if the noise of all places added up at the outputs."""
    arriving = (
        source.share * (source.noise - (1.0 - CLIPPING_WEIGHT) * source.clipping) for source in sources
    )
    return decibels(sum(arriving))


def _values(parts: QuantizedParts, statistics: Mapping[str, ValueProfile]) -> Iterator[PlaceNoise]:
    tensors = () if parts.report is None else parts.report.tensors
    by_name = {tensor.value: tensor for tensor in tensors}
    groups: dict[tuple[float, int], list[ValueNoise]] = {}
    for value in value_noise(tensors, statistics):
        tensor = by_name[value.value]
        groups.setdefault((tensor.scale, tensor.zero_point), []).append(value)
    for members in groups.values():
        power = sum(member.power for member in members)
        for member in members:
            share, reason = member.power / power, _reason(member, by_name[member.value])
            yield PlaceNoise(member.value, member.noise * share, reason, member.clipping * share)


def _reason(noise: ValueNoise, tensor: TensorRange) -> str:
    if noise.clipping > noise.rounding:
        return (
            f"{tensor.calibration} clips {_share(noise.clipped)} of its elements, "
            f"{_share(min(noise.clipping, 1.0))} of its energy"
        )
    if noise.sentinel is not None:
        return (
            f"the mark {noise.sentinel:g} sets the scale, and leaves {noise.levels} of 256 levels to the rest"
        )
    if noise.extreme > FAR:
        return f"one extreme sets the scale, {noise.extreme:.3g} times as far out as 99.9 % of its elements"
    if noise.levels < FEW_LEVELS:
        return f"few levels: 99 % of its elements are on {noise.levels} of 256"
    return "rounding"


def _share(share: float) -> str:
    return f"{100.0 * share:.3g} %"


def _weights(parts: QuantizedParts) -> Iterator[PlaceNoise]:
    real = {placed.name: placed.node for placed in placed_nodes(parts.real)}
    named = [placed.name for placed in placed_nodes(parts.int8) if placed.name in real]
    int8 = {placed.name: placed.node for placed in placed_nodes(parts.int8)}
    elements = sum(value.type.size for _, graph in nested(parts.int8) for value in graph.constants())
    noises = each(lambda name: _weight_noise(int8[name], real[name]), named, elements)
    for name, noise in zip(named, noises, strict=True):
        if noise is not None:
            value = name.removesuffix(int8[name].name) + int8[name].output.name
            yield PlaceNoise(value, noise, f"rounding of the weights of {name}")


def _weight_noise(int8: Node, real: Node) -> float | None:
    """Mean squared error of int8 weights relative to their mean square; None if there are none."""
    policy = int8.operator.policy
    if not isinstance(policy, Accumulate) or real.operator.name != int8.operator.name:
        return None
    made, source = real_constants(int8, policy), real.operand(policy.w)
    if made is None or source is None or source.data is None or source.data.shape != made[policy.w].shape:
        return None
    power = _power(source.data)
    return _power(made[policy.w] - source.data) / power if power > 0.0 and math.isfinite(power) else None


def _power(array: Array) -> float:
    return float(np.sum(np.square(array, dtype=np.float64)))

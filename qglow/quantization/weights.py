"""Integers of weights and biases, computed last: their scales depend on the input's final scale."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from qglow.core.errors import InternalError, UnsupportedError
from qglow.core.types import Array, Quantization
from qglow.graph.graph import Graph, Node, constant
from qglow.graph.operator import Accumulate
from qglow.numerics.quantize import along
from qglow.numerics.requantize import accumulator_margin
from qglow.numerics.weights import (
    CACHED,
    dequantize_weights,
    largest_weights,
    quantize_bias,
    quantize_weights,
    scales_of,
    weight_scales,
)
from qglow.numerics.wide import worst_sum
from qglow.recipe.matching import exactly


@dataclass(frozen=True)
class GivenIntegers:
    """int8 weights with zero point 0 that the model itself brings, and their float32 scales, one a channel.

    per_tensor: whether all scales are the same one.
    """

    weights: Array
    scales: Array
    per_tensor: bool


@dataclass(slots=True)
class Rounding:
    """Cache of integers and largest magnitudes of weights.

    largest: float64 `max|w|` of the channels of `measured`. integers: `rounded` as int8 with `scales`.
    """

    measured: Array | None = None
    largest: Array = field(default_factory=lambda: np.empty(0))
    rounded: Array | None = None
    scales: Array = field(default_factory=lambda: np.empty(0, np.float32))
    integers: Array = field(default_factory=lambda: np.empty(0, np.int8))


@dataclass(frozen=True)
class FloatWeights:
    """Weights and bias [O] of a node before quantization. Output channels lie along `axis`.

    given: the integers of the weights where the model brings them; they are kept. limits: float64[O],
    largest magnitude that int8 covers in each channel; None: that of its weights. last: cache of rounding,
    shared by copies of this object, most of which differ in the bias alone.
    """

    weights: Array
    bias: Array
    axis: int
    given: GivenIntegers | None = None
    limits: Array | None = None
    last: Rounding = field(default_factory=Rounding, repr=False, compare=False)

    @staticmethod
    def of(node: Node) -> FloatWeights:
        """Weights and bias of a node with constant weights; a missing bias is 0."""
        policy = node.operator.policy
        assert isinstance(policy, Accumulate)
        weights, bias = node.operand(policy.w), node.operand(policy.bias)
        if weights is None or weights.data is None:
            raise InternalError(f"{node} has no constant weights")
        axis = output_axis(node)
        channels = weights.data.shape[axis]
        data = np.zeros(channels, np.float32) if bias is None or bias.data is None else bias.data
        return FloatWeights(weights.data, data, axis)


@dataclass(frozen=True)
class IntegerWeights:
    """int8 weights, their float32 scales (one a channel, or equal ones), int32 bias."""

    weights: Array
    scales: Array
    bias: Array


def output_axis(node: Node) -> int:
    """The axis of the output channels of a node's weights."""
    if node.operator.filters is None:
        raise InternalError(f"{node} has no weights")
    return node.operator.filters.outputs


def integers(source: FloatWeights, scale_x: float, per_tensor: bool) -> IntegerWeights:
    """Quantize weights and bias by rule 4 of the numeric contract; `scale_x` is that of the input.

    Raises ValueError if a bias does not fit the scales that the model brings.
    """
    if source.given is not None:
        weights, scales = source.given.weights, source.given.scales
        return IntegerWeights(weights, scales, quantize_bias(source.bias, scale_x, scales))
    scales = _scales(source, scale_x, per_tensor)
    return IntegerWeights(_rounded(source, scales), scales, quantize_bias(source.bias, scale_x, scales))


def rounding_error(source: FloatWeights, scale_x: float, per_tensor: bool) -> Array:
    """Return the weights minus their rounded values, float64 in the shape of the weights."""
    scales = _scales(source, scale_x, per_tensor)
    rounded, weights = _rounded(source, scales), source.weights
    error = np.empty(weights.shape)
    rows = max(1, CACHED * weights.shape[0] // max(weights.size, 1))
    for start in range(0, weights.shape[0], rows):
        part = slice(start, start + rows)
        kept = dequantize_weights(rounded[part], scales[part] if source.axis == 0 else scales, source.axis)
        np.subtract(weights[part], kept, out=error[part], dtype=np.float64)
    return error


def _rounded(source: FloatWeights, scales: Array) -> Array:
    """Return the int8 weights, from the cache where neither weights nor scales have changed."""
    last = source.last
    if last.rounded is not source.weights or not np.array_equal(last.scales, scales):
        last.rounded, last.scales = source.weights, scales
        last.integers = quantize_weights(source.weights, scales, source.axis)
    return last.integers


def _scales(source: FloatWeights, scale_x: float, per_tensor: bool) -> Array:
    if source.limits is not None:
        limits = along(source.limits, source.weights.ndim, source.axis, np.float64)
        covered = np.clip(source.weights.astype(np.float64), -limits, limits)
        return weight_scales(covered, source.bias, scale_x, source.axis, per_tensor)
    last = source.last
    if last.measured is not source.weights:
        last.measured, last.largest = source.weights, largest_weights(source.weights, source.axis)
    return scales_of(last.largest, source.bias, scale_x, per_tensor)


def set_integers(graph: Graph, node: Node, source: FloatWeights, per_tensor: bool) -> float:
    """Give a node with int8 input its int8 weights and int32 bias; return its int32 margin.

    The margin is the int32 limit over the largest possible sum. Raises UnsupportedError if it is below 1.
    """
    policy = node.operator.policy
    assert isinstance(policy, Accumulate)
    x, old, old_bias = node.operand(policy.x), node.operand(policy.w), node.operand(policy.bias)
    if x is None or x.type.quantization is None or old is None:
        raise InternalError(f"{node} has no int8 input")
    made = integers(source, x.type.quantization.scale, per_tensor)
    per_tensor = per_tensor if source.given is None else source.given.per_tensor
    worst = worst_sum(made.weights, made.bias, x.type.quantization, source.axis)
    margin = accumulator_margin(worst)
    if margin < 1.0:
        raise UnsupportedError(
            f"node '{node.name}': channel {int(np.argmax(worst))} can sum up to {int(worst.max())}, "
            f"beyond int32; keep it float: `keep_float={exactly(node.name)!r}`"
        )
    if per_tensor:
        quantization = Quantization.per_tensor(float(made.scales[0]), 0)
    else:
        quantization = Quantization.per_channel(made.scales, source.axis)
    weights = constant(_own_name(graph, node, old.name), made.weights, quantization)
    bias_name = f"{node.name}.bias" if old_bias is None else old_bias.name
    bias = constant(_own_name(graph, node, bias_name), made.bias)
    operands = {policy.x: x, policy.w: weights, policy.bias: bias}
    node.inputs = [operands.get(name.rstrip("?*")) for name in node.operator.operands]
    return margin


def unfit_weights(node: Node, what: str) -> str | None:
    """Reason why a node is no product of rows by constant finite weights, as `what` wants; else None."""
    policy = node.operator.accumulate
    weights = None if policy is None else node.operand(policy.w)
    if weights is None or len(weights.type.shape) != 2:
        return f"{what} are for products of rows with constant weights"
    if weights.data is None or not weights.type.is_float:
        return "its weights are computed by the graph"
    if adds_nothing_up(node):
        return "each of its sums has one term, which integers would not make cheaper"
    return None if np.all(np.isfinite(weights.data)) else "its w holds NaN or infinities"


def adds_nothing_up(node: Node) -> bool:
    """Whether a product of matrices multiplies one element by one, so that its sums have a single term."""
    return summed_terms(node) == 1


def summed_terms(node: Node) -> int:
    """Number of terms of each sum in a product of matrices; 0 for other nodes."""
    policy = node.operator.accumulate
    if policy is not None:
        weights = node.operand(policy.w)
        return weights.type.shape[0] if weights is not None and len(weights.type.shape) == 2 else 0
    first = node.inputs[0] if node.operator.multiplies_activations else None
    return first.type.shape[-1] if first is not None and first.type.shape else 0


def _own_name(graph: Graph, node: Node, wanted: str) -> str:
    """Return `wanted`, or a new name if other values have it or other nodes read the one that has it."""
    named = graph.values_named(wanted)
    taken = any(value not in node.inputs or value.users() != [node] for value in named)
    return graph.unique_name(wanted) if taken else wanted


Sources = Mapping[str, FloatWeights]
"""Float weights by node name."""

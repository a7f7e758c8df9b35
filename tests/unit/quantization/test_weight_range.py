"""Clipping of weights: limits of least squared error, and that they keep to the numeric contract."""

from __future__ import annotations

import numpy as np
import pytest

from qglow.core.passes import PassLog
from qglow.core.types import Array
from qglow.graph.operator import Accumulate
from qglow.numerics.weights import BIAS_ROOM, dequantize_weights
from qglow.quantization.pipeline import QuantizedGraph, quantize
from qglow.quantization.reconstruction import round_weights
from qglow.quantization.weight_range import with_least_error
from qglow.quantization.weights import FloatWeights, integers, rounding_error
from qglow.recipe.schema import Recipe
from tests.unit.profiling.networks import profile_of, residual_network
from tests.unit.quantization.test_reconstruction import run


def outlying(channels: int = 4, length: int = 20_000) -> Array:
    """Weights [K, N] of which each channel has one that is a tenth larger than all others."""
    random = np.random.default_rng(0)
    w = random.uniform(-1.0, 1.0, size=(length, channels)).astype(np.float32)
    w[7] = 1.1
    return w


def clipped(w: Array, bias: Array, per_tensor: bool = False) -> tuple[FloatWeights, PassLog]:
    log = PassLog()
    return with_least_error(FloatWeights(w, bias, 1), per_tensor, "dense", log), log


@pytest.mark.parametrize("per_tensor", [False, True])
def test_the_error_falls_where_one_weight_stretches_the_range(per_tensor: bool) -> None:
    w, bias = outlying(), np.zeros(4, np.float32)
    source, log = clipped(w, bias, per_tensor)
    before, after = (rounding_error(s, 0.05, per_tensor) for s in (FloatWeights(w, bias, 1), source))
    assert np.sum(after**2) < 0.95 * np.sum(before**2)
    made = integers(source, 0.05, per_tensor)
    assert np.max(np.abs(made.weights)) == 127 and np.all(made.weights[7] == 127)
    assert made.scales.max() < 1.1 / 127
    assert (np.unique(made.scales).size == 1) == per_tensor
    assert "weights clipped" in log.entries[0].what and log.entries[0].applied


def test_no_limit_of_the_grid_is_better() -> None:
    w, bias = outlying(channels=1), np.zeros(1, np.float32)
    source, _ = clipped(w, bias)
    found = np.sum(rounding_error(source, 0.05, False) ** 2)
    for limit in np.linspace(0.6, 1.1, 40):
        scale = np.array([limit / 127])
        kept = np.clip(np.rint(w.astype(np.float64) / scale), -127, 127) * scale
        assert found <= 1.02 * np.sum((w - kept) ** 2)


def test_a_bias_still_gets_the_scale_that_it_needs() -> None:
    w = outlying()
    bias = np.array([0.0, 1e9, 0.0, 0.0], np.float32)
    source, _ = clipped(w, bias)
    made = integers(source, 0.01, per_tensor=False)
    assert made.scales[1] == np.float32(1e9 / (np.float64(np.float32(0.01)) * BIAS_ROOM))
    assert np.max(np.abs(made.bias.astype(np.int64))) <= 2**30


def test_weights_that_use_all_levels_stay_as_they_are() -> None:
    w = (np.arange(-127, 128, dtype=np.float32) / 64)[:, None]
    source, log = clipped(w, np.zeros(1, np.float32))
    assert source.limits is None
    assert log.entries[0].what == "no limit below the largest weight has less error"


@pytest.mark.parametrize("value", [0.0, np.nan])
def test_weights_without_a_limit(value: float) -> None:
    w = np.full((3, 2), value, np.float32)
    source, _ = clipped(w, np.zeros(2, np.float32))
    assert source.limits is None


def test_the_option_reaches_every_sum_and_composes_with_rounding() -> None:
    graph, profile = residual_network(), profile_of()
    scales = [weight_scales(quantize(graph, profile, Recipe(weight_range=name))) for name in ("max", "mse")]
    assert all(np.all(scales[1][name] <= scales[0][name]) for name in scales[0])
    assert any(np.any(scales[1][name] < scales[0][name]) for name in scales[0])
    found = quantize(graph, profile, Recipe(weight_range="mse"))
    told = {entry.where for entry in found.report.log if entry.pass_name == "weight-range"}
    assert told == set(scales[0]) and len(told) == 4
    rounded = weight_scales(round_weights(found, run, 12))
    assert all(np.array_equal(rounded[name], scales[1][name]) for name in rounded)


def weight_scales(quantized: QuantizedGraph) -> dict[str, Array]:
    """Scales of weights by name of the node."""
    found = {}
    for node in quantized.graph.nodes:
        weights = node.operand("w") if isinstance(node.operator.policy, Accumulate) else None
        if weights is not None and weights.type.quantization is not None:
            found[node.name] = np.array(weights.type.quantization.scales)
    return found


def test_clipped_weights_come_closer_to_the_float_ones() -> None:
    """The error that set_integers leaves is the one that was searched for."""
    w = outlying()
    source, _ = clipped(w, np.zeros(4, np.float32))
    made = integers(source, 0.05, per_tensor=False)
    kept = dequantize_weights(made.weights, made.scales, 1).astype(np.float64)
    assert np.array_equal(w.astype(np.float64) - kept, rounding_error(source, 0.05, False))

"""Integers of weights and biases, their overflow proof, and the correction of biases."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from qglow.core.errors import UnsupportedError
from qglow.core.types import Quantization, float_type
from qglow.graph.builder import GraphBuilder
from qglow.graph.graph import Graph, Node, constant
from qglow.graph.ops.conv import Conv
from qglow.graph.ops.linear import Gemm
from qglow.graph.ops.quantize import Quantize
from qglow.graph.verifier import verify_graph
from qglow.numerics.conv import conv_float
from qglow.numerics.weights import dequantize_weights
from qglow.quantization.bias import corrected
from qglow.quantization.weights import FloatWeights, integers, set_integers

X = Quantization.per_tensor(0.05, 7)


def int8_gemm(weights: np.ndarray, bias: np.ndarray | None) -> tuple[Graph, Node]:
    b = GraphBuilder("g")
    x = b.input("x", float_type(2, weights.shape[0]))
    q = b.node(Quantize(), x, output_types=[x.type.quantized(X)])
    placeholder = constant("w", np.zeros(weights.shape, np.int8), Quantization.per_tensor(1.0, 0))
    operands = [q, placeholder] + (
        [constant("bias", np.zeros(len(bias), np.int32))] if bias is not None else []
    )
    node = b.append(Gemm(), *operands)
    return b.finish(node.output), node


def test_integers_follow_the_contract() -> None:
    random = np.random.default_rng(0)
    w, bias = random.normal(size=(16, 4)).astype(np.float32), random.normal(size=4).astype(np.float32)
    graph, node = int8_gemm(w, bias)
    margin = set_integers(graph, node, FloatWeights(w, bias, 1), per_tensor=False)
    verify_graph(graph, "test")
    weights, found_bias = node.operand("w"), node.operand("bias")
    assert weights is not None and weights.data is not None and weights.type.quantization is not None
    assert found_bias is not None and found_bias.data is not None
    scales = np.array(weights.type.quantization.scales, np.float32)
    np.testing.assert_allclose(scales, np.abs(w).max(0) / 127, rtol=1e-6)
    assert np.abs(dequantize_weights(weights.data, scales, 1) - w).max() <= scales.max() / 2 + 1e-7
    np.testing.assert_array_equal(
        found_bias.data, np.rint(bias / (np.float32(0.05) * scales).astype(np.float64))
    )
    assert margin > 1000


def test_one_scale_for_all_channels_on_request() -> None:
    w = np.array([[1.0, 0.1]], np.float32)
    graph, node = int8_gemm(w, None)
    set_integers(graph, node, FloatWeights(w, np.zeros(2, np.float32), 1), per_tensor=True)
    weights = node.operand("w")
    assert weights is not None and weights.type.quantization is not None
    assert weights.type.quantization.axis is None


def test_setting_again_keeps_the_names() -> None:
    w = np.ones((3, 2), np.float32)
    graph, node = int8_gemm(w, np.zeros(2, np.float32))
    for _ in range(2):
        set_integers(graph, node, FloatWeights(w, np.zeros(2, np.float32), 1), per_tensor=False)
    assert [v.name for v in graph.constants()] == ["w", "bias"]


def test_a_sum_that_could_overflow_is_refused() -> None:
    w = np.ones((140_000, 1), np.float32)
    graph, node = int8_gemm(w, None)
    with pytest.raises(UnsupportedError, match="Gemm_0.*channel 0.*beyond int32.*keep_float"):
        set_integers(graph, node, FloatWeights(w, np.zeros(1, np.float32), 1), per_tensor=False)


@pytest.mark.parametrize("group", [1, 4])
@pytest.mark.parametrize("stride", [1, 2])
def test_corrected_bias_restores_the_mean_of_every_channel(group: int, stride: int) -> None:
    random = np.random.default_rng(0)
    x = random.normal(size=(1, 4, 7, 7)) * 0 + np.array([1.0, -2.0, 3.0, 0.5]).reshape(1, 4, 1, 1)
    x = x.astype(np.float32)
    w = random.normal(size=(8, 4 // group, 3, 3)).astype(np.float32)
    bias = random.normal(size=8).astype(np.float32)
    b = GraphBuilder("g")
    operator = Conv(strides=(stride, stride), pads=(1, 0, 2, 1), group=group)
    value = b.input("x", float_type(1, 4, 7, 7))
    node = b.append(operator, value, b.constant("w", w), b.constant("bias", bias))
    source = FloatWeights.of(node)
    fixed = corrected(node, source, 0.05, x.mean((0, 2, 3), dtype=np.float64), True, x.shape)
    made = integers(fixed, 0.05, True)
    rounded = dequantize_weights(made.weights, made.scales, 0)
    window = (operator.strides, operator.pads, operator.dilations, operator.group)
    wanted = conv_float(x, w, bias, *window).mean((0, 2, 3))
    plain = conv_float(x, rounded, bias, *window).mean((0, 2, 3))
    better = conv_float(x, rounded, fixed.bias, *window).mean((0, 2, 3))
    assert np.abs(plain - wanted).max() > 1e-3
    np.testing.assert_allclose(better, wanted, atol=1e-5)


def test_correcting_a_gemm_uses_its_columns() -> None:
    random = np.random.default_rng(0)
    w = random.normal(size=(5, 3)).astype(np.float32)
    b = GraphBuilder("g")
    node = b.append(Gemm(), b.input("x", float_type(1, 5)), b.constant("w", w))
    means = random.normal(size=5)
    fixed = corrected(node, FloatWeights.of(node), 0.05, means, False, (1, 5))
    made = integers(fixed, 0.05, False)
    shift = means @ (w - dequantize_weights(made.weights, made.scales, 1))
    np.testing.assert_allclose(fixed.bias, shift, rtol=1e-5)


def test_means_that_are_not_finite_correct_nothing() -> None:
    b = GraphBuilder("g")
    node = b.append(Gemm(), b.input("x", float_type(1, 2)), b.constant("w", np.eye(2, dtype=np.float32) / 3))
    source = FloatWeights.of(node)
    assert corrected(node, source, 0.05, np.array([np.inf, 0.0]), False, (1, 2)) is source


def test_weights_are_rounded_again_only_where_they_or_their_scales_change() -> None:
    data = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
    source = FloatWeights(data, np.zeros(4, np.float32), axis=1)
    first = integers(source, 0.05, per_tensor=False)
    biased = integers(replace(source, bias=np.ones(4, np.float32)), 0.05, per_tensor=False)
    assert biased.weights is first.weights
    for changed, per_tensor in ((replace(source, weights=data * np.float32(-1)), False), (source, True)):
        fresh = FloatWeights(changed.weights, changed.bias, axis=1)
        found, wanted = (integers(one, 0.05, per_tensor) for one in (changed, fresh))
        np.testing.assert_array_equal(found.weights, wanted.weights)
        assert found.weights is not first.weights

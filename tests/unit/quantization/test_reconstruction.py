"""Rounding of weights by what the layer computes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

import qglow
from qglow.core.types import Array, float_type
from qglow.graph.builder import GraphBuilder
from qglow.graph.graph import Graph, Value
from qglow.graph.interpreter import Interpreter
from qglow.graph.ops.conv import Conv
from qglow.graph.ops.linear import Gemm
from qglow.graph.text import print_graph
from qglow.numerics.conv import conv_float
from qglow.quantization.pipeline import QuantizedGraph, quantize
from qglow.quantization.reconstruction import feedback, learned, round_weights
from qglow.quantization.reconstruction.feedback import expected_error, nearest, rounded_with_feedback
from qglow.quantization.reconstruction.learned import rounded_by_learning
from qglow.quantization.reconstruction.moments import WindowMoments, grouped, ungrouped
from qglow.recipe.schema import Recipe
from tests.fuzzing import examples
from tests.unit.importer.tiny import tiny_model
from tests.unit.profiling.networks import profile_of, residual_network, samples


def correlated(random: np.random.Generator, group: int, length: int) -> Array:
    """A covariance of inputs that share two thirds of what they are."""
    mix = random.normal(size=(group, length, 3))
    shared = np.matmul(mix, mix.transpose(0, 2, 1))
    return np.asarray(shared + 0.5 * np.eye(length))


@given(st.integers(1, 3), st.integers(1, 5), st.integers(1, 90), st.integers(0, 100))
@settings(max_examples=examples(25))
def test_feedback_never_leaves_the_range_and_lowers_the_error(
    group: int, rows: int, length: int, seed: int
) -> None:
    random = np.random.default_rng(seed)
    weights = random.normal(size=(group, rows, length))
    scales = np.max(np.abs(weights), axis=2) / 20
    covariance = correlated(random, group, length)
    found = rounded_with_feedback(weights, scales, covariance)
    assert np.array_equal(found, np.rint(found)) and np.max(np.abs(found)) <= 127
    errors = [
        expected_error(weights, integers, scales, covariance).sum()
        for integers in (found, nearest(weights, scales))
    ]
    assert errors[0] <= errors[1] * (1.0 if length > 30 else 1.5)


@given(st.integers(1, 3), st.integers(1, 5), st.integers(1, 40), st.integers(0, 100))
@settings(max_examples=examples(10))
def test_learning_stays_beside_the_start_and_within_the_range(
    group: int, rows: int, length: int, seed: int
) -> None:
    random = np.random.default_rng(seed)
    weights = random.normal(size=(group, rows, length))
    scales = np.max(np.abs(weights), axis=2) / 120
    covariance = correlated(random, group, length)
    start = rounded_with_feedback(weights, scales, covariance)
    found = rounded_by_learning(weights, scales, covariance, start)
    assert np.array_equal(found, np.rint(found)) and np.max(np.abs(found)) <= 127
    assert np.max(np.abs(found - start)) <= 1
    assert np.array_equal(found, rounded_by_learning(weights, scales, covariance, start))


def test_learning_lowers_what_feedback_leaves() -> None:
    random = np.random.default_rng(4)
    weights = random.normal(size=(1, 48, 40))
    scales = np.max(np.abs(weights), axis=2) / 16
    mix = random.normal(size=(1, 40, 40))
    covariance = np.matmul(mix, mix.transpose(0, 2, 1))
    start = rounded_with_feedback(weights, scales, covariance)
    tried = (nearest(weights, scales), start, rounded_by_learning(weights, scales, covariance, start))
    errors = [expected_error(weights, found, scales, covariance) for found in tried]
    assert np.minimum(errors[1], errors[2]).sum() < 0.98 * errors[1].sum() < 0.98 * errors[0].sum()


def test_a_layer_too_large_to_learn_keeps_its_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learned, "MULTIPLY_ADDS", 10.0)
    start = np.array([[[3.0, -2.0]]])
    found = rounded_by_learning(np.array([[[2.6, -2.4]]]), np.ones((1, 1)), np.ones((1, 2, 2)), start)
    assert found is start


def test_inputs_that_have_nothing_in_common_leave_every_weight_at_the_nearest_integer() -> None:
    random = np.random.default_rng(0)
    weights, scales = random.normal(size=(2, 4, 30)), np.full((2, 4), 0.03)
    covariance = np.stack([np.diag(random.uniform(0.1, 9.0, 30)) for _ in range(2)])
    assert np.array_equal(rounded_with_feedback(weights, scales, covariance), nearest(weights, scales))


def test_inputs_that_never_vary_do_no_harm() -> None:
    weights, scales = np.random.default_rng(0).normal(size=(1, 4, 30)), np.full((1, 4), 0.03)
    found = rounded_with_feedback(weights, scales, np.zeros((1, 30, 30)))
    assert np.array_equal(found, nearest(weights, scales))


def test_blocks_only_order_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(3)
    weights, covariance = random.normal(size=(1, 6, 150)), correlated(random, 1, 150)
    scales = np.full((1, 6), 0.05)
    found = rounded_with_feedback(weights, scales, covariance)
    monkeypatch.setattr(feedback, "BLOCK", 7)
    other = rounded_with_feedback(weights, scales, covariance)
    assert np.mean(found == other) > 0.99


@pytest.mark.parametrize(
    "operator",
    [
        Conv(),
        Conv(strides=(2, 1), pads=(1, 0, 2, 1), group=2),
        Conv(dilations=(1, 2), pads=(1, 1, 1, 1), group=6),
    ],
)
def test_moments_of_all_windows_are_those_of_the_results(operator: Conv) -> None:
    random = np.random.default_rng(1)
    x = random.normal(size=(2, 6, 7, 8)).astype(np.float32)
    w = random.normal(size=(12, 6 // operator.group, 3, 3)).astype(np.float32)
    builder = GraphBuilder("g")
    value = builder.node(operator, builder.input("x", float_type(*x.shape)), builder.constant("w", w), None)
    node = value.producer
    assert node is not None
    counted = WindowMoments(node, 1000)
    for sample in x:
        counted.add(sample[None])
    result = conv_float(x, w, None, operator.strides, operator.pads, operator.dilations, operator.group)
    flat = result.transpose(1, 0, 2, 3).reshape(12, -1).astype(np.float64)
    rows = grouped(node, w).astype(np.float64)
    means = np.sum(rows * counted.means[:, None, :], axis=2).reshape(-1)
    assert np.allclose(means, flat.mean(axis=1), atol=1e-6)
    zero = np.zeros(rows.shape[:2])
    variances = expected_error(rows, np.zeros_like(rows), zero, counted.covariance(centred=True))
    assert np.allclose(variances.reshape(-1), flat.var(axis=1), rtol=1e-5)
    assert np.array_equal(ungrouped(node, grouped(node, w), w), w)
    assert counted.count == flat.shape[1]


def test_rows_of_a_matrix_product_are_its_windows() -> None:
    random = np.random.default_rng(1)
    x, w = (random.normal(size=shape).astype(np.float32) for shape in ((9, 5), (5, 4)))
    builder = GraphBuilder("g")
    value = builder.node(Gemm(), builder.input("x", float_type(9, 5)), builder.constant("w", w), None)
    node = value.producer
    assert node is not None
    counted = WindowMoments(node, 1)
    counted.add(x)
    assert np.allclose(counted.means[0], x.mean(axis=0))
    assert np.allclose(counted.covariance(centred=False)[0], x.T @ x / 9, atol=1e-6)
    assert np.array_equal(ungrouped(node, grouped(node, w), w), w)


def run(graph: Graph, values: Sequence[Value]) -> Iterator[Mapping[Value, Array]]:
    for sample in samples(30, seed=9):
        found: dict[Value, Array] = {}
        Interpreter(graph).run({"x": sample.inputs["x"][None]}, taps=found.__setitem__)
        yield {value: found[value] for value in values}


def quantized() -> QuantizedGraph:
    return quantize(residual_network(), profile_of(30), Recipe())


def error(graph: Graph, reference: Graph) -> float:
    total = 0.0
    for sample in samples(30, seed=9):
        inputs = {"x": sample.inputs["x"][None]}
        wanted, got = (next(iter(Interpreter(g).run(inputs).values())) for g in (reference, graph))
        total += float(((wanted.astype(np.float64) - got) ** 2).sum())
    return total


def test_the_whole_program_comes_closer_and_keeps_its_types() -> None:
    before = quantized()
    text = print_graph(before.graph)
    done: list[int] = []
    after = round_weights(before, run, 30, advance=done.append)
    assert print_graph(before.graph) == text
    assert error(after.graph, before.source) < error(before.graph, before.source)
    assert [v.type for v in after.graph.values()] == [v.type for v in before.graph.values()]
    assert [v.name for v in after.graph.values()] == [v.name for v in before.graph.values()]
    assert sum(done) == 4
    entries = [entry for entry in after.report.log if entry.pass_name == "round-weights"]
    assert len(entries) == 4 and all(entry.applied and not entry.exact for entry in entries)
    margins = {node.name: node.margin for node in after.report.quantized}
    assert margins.keys() == {node.name for node in before.report.quantized}
    assert all(margin is None or margin >= 1.0 for margin in margins.values())


def test_turns_for_little_memory_give_the_same_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = round_weights(quantized(), run, 30)
    monkeypatch.setattr("qglow.quantization.reconstruction.rounding.MEMORY", 1)
    assert print_graph(round_weights(quantized(), run, 30).graph) == print_graph(whole.graph)


def test_long_sums_stay_and_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qglow.quantization.reconstruction.rounding.LONGEST_WINDOW", 10)
    before = quantized()
    after = round_weights(before, run, 30)
    reasons = [e.what for e in after.report.log if e.pass_name == "round-weights" and not e.applied]
    assert reasons and all("more than 10 inputs" in reason for reason in reasons)


@pytest.mark.parametrize("rows", [24, 64, 512])
def test_few_rows_make_no_products_worse(rows: int) -> None:
    random = np.random.default_rng(0)
    mixed = random.normal(size=(64, 64)) * np.logspace(0, -1, 64)
    weights = random.normal(size=(64, 32)).astype(np.float32)
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    model = qglow.load_model(tiny_model([node], {"x": [1, 64]}, ["y"], {"w": weights}))
    others = (random.normal(size=(256, 64)) @ mixed).astype(np.float32)

    def error(quantized: qglow.QuantizedModel) -> float:
        program = quantized.compile()
        return sum(float(np.sum((program({"x": x[None]})["y"] - x @ weights) ** 2)) for x in others)

    samples = {"x": (random.normal(size=(rows, 64)) @ mixed).astype(np.float32)}
    profile = model.profile({"x": others})
    plain = [model.quantize(weights="int4"), model.quantize(profile, check=False)]
    rounded = [
        model.quantize(weights="int4", rounding="gptq", calibration_data=samples),
        model.quantize(profile, check=False, rounding="gptq", calibration_data=samples),
    ]
    four, eight = (error(one) / error(other) for one, other in zip(rounded, plain, strict=True))
    assert four < (1.0 if rows < 512 else 0.6) and eight < 1.01

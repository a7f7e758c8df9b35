"""Gemms in groups of their inputs: the graph that is made, its bits, and what it is good for."""

from __future__ import annotations

import numpy as np
import pytest

from qglow.core.types import Array, float_type
from qglow.exporter import export_qdq
from qglow.graph.builder import GraphBuilder
from qglow.graph.graph import Graph
from qglow.graph.interpreter import Interpreter
from qglow.graph.ops.elementwise import Add
from qglow.graph.ops.linear import Gemm
from qglow.profiling.engine import InterpreterEngine
from qglow.profiling.profile import Profile
from qglow.profiling.profiler import profile
from qglow.profiling.samples import Sample
from qglow.quantization.pipeline import QuantizedGraph, quantize
from qglow.quantization.reconstruction import round_weights
from qglow.recipe.choices import Calibration
from qglow.recipe.rules import Match, Rule
from qglow.recipe.schema import Recipe
from qglow.report.oracle import OnnxruntimeModel
from qglow.toolchain import CompileOptions, compile_graph
from qglow.toolchain.observation import observe
from tests.runtimes import NATIVE_ISAS
from tests.unit.profiling.networks import MODEL

STEEP = 8.0


def network(batch: int = 1) -> Graph:
    """Two Gemms, 80 to 12 to 5; the first has large weights for the first inputs, which are small."""
    random = np.random.default_rng(2)

    def array(*shape: int) -> Array:
        return random.normal(size=shape).astype(np.float32)

    b = GraphBuilder("groups")
    x = b.input("x", float_type(batch, 80))
    w = array(80, 12)
    w[:32] *= STEEP
    hidden = b.node(Gemm(lo=0.0), x, b.constant("w", w), b.constant("bias", array(12)), name="hidden")
    return b.finish(b.node(Gemm(), hidden, b.constant("w2", array(12, 5)), name="y"))


def inputs(count: int = 64) -> list[Array]:
    x = np.random.default_rng(3).normal(size=(count, 80)).astype(np.float32)
    x[:, :32] /= STEEP
    return list(x)


def profiled() -> Profile:
    data = iter([Sample(str(index), {"x": x}) for index, x in enumerate(inputs())])
    return profile(network(), data, InterpreterEngine(network), model=MODEL, batch_size=1)


def quantized(size: int, **options: object) -> QuantizedGraph:
    chosen = Recipe(calibration=Calibration("minmax"), group_size=size, **options)  # type: ignore[arg-type]
    return quantize(network(), profiled(), chosen)


def error(made: Graph) -> float:
    total = 0.0
    for x in inputs():
        given = {"x": x[None]}
        total += float(
            np.sum((Interpreter(made).run(given)["y"] - Interpreter(network()).run(given)["y"]) ** 2)
        )
    return total


def test_a_gemm_becomes_one_for_each_group_and_float_sums_in_their_order() -> None:
    found = quantized(32)
    shapes, sums = {}, []
    for node in found.graph.nodes:
        if isinstance(node.operator, Gemm):
            w = node.operand("w")
            assert w is not None and w.type.quantization is not None
            shapes[node.output.name] = w.type.shape
            assert len(w.type.quantization.scales) == w.type.shape[1]
            assert not node.output.type.is_quantized
        if isinstance(node.operator, Add):
            assert not any(v is not None and v.type.is_quantized for v in node.inputs)
            sums.append([v.name for v in node.inputs if v is not None])
    names = [f"hidden.group{index}" for index in range(3)]
    assert [shapes[name] for name in names] == [(32, 12), (32, 12), (16, 12)]
    assert sums == [names[:2], ["hidden.sum", names[2]]]
    reasons = {node.name: node.reason for node in found.report.float_nodes}
    assert set(reasons.values()) == {"it adds what groups of weights give in float"}
    told = [e for e in found.report.log if e.pass_name == "group-weights" and e.applied]
    assert [entry.what for entry in told] == ["80 inputs in 3 groups, each with scales of its own"]


def test_the_sums_are_those_of_the_numeric_contract() -> None:
    graph = quantized(32).graph
    taps: dict[str, Array] = {}
    Interpreter(graph).run({"x": inputs()[0][None]}, lambda value, array: taps.__setitem__(value.name, array))
    total: Array | None = None
    for node in graph.nodes:
        if not node.output.name.startswith("hidden.group"):
            continue
        x, w, bias = (node.operand(name) for name in ("x", "w", "bias"))
        assert x is not None and w is not None and bias is not None
        assert x.type.quantization is not None and w.type.quantization is not None
        assert w.data is not None and bias.data is not None
        sums = (taps[x.name].astype(np.int64) - x.type.quantization.zero_point) @ w.data.astype(np.int64)
        scales = np.float32(x.type.quantization.scale) * np.array(w.type.quantization.scales, np.float32)
        part = (sums + bias.data).astype(np.int32).astype(np.float32) * scales
        assert np.array_equal(taps[node.output.name], part)
        total = part if total is None else total + part
    assert total is not None
    assert np.array_equal(taps["hidden"], np.maximum(total, 0.0))


def test_the_results_come_closer_to_float() -> None:
    assert error(quantized(32).graph) < 0.8 * error(quantized(0).graph)


@pytest.mark.parametrize("isa", [*NATIVE_ISAS, None])
def test_compiled_code_has_the_bits_of_the_interpreter(isa: str | None) -> None:
    graph = quantized(32).graph
    program = compile_graph(graph, CompileOptions(isa=isa))
    for x in inputs(8):
        expected = Interpreter(graph).run({"x": x[None]})["y"]
        assert np.array_equal(program({"x": x[None]})["y"], expected)


def test_the_exported_model_says_the_same() -> None:
    graph = quantized(32).graph
    oracle = OnnxruntimeModel(export_qdq(graph).SerializeToString(), exact_sums=True)
    for x in inputs(16):
        expected = Interpreter(graph).run({"x": x[None]})["y"]
        difference = np.abs(oracle({"x": x[None]})["y"] - expected)
        assert np.max(difference) <= 0.01 * np.max(np.abs(expected))


def test_it_composes_with_other_options() -> None:
    plain = quantized(32, weight_range="mse")
    runs = [{"x": x[None]} for x in inputs()]
    found = round_weights(plain, lambda graph, values: observe(graph, values, runs), len(runs))
    told = [e.where for e in found.report.log if e.pass_name == "round-weights" and e.applied]
    assert len(told) == 4
    assert error(found.graph) < 1.2 * error(plain.graph)


@pytest.mark.parametrize(
    ("size", "options", "reason"),
    [
        (80, {}, "its 80 inputs are one group"),
        (32, {"per_tensor": True}, "one scale for all its weights is wanted"),
        (32, {"keep_float": ("hidden",)}, "it stays float"),
        (32, {"rules": (Rule(Match(name="hidden"), granularity="tensor"),)}, "one scale for all"),
    ],
)
def test_what_is_not_cut_says_why(size: int, options: dict[str, object], reason: str) -> None:
    found = quantized(size, **options)
    assert not any(isinstance(node.operator, Add) for node in found.graph.nodes)
    assert any(reason in e.what for e in found.report.log if e.pass_name == "group-weights")


def test_gemms_of_one_value_share_its_parts() -> None:
    b = GraphBuilder("shared")
    x = b.input("x", float_type(1, 80))
    w = np.random.default_rng(0).normal(size=(2, 80, 6)).astype(np.float32)
    first = b.node(Gemm(), x, b.constant("a", w[0]), name="first")
    second = b.node(Gemm(), x, b.constant("b", w[1]), name="second")
    graph = b.finish(first, second)
    data = iter([Sample(str(index), {"x": array}) for index, array in enumerate(inputs())])
    seen = profile(graph, data, InterpreterEngine(lambda batch: graph), model=MODEL, batch_size=1)
    found = quantize(graph, seen, Recipe(group_size=40)).graph
    assert [node.operator.name for node in found.nodes].count("Slice") == 2

"""Outlier channels are split in two, the function stays, and what cannot be split says why."""

from __future__ import annotations

import numpy as np
import pytest

from qglow.core.passes import PassLog
from qglow.core.types import Array, float_type
from qglow.graph.builder import GraphBuilder
from qglow.graph.graph import Graph, Node, Value
from qglow.graph.interpreter import Interpreter
from qglow.graph.ops.conv import Conv
from qglow.graph.ops.elementwise import Add, Clip, PRelu, Relu
from qglow.graph.ops.functions import Sigmoid
from qglow.graph.ops.linear import Gemm
from qglow.graph.ops.pool import GlobalAveragePool, MaxPool
from qglow.graph.ops.resize import ResizeNearest
from qglow.graph.ops.shape import Reshape
from qglow.graph.text import print_graph
from qglow.graph.verifier import verify_graph
from qglow.profiling.histogram import ValueProfile
from qglow.quantization.pipeline import quantize
from qglow.quantization.split_channels import Split, split_channels
from qglow.recipe.choices import Calibration
from qglow.recipe.schema import Recipe
from qglow.toolchain import CompileOptions, compile_graph
from tests.unit.profiling.networks import profile_of

DATA = np.random.default_rng(0).normal(size=(8, 3, 6, 6)).astype(np.float32)
GOLDEN = """\
graph g (%x: float<8 x 3 x 6 x 6>) -> (%y) {
  %first: float<8 x 9 x 6 x 6> = Conv @"Conv_0" (%x, %w, %bias) {lo=0.0}
  %mean: float<8 x 9 x 1 x 1> = GlobalAveragePool @"GlobalAveragePool_0" (%first)
  %flat: float<8 x 9> = Reshape @"Reshape_0" (%mean) {shape=[8, 9]}
  %y: float<8 x 5> = Gemm @"Gemm_0" (%flat, %wg)
}
"""
SIZES = np.array([1.0, 16.0, 1.2, 0.5, 0.9, 1.1, 0.7, 1.0], np.float32)


def network(kind: str = "plain", batch: int = 8) -> Graph:
    """Conv to eight channels, the second sixteen times as large; what `kind` says; Conv or Gemm."""
    random = np.random.default_rng(1)
    sizes = SIZES[[0]].repeat(8) if kind == "even" else SIZES

    def array(*shape: int) -> Array:
        return random.normal(size=shape).astype(np.float32)

    b = GraphBuilder("g")
    x = b.input("x", float_type(batch, 3, 6, 6))
    w = b.constant("w", array(8, 3, 1, 1) * sizes.reshape(-1, 1, 1, 1))
    bias = b.constant("bias", array(8) * sizes)
    if kind == "even" and w.data is not None and bias.data is not None:
        w.data[:], bias.data[:] = w.data[:1], 0.0
    first = b.node(Conv(lo=0.0, hi=3.0 if kind == "clip" else np.inf), x, w, bias, name="first")
    if kind == "sum":
        second = b.node(Conv(), x, b.constant("w2", array(8, 3, 1, 1)), name="second")
        first = b.node(Add(lo=0.0), first, second, name="sum")
    elif kind == "pooled":
        first = b.node(MaxPool(kernel=(2, 2), strides=(2, 2)), b.node(Relu(), first), name="pooled")
        first = b.node(ResizeNearest((batch, 8, 6, 6), (1.0, 1.0, 2.0, 2.0)), first, name="wide")
    elif kind == "flat":
        first = b.node(Reshape((batch, 8)), b.node(GlobalAveragePool(), first, name="mean"), name="flat")
        return b.finish(b.node(Gemm(), first, b.constant("wg", array(8, 5)), name="y"))
    elif kind == "sigmoid":
        first = b.node(Sigmoid(), first, name="sigmoid")
    elif kind == "slopes":
        first = b.node(PRelu(), first, b.constant("slope", array(8, 1, 1)), name="slopes")
    elif kind == "bounded":
        first = b.node(Clip(lo=0.0, hi=9.0), first, name="bounded")
    group = 8 if kind == "depthwise" else 1
    y = b.node(
        Conv(pads=(1, 1, 1, 1), group=group), first, b.constant("wy", array(8, 8 // group, 3, 3)), name="y"
    )
    return b.finish(y, first) if kind == "output" else b.finish(y)


def reader(graph: Graph) -> Node:
    """The last node."""
    node = graph.value("y").producer
    assert node is not None
    return node


def profiled(graph: Graph) -> dict[str, ValueProfile]:
    statistics: dict[str, ValueProfile] = {}

    def tap(value: Value, array: Array) -> None:
        statistics[value.name] = ValueProfile.of_shape(array.shape)
        statistics[value.name].observe(array)

    Interpreter(graph).run({"x": DATA}, tap)
    return statistics


def split(graph: Graph, share: float = 0.125) -> tuple[dict[str, ValueProfile], PassLog]:
    statistics, log = profiled(graph), PassLog()
    split_channels(graph, statistics, {}, share, log)
    verify_graph(graph, "split")
    return statistics, log


@pytest.mark.parametrize("kind", ["plain", "sum", "pooled", "flat"])
def test_the_result_stays_and_the_range_halves(kind: str) -> None:
    graph = network(kind)
    before, seen = Interpreter(graph).run({"x": DATA})["y"], profiled(graph)
    statistics, log = split(graph)
    assert log.rewrites == 1 and log.entries[0].exact
    after = Interpreter(graph).run({"x": DATA})["y"]
    np.testing.assert_allclose(after, before, rtol=1e-5, atol=1e-5 * np.abs(before).max())
    read = reader(graph).inputs[0]
    assert read is not None and read.type.shape[1] == 9
    assert 0.499 < statistics[read.name].high / seen[read.name].high < 0.7


@pytest.mark.parametrize("kind", ["plain", "sum", "pooled", "flat"])
def test_statistics_are_those_of_the_new_graph(kind: str) -> None:
    """Ranges and means of channels exactly; the histogram in its range, and nearly in its size."""
    graph = network(kind)
    statistics, _ = split(graph)
    fresh = profiled(graph)
    for name in fresh.keys() & statistics.keys():
        found, wanted = statistics[name], fresh[name]
        assert (found.low, found.high) == pytest.approx((wanted.low, wanted.high), rel=1e-5, abs=1e-6)
        if found.channels is None or wanted.channels is None:
            continue
        np.testing.assert_allclose(found.channels.low, wanted.channels.low, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(found.channels.means(8), wanted.channels.means(8), rtol=1e-4, atol=1e-6)
        assert 0.85 * wanted.total <= found.total <= wanted.total
        used = np.flatnonzero(found.counts)
        assert used.max() == pytest.approx(np.flatnonzero(wanted.counts).max(), abs=1)


def test_channels_are_split_in_four_where_that_fits() -> None:
    graph = network()
    seen = profiled(graph)["first"].high
    statistics, log = split(graph, 0.4)
    assert graph.value("first").type.shape == (8, 11, 6, 6)
    assert statistics["first"].high == pytest.approx(seen / 4)
    assert log.entries[0].what.startswith("1 of 8 channels of %first split, 11 in all")


def test_the_halves_are_exact_and_read_with_the_same_weights() -> None:
    graph = network()
    w, read = graph.value("w").data, graph.value("wy").data
    assert w is not None and read is not None
    split(graph)
    made, reading = graph.value("w").data, graph.value("wy").data
    assert made is not None and reading is not None
    assert np.array_equal(made[1] * 2, w[1]) and np.array_equal(made[8], made[1])
    assert np.array_equal(np.delete(made[:8], 1, 0), np.delete(w, 1, 0))
    assert np.array_equal(reading[:, :8], read) and np.array_equal(reading[:, 8], read[:, 1])


def test_the_graph_after() -> None:
    graph = network("flat")
    split(graph)
    lines = print_graph(graph).splitlines(keepends=True)
    assert "".join(line for line in lines if "= constant" not in line) == GOLDEN


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("clip", "is cut off at 3"),
        ("bounded", "is cut off at 9"),
        ("depthwise", "Conv 'Conv_1' has groups"),
        ("sigmoid", "Sigmoid 'Sigmoid_0' reads"),
        ("slopes", "PRelu 'PRelu_0' is of a fixed number of channels"),
        ("output", "is an output of the model"),
    ],
)
def test_what_cannot_be_split_says_why(kind: str, reason: str) -> None:
    graph = network(kind)
    text = print_graph(graph)
    _, log = split(graph)
    assert log.rewrites == 0 and print_graph(graph) == text
    assert any(reason in entry.what for entry in log.entries), log.entries


def test_channels_of_one_size_are_left_alone() -> None:
    _, log = split(network("even"))
    assert log.rewrites == 0 and "no channels far beyond the others" in log.entries[0].what


def test_what_only_float_nodes_read_is_left_alone() -> None:
    graph, log = network(), PassLog()
    split_channels(graph, profiled(graph), {reader(graph): "because"}, 0.125, log)
    assert log.rewrites == 0 and log.entries[0].what == "what reads it stays float"


def test_copies_are_listed_after_all_channels() -> None:
    found = Split(np.array([1, 4, 2]))
    assert found.source.tolist() == [0, 1, 2, 1, 1, 1, 2]
    assert found.shares.tolist() == [1.0, 0.25, 0.5, 0.25, 0.25, 0.25, 0.5]


@pytest.mark.parametrize("kind", ["plain", "sum", "flat"])
def test_int8_loses_less_and_compiled_code_has_the_bits_of_the_interpreter(kind: str) -> None:
    graph = network(kind, batch=1)
    profile = profile_of(40, graph=graph)
    errors = []
    for share in (0.0, 0.125):
        chosen = Recipe(calibration=Calibration("minmax"), equalize=False, split_channels=share)
        found = quantize(graph, profile, chosen)
        program = compile_graph(found.graph, CompileOptions())
        total = 0.0
        for sample in DATA:
            inputs = {"x": sample[None]}
            result = Interpreter(found.graph).run(inputs)["y"]
            assert np.array_equal(program(inputs)["y"], result)
            total += float(np.sum((result - Interpreter(graph).run(inputs)["y"]) ** 2))
        errors.append(total)
    assert errors[1] < 0.8 * errors[0]

"""Each pass over conversions and rescales: what it does, and when it declines."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from qglow.core.passes import Pass, PassLog, Pipeline
from qglow.core.types import Array, Quantization, TensorType, float_type
from qglow.graph.builder import GraphBuilder
from qglow.graph.graph import Graph, Value
from qglow.graph.interpreter import Interpreter
from qglow.graph.ops.conv import Conv
from qglow.graph.ops.elementwise import Add, Relu
from qglow.graph.ops.pool import AveragePool, MaxPool
from qglow.graph.ops.quantize import Dequantize, Quantize, Rescale
from qglow.graph.ops.selection import Max
from qglow.graph.ops.shape import Concat, Reshape, Transpose
from qglow.graph.text import parse_graph, print_graph
from qglow.graph.verifier import verify_graph
from qglow.quantization.folding.cancel_conversions import CancelConversions
from qglow.quantization.folding.float_results import FloatResults
from qglow.quantization.folding.fold_rescale_down import FoldRescaleDown
from qglow.quantization.folding.fold_rescale_up import FoldRescaleUp
from qglow.quantization.folding.merge_rescales import MergeRescales
from qglow.quantization.folding.sink_rescale import SinkRescale

WIDE = Quantization.per_tensor(0.1, 3)
FINE = Quantization.per_tensor(0.04, -10)
HALF = Quantization.per_tensor(0.05, 0)
SHAPE = (1, 2, 4, 4)


def int8(quantization: Quantization, shape: tuple[int, ...] = SHAPE) -> list[TensorType]:
    return [float_type(*shape).quantized(quantization)]


def start(name: str = "g") -> tuple[GraphBuilder, Value]:
    b = GraphBuilder(name)
    return b, b.input("x", float_type(*SHAPE))


def quantized(b: GraphBuilder, x: Value, quantization: Quantization) -> Value:
    return b.node(Quantize(), x, output_types=int8(quantization, x.type.shape))


def rescaled(b: GraphBuilder, x: Value, quantization: Quantization, **bounds: float) -> Value:
    return b.node(Rescale(**bounds), x, output_types=int8(quantization, x.type.shape))


def conv(b: GraphBuilder, x: Value, quantization: Quantization, **bounds: float) -> Value:
    weights = np.random.default_rng(0).integers(-127, 128, (2, 2, 1, 1)).astype(np.int8)
    w = b.constant("w", weights, Quantization.per_channel(np.array([0.01, 0.02]), 0))
    bias = b.constant("bias", np.array([10, -20], np.int32))
    return b.node(Conv(**bounds), x, w, bias, output_types=int8(quantization))


def run(graph: Graph, step: Pass[Graph]) -> PassLog:
    verify_graph(graph, "before")
    log = Pipeline((step,)).run(graph, verify_graph)
    text = print_graph(graph)
    assert print_graph(parse_graph(text)) == text
    return log


def operators(graph: Graph) -> list[str]:
    return [node.operator.name for node in graph.nodes]


def outputs(graph: Graph, seed: int = 0) -> np.ndarray:
    x = np.random.default_rng(seed).normal(size=graph.inputs[0].type.shape, scale=6).astype(np.float32)
    return next(iter(Interpreter(graph).run({"x": x}).values()))


def check(build: Callable[[], Graph], step: Pass[Graph], tolerance: float) -> Graph:
    """Run the pass; results may move by `tolerance`."""
    before, after = build(), build()
    log = run(after, step)
    assert log.rewrites
    difference = np.abs(outputs(after).astype(np.float64) - outputs(before))
    assert difference.max() <= tolerance + 1e-6
    return after


def refused(graph: Graph, step: Pass[Graph]) -> str:
    before = print_graph(graph)
    log = run(graph, step)
    assert print_graph(graph) == before
    return "; ".join(entry.what for entry in log.entries)


# cancel-conversions


def round_trip(first: Quantization, second: Quantization) -> Graph:
    b, x = start()
    real = b.node(Dequantize(), quantized(b, x, first))
    return b.finish(b.node(Dequantize(), quantized(b, real, second)))


def test_quantizing_a_dequantized_value_with_its_parameters_is_nothing() -> None:
    graph = check(lambda: round_trip(WIDE, WIDE), CancelConversions(), 0.0)
    assert operators(graph) == ["Quantize", "Dequantize"]


def test_quantizing_a_dequantized_value_with_others_is_one_rescale() -> None:
    graph = check(lambda: round_trip(WIDE, FINE), CancelConversions(), FINE.scale)
    assert operators(graph) == ["Quantize", "Rescale", "Dequantize"]


def test_a_shared_dequantize_stays_for_its_other_users() -> None:
    b, x = start()
    real = b.node(Dequantize(), quantized(b, x, WIDE))
    back = b.node(Dequantize(), quantized(b, real, WIDE))
    graph = b.finish(back, real)
    assert run(graph, CancelConversions()).rewrites == 1
    assert operators(graph).count("Dequantize") == 2


def test_a_budget_stops_rewriting() -> None:
    graph = round_trip(WIDE, FINE)
    Pipeline((CancelConversions(),)).run(graph, verify_graph, PassLog(budget=0))
    assert operators(graph) == operators(round_trip(WIDE, FINE))


# merge-rescales


def chain(middle: Quantization, last: Quantization, **bounds: float) -> Graph:
    b, x = start()
    value = rescaled(b, rescaled(b, quantized(b, x, WIDE), middle, **bounds), last)
    return b.finish(b.node(Dequantize(), value))


def test_two_rescales_become_one_that_rounds_once() -> None:
    wider = Quantization.per_tensor(0.2, 0)
    graph = check(lambda: chain(wider, WIDE), MergeRescales(), wider.scale)
    assert operators(graph) == ["Quantize", "Dequantize"]


def test_saturation_in_between_is_kept() -> None:
    graph = check(lambda: chain(FINE, WIDE), MergeRescales(), WIDE.scale)
    bounds = graph.nodes[1].operator
    assert isinstance(bounds, Rescale)
    assert (bounds.lo, bounds.hi) == pytest.approx((-118 * 0.04, 137 * 0.04))


def test_bounds_in_between_are_kept() -> None:
    graph = check(lambda: chain(WIDE, FINE, lo=0.0), MergeRescales(), FINE.scale)
    assert graph.nodes[1].operator == Rescale(lo=0.0, hi=graph.nodes[1].operator.hi)  # type: ignore[attr-defined]


# fold-rescale-up


def after_conv(target: Quantization, others: bool = False, **bounds: float) -> Graph:
    b, x = start()
    y = conv(b, quantized(b, x, WIDE), FINE, **bounds)
    result = b.node(Dequantize(), rescaled(b, y, target))
    return b.finish(result, b.node(Dequantize(), y)) if others else b.finish(result)


@pytest.mark.parametrize("target", [WIDE, HALF, Quantization.per_tensor(0.01, 0)])
def test_a_conv_takes_in_the_rescale_after_it(target: Quantization) -> None:
    graph = check(lambda: after_conv(target, lo=0.0, hi=5.0), FoldRescaleUp(), max(FINE.scale, target.scale))
    assert operators(graph) == ["Quantize", "Conv", "Dequantize"]
    operator = graph.nodes[1].operator
    assert isinstance(operator, Conv)
    assert (operator.lo, operator.hi) == (0.0, 5.0)


def test_the_saturation_of_calibration_goes_and_nothing_gets_worse() -> None:
    before, after = after_conv(WIDE), after_conv(WIDE)
    log = run(after, FoldRescaleUp())
    assert after.nodes[1].operator == Conv()
    assert "no longer saturates to [-4.72, 5.48]" in log.entries[0].what
    b, x = start()
    wide = conv(b, quantized(b, x, WIDE), Quantization.per_tensor(0.5, 0))  # for every sum
    exact = outputs(b.finish(b.node(Dequantize(), wide)))
    saturated = np.abs(outputs(before) - exact) > 1
    assert saturated.any()
    worse = np.abs(outputs(after) - exact) > np.maximum(np.abs(outputs(before) - exact), 0.5 + WIDE.scale)
    assert not worse.any()


def test_bounds_of_the_rescale_become_the_producers() -> None:
    b, x = start()
    y = conv(b, quantized(b, x, WIDE), FINE, hi=4.0)
    graph = b.finish(b.node(Dequantize(), rescaled(b, y, WIDE, lo=0.0, hi=4.5)))
    run(graph, FoldRescaleUp())
    assert graph.nodes[1].operator == Conv(lo=0.0, hi=4.0)


def test_saturation_that_cannot_matter_leaves_no_bound() -> None:
    inner = Quantization.per_tensor(0.01, 0)
    graph = check(lambda: after_conv(inner), FoldRescaleUp(), FINE.scale)
    assert graph.nodes[1].operator == Conv()


def test_a_result_with_other_users_keeps_its_rescale() -> None:
    assert "has other users" in refused(after_conv(WIDE, others=True), FoldRescaleUp())


def test_a_movement_has_no_multiplier_to_fold_into() -> None:
    b, x = start()
    pooled = b.node(MaxPool(kernel=(2, 2)), quantized(b, x, WIDE), output_types=int8(WIDE, (1, 2, 3, 3)))
    graph = b.finish(b.node(Dequantize(), rescaled(b, pooled, FINE)))
    assert "no multiplier" in refused(graph, FoldRescaleUp())


def test_an_average_takes_in_a_rescale_but_no_bounds() -> None:
    def build(target: Quantization, **bounds: float) -> Graph:
        b, x = start()
        mean = b.node(
            AveragePool(kernel=(2, 2)), quantized(b, x, WIDE), output_types=int8(FINE, (1, 2, 3, 3))
        )
        return b.finish(b.node(Dequantize(), rescaled(b, mean, target, **bounds)))

    assert "no bounds" in refused(build(WIDE, lo=0.0), FoldRescaleUp())
    inner = Quantization.per_tensor(0.02, 0)
    assert "Rescale" not in operators(check(lambda: build(inner), FoldRescaleUp(), FINE.scale))


# sink-rescale


def test_a_rescale_sinks_below_a_pool_exactly() -> None:
    def build() -> Graph:
        b, x = start()
        value = rescaled(b, quantized(b, x, WIDE), FINE, lo=-1.0)
        pooled = b.node(MaxPool(kernel=(2, 2), strides=(2, 2)), value, output_types=int8(FINE, (1, 2, 2, 2)))
        return b.finish(b.node(Dequantize(), pooled))

    graph = check(build, SinkRescale(), 0.0)
    assert operators(graph) == ["Quantize", "MaxPool", "Rescale", "Dequantize"]


def concat(*targets: Quantization, plain: bool = False) -> Graph:
    b, x = start()
    q = quantized(b, x, WIDE)
    parts = [rescaled(b, b.node(Transpose((0, 1, 3, 2)), q, output_types=int8(WIDE)), t) for t in targets]
    if plain:
        parts.append(quantized(b, x, targets[0]))
    shape = (1, 2 * len(parts), 4, 4)
    return b.finish(b.node(Dequantize(), b.node(Concat(1), *parts, output_types=int8(targets[0], shape))))


def test_equal_rescales_of_all_operands_sink_below_a_concat() -> None:
    graph = check(lambda: concat(FINE, FINE), SinkRescale(), 0.0)
    assert operators(graph) == ["Quantize", "Transpose", "Transpose", "Concat", "Rescale", "Dequantize"]


def test_a_concat_with_an_operand_of_its_own_keeps_the_rescales() -> None:
    assert "not all its operands are rescaled" in refused(concat(FINE, plain=True), SinkRescale())


def test_a_rescale_with_other_users_does_not_sink() -> None:
    b, x = start()
    value = rescaled(b, quantized(b, x, WIDE), FINE)
    moved = b.node(Reshape((32,)), value, output_types=int8(FINE, (32,)))
    graph = b.finish(b.node(Dequantize(), moved), b.node(Dequantize(), value))
    assert "other users" in refused(graph, SinkRescale())


# fold-rescale-down


def before(user: str, target: Quantization, source: Quantization = FINE, **bounds: float) -> Graph:
    b, x = start()
    value = rescaled(b, quantized(b, x, source), target, **bounds)
    results = {
        "conv": lambda: conv(b, value, WIDE),
        "relu": lambda: b.node(Relu(), value, output_types=int8(HALF)),
        "add": lambda: b.node(Add(), value, quantized(b, x, HALF), output_types=int8(WIDE)),
        "transpose": lambda: b.node(Transpose((0, 1, 3, 2)), value, output_types=int8(target)),
    }
    return b.finish(b.node(Dequantize(), results[user]()))


@pytest.mark.parametrize("user", ["relu", "add"])
def test_users_with_parameters_of_their_own_read_past_a_rescale(user: str) -> None:
    graph = check(lambda: before(user, WIDE), FoldRescaleDown(), 2 * WIDE.scale)
    assert "Rescale" not in operators(graph)


def test_a_conv_reads_past_a_rescale() -> None:
    graph = before("conv", WIDE)
    assert run(graph, FoldRescaleDown()).rewrites == 1
    assert operators(graph) == ["Quantize", "Conv", "Dequantize"]


def test_saturation_that_may_matter_keeps_the_rescale() -> None:
    assert "saturation may matter" in refused(before("add", FINE, WIDE), FoldRescaleDown())
    assert "saturation may matter" in refused(before("add", WIDE, lo=0.0), FoldRescaleDown())


def test_a_movement_shares_parameters_and_keeps_the_rescale() -> None:
    assert "shares parameters" in refused(before("transpose", WIDE), FoldRescaleDown())


# float-results


def returned(*, users: int = 1, moved: bool = False, pooled: bool = False) -> Graph:
    b, x = start()
    value = conv(b, quantized(b, x, WIDE), FINE, lo=0.0)
    if moved:
        value = b.node(Reshape((2, 16)), value, output_types=int8(FINE, (2, 16)))
    if pooled:
        value = b.node(MaxPool(kernel=(2, 2)), value, output_types=int8(FINE, (1, 2, 3, 3)))
    results = [b.node(Dequantize(), value, name=f"y{i}") for i in range(users)]
    return b.finish(*results)


@pytest.mark.parametrize("moved", [False, True])
def test_a_conv_that_is_only_dequantized_gives_float(moved: bool) -> None:
    graph = returned(moved=moved)
    assert run(graph, FloatResults()).rewrites == 1
    assert operators(graph) == (["Quantize", "Conv", "Reshape"] if moved else ["Quantize", "Conv"])
    assert graph.outputs[0].name == "y0"
    rounded, exact = outputs(returned(moved=moved)), outputs(graph)
    inside = exact < FINE.scale * (127 - FINE.zero_point)
    assert np.abs(rounded - exact)[inside].max() <= FINE.scale / 2 + 1e-6


def test_a_result_that_others_read_in_int8_stays_int8() -> None:
    assert run(returned(users=2), FloatResults()).rewrites == 0
    assert run(returned(pooled=True), FloatResults()).rewrites == 0
    assert math.isfinite(outputs(returned(pooled=True)).sum())


def test_a_maximum_reads_operands_of_other_parameters_without_rescales() -> None:
    b, x = start()
    fine, half = quantized(b, x, FINE), quantized(b, x, HALF)
    wide = rescaled(b, fine, WIDE)
    result = b.node(Max(), wide, half, output_types=int8(WIDE))
    graph = b.finish(b.node(Dequantize(), result))
    log = run(graph, FoldRescaleDown())
    assert log.rewrites == 1
    assert operators(graph) == ["Quantize", "Quantize", "Max", "Dequantize"]
    before = run_once(graph)
    assert run(graph, SinkRescale()).rewrites == 0
    np.testing.assert_array_equal(run_once(graph), before)


def run_once(graph: Graph) -> Array:
    feeds = {v.name: np.linspace(-5, 5, 32, dtype=np.float32).reshape(SHAPE) for v in graph.inputs}
    return next(iter(Interpreter(graph).run(feeds).values()))


# choices, constants and outputs


def test_a_maximum_takes_in_the_rescale_after_it_and_exactly_the_one_before_it() -> None:
    def build() -> Graph:
        b, x = start()
        narrow = rescaled(b, quantized(b, x, WIDE), FINE)
        found = b.node(Max(), narrow, quantized(b, x, FINE), output_types=int8(FINE))
        return b.finish(rescaled(b, found, HALF))

    before, graph = build(), build()
    log = run(graph, FoldRescaleDown())
    assert [entry.exact for entry in log.entries if entry.applied] == [True]
    np.testing.assert_array_equal(outputs(graph), outputs(before))
    run(graph, FoldRescaleUp())
    assert "Rescale" not in operators(graph)


def test_a_constant_is_rescaled_at_once_and_bit_for_bit() -> None:
    def build() -> Graph:
        b, x = start()
        data = np.array([-16, 100], np.int8).reshape((1, 2, 1, 1))
        c = rescaled(b, b.constant("c", data, WIDE), FINE)
        return b.finish(
            b.node(Dequantize(), b.node(Add(), quantized(b, x, FINE), c, output_types=int8(FINE)))
        )

    graph = check(build, FoldRescaleUp(), 0.0)
    assert "Rescale" not in operators(graph)


def test_an_int8_output_of_the_graph_is_given_in_its_parameters() -> None:
    b, x = start()
    graph = b.finish(rescaled(b, conv(b, quantized(b, x, WIDE), FINE), HALF))
    name = graph.outputs[0].name
    assert run(graph, FoldRescaleUp()).rewrites == 1
    assert operators(graph) == ["Quantize", "Conv"]
    assert graph.outputs[0].name == name and graph.outputs[0].type.quantization == HALF

"""Channels before a depthwise convolution are brought to one range, and the function stays."""

from __future__ import annotations

import math

import numpy as np
import pytest

from qglow.core.passes import PassLog
from qglow.core.types import float_type
from qglow.graph.builder import GraphBuilder
from qglow.graph.graph import Graph
from qglow.graph.interpreter import Interpreter
from qglow.graph.ops.conv import Conv
from qglow.graph.ops.elementwise import Relu
from qglow.graph.verifier import verify_graph
from qglow.profiling.histogram import ValueProfile
from qglow.quantization.equalize import equalize

RANDOM = np.random.default_rng(0)
DATA = RANDOM.normal(size=(8, 3, 6, 6)).astype(np.float32)


def network(hi: float = math.inf, lo: float = 0.0, others: bool = False, relu: bool = False) -> Graph:
    random = np.random.default_rng(1)
    b = GraphBuilder("g")
    x = b.input("x", float_type(8, 3, 6, 6))
    scale = np.array([1.0, 0.1, 0.01, 2.0], np.float32).reshape(-1, 1, 1, 1)
    w = b.constant("w", random.normal(size=(4, 3, 1, 1)).astype(np.float32) * scale)
    bias = b.constant("bias", random.normal(size=4).astype(np.float32) * scale.reshape(-1))
    first = b.node(Conv(lo=lo, hi=hi), x, w, bias, name="first")
    middle = b.node(Relu(), first, name="relu") if relu else first
    weights = b.constant("dw", random.normal(size=(8, 1, 3, 3)).astype(np.float32))
    y = b.node(Conv(group=4), middle, weights, name="y")
    return b.finish(y, first) if others else b.finish(y)


def profiled(graph: Graph) -> dict[str, ValueProfile]:
    statistics: dict[str, ValueProfile] = {}

    def tap(value: object, array: np.ndarray) -> None:
        statistics[value.name] = ValueProfile.of_shape(array.shape)  # type: ignore[attr-defined]
        statistics[value.name].observe(array)  # type: ignore[attr-defined]

    Interpreter(graph).run({"x": DATA}, tap)  # type: ignore[arg-type]
    return statistics


def equalized(graph: Graph) -> tuple[dict[str, ValueProfile], PassLog]:
    statistics, log = profiled(graph), PassLog()
    equalize(graph, statistics, {}, log)
    verify_graph(graph, "equalized")
    return statistics, log


@pytest.mark.parametrize(("lo", "hi"), [(0.0, math.inf), (-math.inf, math.inf), (0.0, 3.0)])
def test_channels_reach_one_range_and_results_stay(lo: float, hi: float) -> None:
    graph = network(hi, lo)
    before = Interpreter(graph).run({"x": DATA})["y"]
    statistics, log = equalized(graph)
    assert log.rewrites == 1
    np.testing.assert_allclose(
        Interpreter(graph).run({"x": DATA})["y"], before, atol=1e-5 * np.abs(before).max()
    )
    channels = statistics["first"].channels
    assert channels is not None
    magnitude = np.maximum(np.abs(channels.low), np.abs(channels.high))
    assert magnitude == pytest.approx(magnitude.max(), rel=1e-6)
    assert magnitude.max() <= hi


def test_statistics_follow_the_channels() -> None:
    graph = network()
    statistics, _ = equalized(graph)
    fresh = profiled(graph)["first"]
    found = statistics["first"]
    assert found.total == 0 and (found.low, found.high) == pytest.approx((fresh.low, fresh.high), rel=1e-5)
    assert found.channels is not None and fresh.channels is not None
    np.testing.assert_allclose(found.channels.means(8), fresh.channels.means(8), rtol=1e-5, atol=1e-7)


def test_a_bound_above_makes_it_approximate_and_the_log_says_so() -> None:
    assert [e.exact for e in equalized(network())[1].entries] == [True]
    assert [e.exact for e in equalized(network(hi=3.0))[1].entries] == [False]


@pytest.mark.parametrize(
    ("graph", "reason"),
    [
        (network(others=True), "%first has other users"),
        (network(relu=True), "does not come from an int8 convolution"),
        (network(lo=-1.0), "bound -1"),
    ],
)
def test_it_declines_with_a_reason(graph: Graph, reason: str) -> None:
    statistics, log = equalized(graph)
    assert log.rewrites == 0 and reason in log.entries[0].what
    assert all(profile.total for profile in statistics.values())

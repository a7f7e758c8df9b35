"""Channels before a depthwise convolution are brought to one range, and the function stays."""

from __future__ import annotations

import math

import numpy as np
import pytest

from qglow.core.passes import PassLog
from qglow.core.types import float_type
from qglow.graph.builder import GraphBuilder
from qglow.graph.graph import Graph, Value
from qglow.graph.interpreter import Interpreter
from qglow.graph.ops.conv import Conv
from qglow.graph.ops.elementwise import Add, PRelu, Relu
from qglow.graph.ops.functions import Sigmoid
from qglow.graph.ops.linear import Gemm
from qglow.graph.ops.movement import Slice
from qglow.graph.ops.pool import MaxPool
from qglow.graph.ops.reduce import ReduceMean
from qglow.graph.ops.shape import Reshape
from qglow.graph.verifier import verify_graph
from qglow.numerics.schema import Schema
from qglow.profiling.histogram import ValueProfile
from qglow.quantization.channel_factors import ALPHAS, FactorSearch
from qglow.quantization.equalize import Equalization, equalize
from qglow.quantization.scopes import Scopes, producers_of
from qglow.recipe.schema import Recipe

RANDOM = np.random.default_rng(0)
DATA = RANDOM.normal(size=(8, 3, 6, 6)).astype(np.float32)


def network(hi: float = math.inf, lo: float = 0.0, others: bool = False, sigmoid: bool = False) -> Graph:
    random = np.random.default_rng(1)
    b = GraphBuilder("g")
    x = b.input("x", float_type(8, 3, 6, 6))
    scale = np.array([1.0, 0.1, 0.01, 2.0], np.float32).reshape(-1, 1, 1, 1)
    w = b.constant("w", random.normal(size=(4, 3, 1, 1)).astype(np.float32) * scale)
    bias = b.constant("bias", random.normal(size=4).astype(np.float32) * scale.reshape(-1))
    first = b.node(Conv(lo=lo, hi=hi), x, w, bias, name="first")
    middle = b.node(Sigmoid(), first, name="sigmoid") if sigmoid else first
    weights = b.constant("dw", random.normal(size=(8, 1, 3, 3)).astype(np.float32))
    y = b.node(Conv(group=4), middle, weights, name="y")
    return b.finish(y, first) if others else b.finish(y)


def profiled(graph: Graph) -> dict[str, ValueProfile]:
    statistics: dict[str, ValueProfile] = {}

    def tap(value: object, array: np.ndarray) -> None:
        statistics[value.name] = ValueProfile.of_shape(array.shape)  # type: ignore[attr-defined]
        statistics[value.name].observe(array)  # type: ignore[attr-defined]

    Interpreter(graph).run({"x": DATA}, tap)
    return statistics


def search_in(graph: Graph, statistics: dict[str, ValueProfile]) -> FactorSearch:
    return FactorSearch(graph, statistics, len(DATA), lambda value: Schema.asymmetric)


def equalized(graph: Graph) -> tuple[dict[str, ValueProfile], PassLog]:
    statistics, log = profiled(graph), PassLog()
    equalize(graph, statistics, search_in(graph, statistics), {}, Equalization(), log)
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


def test_a_recipe_says_what_is_scaled_and_may_give_the_exponent() -> None:
    assert Equalization.of(Recipe()) == Equalization(equalize=True, smooth=True, alpha=None)
    assert Equalization.of(Recipe(smooth=0.5)) == Equalization(equalize=True, smooth=True, alpha=0.5)
    assert Equalization.of(Recipe(smooth=0.0)) == Equalization(equalize=True, smooth=True, alpha=0.0)
    assert not Equalization.of(Recipe(equalize=False, smooth=False))


def test_a_bound_above_makes_it_approximate_and_the_log_says_so() -> None:
    def exact(graph: Graph) -> list[bool]:
        return [entry.exact for entry in equalized(graph)[1].entries if entry.applied]

    assert exact(network()) == [True]
    assert exact(network(hi=3.0)) == [False]


@pytest.mark.parametrize(
    ("graph", "reason"),
    [
        (network(others=True), "%first is an output of the model"),
        (network(sigmoid=True), "Sigmoid 'Sigmoid_0' reads %first"),
        (network(lo=-1.0), "bound -1"),
    ],
)
def test_it_declines_with_a_reason(graph: Graph, reason: str) -> None:
    statistics, log = equalized(graph)
    assert log.rewrites == 0 and reason in log.entries[0].what
    assert all(profile.total for profile in statistics.values())


def empty_network() -> Graph:
    """A convolution of which nothing is read."""
    b = GraphBuilder("g")
    w = b.constant("w", np.ones((4, 3, 1, 1), np.float32))
    y = b.node(Conv(), b.input("x", float_type(8, 3, 6, 6)), w, name="first")
    nothing = Slice(starts=(0, 0, 0, 0), ends=(8, 0, 6, 6), steps=(1, 1, 1, 1))
    return b.finish(b.node(nothing, y, name="y"))


def test_channels_that_lead_nowhere_are_left_alone() -> None:
    graph = empty_network()
    statistics, log = profiled(graph), PassLog()
    equalize(graph, statistics, search_in(graph, statistics), {}, Equalization(), log)
    assert log.rewrites == 0 and "leaves no channels" in log.entries[0].what


def linear_network(middle: str) -> Graph:
    """Two producers of 4 unequal channels, summed or one left out, and what reads them."""
    random = np.random.default_rng(2)
    scale = np.array([1.0, 0.01, 0.01, 2.0], np.float32)
    b = GraphBuilder("g")
    x = b.input("x", float_type(8, 3, 6, 6))

    def conv(name: str) -> Value:
        weights = random.normal(size=(4, 3, 1, 1)) * scale.reshape(-1, 1, 1, 1)
        return b.node(Conv(), x, b.constant(f"{name}.w", weights.astype(np.float32)), name=name)

    value = b.node(Relu(), conv("first"), name="relu")
    if middle == "sum":
        value = b.node(Add(lo=0.0), value, conv("second"), name="sum")
    elif middle == "pool":
        value = b.node(MaxPool((2, 2), (2, 2)), value, name="pooled")
    elif middle == "mean":
        value = b.node(ReduceMean((2, 3), keepdims=False), value, name="mean")
    if middle in ("flat", "mean"):
        rows = value if middle == "mean" else b.node(Reshape((8, 144)), value, name="flat")
        columns = np.repeat(1.0 / scale, rows.type.shape[1] // 4)
        w = (random.normal(size=(rows.type.shape[1], 5)) * columns[:, None]).astype(np.float32)
        return b.finish(b.node(Gemm(), rows, b.constant("w", w), name="y"))
    w = (random.normal(size=(5, 4, 1, 1)) / scale.reshape(1, -1, 1, 1)).astype(np.float32)
    return b.finish(b.node(Conv(), value, b.constant("w", w), name="y"))


@pytest.mark.parametrize("middle", ["none", "sum", "pool", "mean", "flat"])
def test_factors_go_through_what_lies_between(middle: str) -> None:
    graph = linear_network(middle)
    before = Interpreter(graph).run({"x": DATA})["y"]
    statistics, log = equalized(graph)
    assert log.rewrites == 1
    after = Interpreter(graph).run({"x": DATA})["y"]
    np.testing.assert_allclose(after, before, atol=1e-5 * np.abs(before).max())
    fresh = profiled(graph)
    for name in fresh.keys() - {"x", "y"}:
        assert statistics[name].high == pytest.approx(fresh[name].high, rel=1e-5), name


def test_channels_of_one_size_stay() -> None:
    b = GraphBuilder("g")
    x = b.input("x", float_type(8, 3, 6, 6))
    random = np.random.default_rng(3)
    weights = [random.normal(size=shape).astype(np.float32) for shape in ((4, 3, 1, 1), (5, 4, 1, 1))]
    middle = b.node(Conv(lo=0.0), x, b.constant("w0", weights[0]), name="middle")
    graph = b.finish(b.node(Conv(), middle, b.constant("w1", weights[1]), name="y"))
    statistics, log = equalized(graph)
    assert log.rewrites == 0 and "would fall by" in log.entries[0].what
    assert statistics["middle"].total


@pytest.mark.parametrize("graph", [network(), network(hi=3.0), linear_network("pool")])
def test_exponents_that_are_left_out_could_not_be_the_best(graph: Graph) -> None:
    scope = Scopes(graph).of(next(producers_of(graph)))
    search = FactorSearch(graph, profiled(graph), len(DATA), lambda value: Schema.asymmetric)
    every = [search.best(scope, (alpha,)) for alpha in ALPHAS]
    least, best = min(every, key=lambda factors: factors.after), search.best(scope)
    assert (best.alpha, best.after) == (least.alpha, least.after)
    np.testing.assert_array_equal(best.channels, least.channels)


def test_a_channel_that_a_slope_makes_small_does_not_grow_beyond_the_others_before_it() -> None:
    random = np.random.default_rng(2)
    b = GraphBuilder("g")
    x = b.input("x", float_type(8, 3, 6, 6))
    sizes = np.array([0.1, 0.001, 0.01, 1.0], np.float32)
    w = b.constant("w", random.normal(size=(4, 3, 1, 1)).astype(np.float32) * sizes.reshape(-1, 1, 1, 1))
    bias = b.constant("bias", np.array([-3.0, 0.001, -0.01, 1.0], np.float32))
    before = b.node(Conv(), x, w, bias, name="before")
    slopes = b.constant("slopes", np.array([1e-5, 0.1, 0.2, 0.3], np.float32).reshape(1, -1, 1, 1))
    after = b.node(PRelu(), before, slopes, name="after")
    weights = b.constant("dw", random.normal(size=(4, 1, 3, 3)).astype(np.float32))
    graph = b.finish(b.node(Conv(group=4), after, weights, name="y"))
    seen = profiled(graph)
    assert seen["after"].channels is not None and abs(seen["after"].channels.low[0]) < 1e-3
    search = FactorSearch(graph, seen, len(DATA), lambda value: Schema.asymmetric)
    factors = search.best(Scopes(graph).of(graph.nodes[0]), (1.0,)).channels
    inside = seen["before"].channels
    assert inside is not None
    reach = np.maximum(np.abs(inside.low), np.abs(inside.high))
    assert np.all(reach * factors <= reach.max() * (1.0 + 1e-6))

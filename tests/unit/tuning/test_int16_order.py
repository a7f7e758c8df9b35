"""When values become int16 on the way to float, by hand-made sensitivities."""

from __future__ import annotations

import numpy as np
import pytest

from qglow.core.types import float_type
from qglow.graph.builder import GraphBuilder
from qglow.graph.graph import Graph
from qglow.graph.ops.conv import Conv
from qglow.graph.ops.functions import Sigmoid
from qglow.graph.ops.pool import MaxPool
from qglow.graph.ops.shape import Concat
from qglow.quantization.pipeline import quantize
from qglow.quantization.report import is_int8
from qglow.recipe.schema import Recipe
from qglow.tuning.levels import Cycles, Levels
from qglow.tuning.mix import Mix, Precision, with_mix
from qglow.tuning.needs import int16_needs, widest
from qglow.tuning.order import NO_LIMITS, OrderLimits, Promotion, order_nodes
from qglow.tuning.sensitivity import ROUNDING, WEIGHTS, NoiseSource, Sensitivity, sensitivity
from tests.unit.profiling.networks import profile_of, residual_network
from tests.unit.tuning.networks import quantized, runs, sqnr_db

RESULT = quantized()
"""Values: stem -> depthwise -> pointwise; total adds the last two; mean -> flat -> y."""

NODE = {node.outputs[0].name: node.name for node in RESULT.source.nodes}
"""The node by its result."""

PLANE = 8 * 36 / 4.0
"""Cycles to convert stem, depthwise, pointwise or total."""


def mix(keep_float: tuple[str, ...] = (), int16: tuple[str, ...] = ()) -> Mix:
    """By results of the nodes."""
    return Mix(*(tuple(sorted(NODE[value] for value in values)) for values in (keep_float, int16)))


def cycles(int8: float = 1000.0, int16: float = 2000.0, real: float | None = 8000.0) -> Cycles:
    """The same for all nodes. real: None where float is out of the question."""
    costs = {Precision.INT8: int8, Precision.INT16: int16}
    if real is not None:
        costs[Precision.FLOAT] = real
    return {precision: dict.fromkeys(NODE.values(), cost) for precision, cost in costs.items()}


def order(
    *sources: NoiseSource, costs: Cycles | None = None, limits: OrderLimits = NO_LIMITS
) -> list[Promotion]:
    return order_nodes(RESULT.source, RESULT.graph, Sensitivity(1, sources), costs or cycles(), limits)


def test_a_value_becomes_int16_with_the_sums_that_read_it_where_that_is_cheaper_than_float() -> None:
    [step] = order(NoiseSource("stem", ROUNDING, 0.1))
    assert step.mix == mix(int16=("stem", "depthwise"))
    assert step.noise == pytest.approx(0.1)
    # stem, as what it reads is int16 too, depthwise, and total, which reads that as int16; pointwise as int8.
    assert step.cycles == pytest.approx(3 * 1000.0 + PLANE)
    [dear] = order(NoiseSource("stem", ROUNDING, 0.1), costs=cycles(int16=9500.0))
    assert dear.mix == mix(keep_float=("depthwise",))


def test_what_is_no_sum_need_not_be_int16_to_read_it() -> None:
    [step] = order(NoiseSource("pointwise", ROUNDING, 0.1))
    assert step.mix == mix(int16=("pointwise",))
    assert step.cycles == pytest.approx(1000.0 + PLANE)
    [moved] = order(NoiseSource("mean", ROUNDING, 0.1))
    assert moved.mix == mix(int16=("mean", "y")), "flat moves what it reads"


def test_int16_leaves_the_noise_of_weights_for_float_to_take_away() -> None:
    sources = NoiseSource("stem", ROUNDING, 0.5), NoiseSource("depthwise", WEIGHTS, 0.1)
    first, second = order(*sources)
    assert first.mix == mix(int16=("stem", "depthwise"))
    assert second.mix == mix(keep_float=("depthwise",))
    assert second.noise == pytest.approx(0.1)
    assert Mix.joined([first.mix, second.mix]) == mix(("depthwise",), ("stem",))
    assert second.cycles < 7000.0 - 1000.0, "the time of int16 is not spent any more"


def test_float_that_is_faster_than_int16_costs_less_than_nothing() -> None:
    costs = {**cycles(int16=3000.0, real=4000.0)}
    costs[Precision.FLOAT] = costs[Precision.FLOAT] | {NODE["depthwise"]: 2900.0}
    first, *_ = order(NoiseSource("stem", ROUNDING, 0.5), NoiseSource("depthwise", WEIGHTS, 0.1), costs=costs)
    assert first.mix == mix(keep_float=("depthwise",)), "which takes both"


def test_without_float_nothing_but_int16_is_tried() -> None:
    sources = NoiseSource("total", ROUNDING, 0.1), NoiseSource("depthwise", WEIGHTS, 0.5)
    [step] = order(*sources, costs=cycles(real=None))
    assert step.mix == mix(int16=("total",))


SOURCES = (
    NoiseSource("stem", ROUNDING, 0.5),  # 3072 cycles
    NoiseSource("pointwise", ROUNDING, 0.09),  # 1072 cycles, of 7000
    NoiseSource("y", WEIGHTS, 0.01),  # 7000 cycles and 2 to convert flat
)


@pytest.mark.parametrize(
    ("limits", "noise"),
    [
        (NO_LIMITS, [0.5, 0.09, 0.01]),
        (OrderLimits(0.6), [0.5, 0.09]),
        (OrderLimits(0.5), [0.5]),
        (OrderLimits(0.2), [0.09]),
        (OrderLimits(0.1), []),
        (OrderLimits(least_gain=0.1), [0.5, 0.09]),
        (OrderLimits(least_gain=0.2), [0.5]),
        (OrderLimits(0.2, 0.2), []),
    ],
)
def test_what_goes_beyond_the_limits_is_passed_over(limits: OrderLimits, noise: list[float]) -> None:
    assert [step.noise for step in order(*SOURCES, limits=limits)] == pytest.approx(noise)


def test_with_all_values_in_int16_the_rounding_of_weights_is_left() -> None:
    given = runs(8, seed=1)  # which the profile has seen
    found = sensitivity(RESULT.source, RESULT.graph, given)
    steps = order_nodes(RESULT.source, RESULT.graph, found, cycles(real=None))
    left = found.noise - sum(step.noise for step in steps)
    assert left == pytest.approx(sum(source.noise for source in found.sources if source.kind == WEIGHTS))
    before = sqnr_db(RESULT.source, RESULT.graph, given)
    for count in (1, len(steps) // 2, len(steps)):
        options = with_mix(
            Recipe(calibration=RESULT.recipe.calibration),
            Mix.joined(step.mix for step in steps[:count]),
        )
        mixed = quantize(residual_network(), profile_of(30), options).graph
        after = sqnr_db(RESULT.source, mixed, given)
        assert after > before
        before = after
    assert before == pytest.approx(-10.0 * np.log10(left), abs=1.5)


def joining_network() -> Graph:
    """a = Conv(x [1,3,6,6]); joined = Concat(MaxPool(a), Sigmoid(a)); y = Conv(joined)."""
    random = np.random.default_rng(3)

    def weights(*shape: int) -> np.ndarray:
        return random.normal(size=shape).astype(np.float32)

    b = GraphBuilder("joining")
    x = b.input("x", float_type(1, 3, 6, 6))
    a = b.node(Conv(), x, b.constant("w", weights(4, 3, 1, 1)), name="a")
    moved = b.node(MaxPool(kernel=(2, 2), strides=(2, 2)), a, name="moved")
    small = b.node(MaxPool(kernel=(2, 2), strides=(2, 2)), a, name="small")
    s = b.node(Sigmoid(), small, name="s")
    joined = b.node(Concat(axis=1), moved, s, name="joined")
    return b.finish(b.node(Conv(), joined, b.constant("v", weights(4, 8, 1, 1)), name="y"))


def test_what_has_no_int16_form_has_to_be_float_and_what_joins_values_int16() -> None:
    source = joining_network()
    graph = quantize(source, profile_of(4, graph=source)).graph
    values = {value.name: value for node in graph.nodes for value in node.outputs}
    results = {node.name: node.outputs[0].name for node in source.nodes}

    def needs(value: str) -> dict[str, Precision]:
        return {results[node.name]: least for node, least in int16_needs(values[value]).items()}

    assert needs("a") == {
        "a": Precision.INT16, "s": Precision.FLOAT, "joined": Precision.INT16, "y": Precision.INT16,
    }  # fmt: skip
    assert needs("s") == {"s": Precision.FLOAT, "joined": Precision.INT16, "y": Precision.INT16}
    assert {results[name] for name in widest(graph)} == {"a", "moved", "small", "joined", "y"}


@pytest.mark.parametrize("seed", range(4))
def test_steps_add_up_to_what_the_whole_graph_costs_with_all_of_them(seed: int) -> None:
    source = joining_network()
    graph = quantize(source, profile_of(4, graph=source)).graph
    random, nodes = np.random.default_rng(seed), [node for node in graph.nodes if is_int8(node)]
    values = [value for value in graph.values() if not value.is_constant]
    costs = {p: {n.name: 100.0 * (p + random.random()) for n in source.nodes} for p in Precision}
    noise = tuple(NoiseSource(v.name, kind, random.random()) for v in values for kind in (ROUNDING, WEIGHTS))
    steps = order_nodes(source, graph, Sensitivity(1, noise), costs)
    mix = Mix.joined(step.mix for step in steps)
    taken = {node: Precision.FLOAT for node in nodes if node.name in mix.keep_float}
    taken |= {node: Precision.INT16 for node in nodes if node.name in mix.int16}
    before = Levels.of(graph, costs)
    after = before.changed(taken)
    cost = after.cost(nodes, values) - before.cost(nodes, values)
    assert sum(step.cycles for step in steps) == pytest.approx(cost)
    assert len(steps) > 1 and all(step.noise > 0.0 for step in steps)

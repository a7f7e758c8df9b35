"""In which order nodes become float."""

from __future__ import annotations

import numpy as np
import pytest

from qglow.quantization.pipeline import quantize
from qglow.recipe.schema import Recipe
from qglow.tuning.mix import Precision
from qglow.tuning.order import Promotion, order_nodes
from qglow.tuning.sensitivity import CLIPPING, ROUNDING, WEIGHTS, NoiseSource, Sensitivity, sensitivity
from tests.unit.profiling.networks import profile_of, residual_network
from tests.unit.tuning.networks import quantized, runs, sqnr_db

RESULT = quantized()
"""Values: stem -> depthwise -> pointwise; total adds the last two; mean -> flat -> y."""

NODE = {node.outputs[0].name: node.name for node in RESULT.source.nodes}
"""The node by its result."""


def nodes(*values: str) -> tuple[str, ...]:
    return tuple(sorted(NODE[value] for value in values))


def order(
    *sources: NoiseSource, int8: float = 100.0, real: float = 400.0, **others: float
) -> list[Promotion]:
    """With float beside int8 alone."""
    fast, slow = dict.fromkeys(NODE.values(), int8), dict.fromkeys(NODE.values(), real)
    slow |= {NODE[name]: cycles for name, cycles in others.items()}
    cycles = {Precision.INT8: fast, Precision.FLOAT: slow}
    return order_nodes(RESULT.source, RESULT.graph, Sensitivity(1, sources), cycles)


def test_nodes_that_are_faster_in_16_bits_are_named_there() -> None:
    costs = {
        precision: dict.fromkeys(NODE.values(), 100.0) for precision in (Precision.INT8, Precision.FLOAT)
    }
    found = Sensitivity(1, (NoiseSource("depthwise", ROUNDING, 0.1),))
    halves = {NODE["pointwise"]: "bfloat16", NODE["stem"]: "float16"}
    [step] = order_nodes(RESULT.source, RESULT.graph, found, costs, halves=halves)
    assert step.mix.keep_float == nodes("total") and step.mix.bfloat16 == nodes("pointwise")
    assert not step.mix.float16, "what stays int8 is named nowhere"


def test_a_value_that_sums_give_needs_its_readers_alone() -> None:
    [step] = order(NoiseSource("stem", CLIPPING, 0.1))
    assert step.mix.keep_float == nodes("depthwise")
    assert step.noise == pytest.approx(0.1)


def test_all_readers_of_a_value_become_float_together() -> None:
    [step] = order(NoiseSource("depthwise", ROUNDING, 0.1))
    assert step.mix.keep_float == nodes("pointwise", "total")


def test_a_value_that_no_sums_give_needs_its_producer_too() -> None:
    [step] = order(NoiseSource("total", ROUNDING, 0.1))
    assert step.mix.keep_float == nodes("mean", "total")


def test_weights_need_their_node_alone() -> None:
    [step] = order(NoiseSource("stem", WEIGHTS, 0.1))
    assert step.mix.keep_float == nodes("stem")


def test_most_noise_for_its_time_comes_first() -> None:
    sources = NoiseSource("stem", ROUNDING, 0.1), NoiseSource("pointwise", WEIGHTS, 0.09)
    assert [step.mix.keep_float for step in order(*sources)] == [nodes("depthwise"), nodes("pointwise")]
    dear = order(*sources, depthwise=40000.0)
    assert [step.mix.keep_float for step in dear] == [nodes("pointwise"), nodes("depthwise")]
    assert dear[1].cycles > 39000.0


def test_what_is_float_already_is_not_counted_again() -> None:
    steps = order(
        NoiseSource("depthwise", ROUNDING, 0.5),
        NoiseSource("pointwise", WEIGHTS, 0.1),
        NoiseSource("stem", ROUNDING, 0.1),
    )
    assert steps[0].mix.keep_float == nodes("pointwise", "total")
    assert steps[0].noise == pytest.approx(0.6)
    names = [name for step in steps for name in step.mix.keep_float]
    assert len(names) == len(set(names))
    assert sum(step.noise for step in steps) == pytest.approx(0.7)


def test_conversions_at_new_borders_cost() -> None:
    [inside] = order(NoiseSource("pointwise", WEIGHTS, 0.1), int8=100.0, real=100.0)
    [first] = order(NoiseSource("stem", WEIGHTS, 0.1), int8=100.0, real=100.0)
    # The input of stem is converted no more, its result is: 8 x 36 instead of 3 x 36 elements.
    assert first.cycles == pytest.approx((8 - 3) * 36 / 4.0)
    # pointwise alone would need its input in both forms, and its result converted.
    assert inside.mix.keep_float == nodes("pointwise", "total")
    assert inside.cycles == pytest.approx(8 * 36 / 4.0)


def test_nothing_without_noise_is_a_step() -> None:
    assert order() == []


def test_with_all_steps_taken_hardly_an_error_is_left() -> None:
    given = runs(8)
    found = sensitivity(RESULT.source, RESULT.graph, given)
    steps = order_nodes(RESULT.source, RESULT.graph, found, {Precision.INT8: {}, Precision.FLOAT: {}})
    assert sum(step.noise for step in steps) == pytest.approx(found.noise)
    before, noise = sqnr_db(RESULT.source, RESULT.graph, given), found.noise
    for count in (1, len(steps) // 2, len(steps)):
        names = tuple(name for step in steps[:count] for name in step.mix.keep_float)
        options = Recipe(keep_float=names)
        mixed = quantize(residual_network(), profile_of(30), options).graph
        after = sqnr_db(RESULT.source, mixed, given) if count < len(steps) else np.inf
        assert after > before
        before = after
    assert noise > 0.0

"""Errors inside of loops and branches: where they come from, and what is tried against them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from qglow.core.types import Array, ElementType, Quantization, TensorType, float_type
from qglow.graph.builder import GraphBuilder
from qglow.graph.graph import Graph
from qglow.graph.ops.control import If, Loop
from qglow.graph.ops.elementwise import Mul, Relu
from qglow.graph.ops.logic import Compare
from qglow.graph.ops.reduce import ReduceSum
from qglow.numerics.quantize import dequantize_by, quantize_by
from qglow.profiling.samples import Sample
from qglow.recipe.choices import Calibration
from qglow.recipe.schema import Recipe
from qglow.targets import capabilities
from qglow.targets.registry import select_target
from qglow.tuning.costs import node_cycles
from qglow.tuning.inside import ClippingChange, InsideError, InsideErrors, QuantizedChange, RoundingChange
from qglow.tuning.mix import Mix, with_mix
from qglow.tuning.needs import widest
from qglow.tuning.prediction import ordered_steps
from qglow.tuning.quantizer import Quantizer
from qglow.tuning.ranges import choose_ranges
from qglow.tuning.sensitivity import ROUNDING, WEIGHTS, sensitivity
from tests.unit.tuning.networks import outputs
from tests.unit.tuning.repair_networks import level, made, recurrent

LARGE = "Loop_0.body/large"
KIND = Quantization((0.5,), (0,))


@pytest.fixture(scope="module")
def kept() -> list[Sample]:
    arrays = np.random.default_rng(3).uniform(0.0, 1.0, (8, 40)).astype(np.float32)
    return [Sample(f"sample {i}", {"x": array}) for i, array in enumerate(arrays)]


@pytest.fixture(scope="module")
def quantizer(kept: list[Sample]) -> Quantizer:
    return made(recurrent(), kept)


def runs(kept: list[Sample]) -> list[dict[str, Array]]:
    return [{"x": sample.inputs["x"][None]} for sample in kept]


def test_the_place_in_a_loop_is_found_and_the_prediction_is_near(
    quantizer: Quantizer, kept: list[Sample]
) -> None:
    plain = quantizer(Recipe())
    found = sensitivity(plain.source, plain.graph, runs(kept))
    worst = max(found.sources, key=lambda source: source.noise)
    assert (worst.value, worst.kind) == (LARGE, ROUNDING) and worst.noise > 0.9 * found.noise
    assert {source.value for source in found.sources if source.kind == WEIGHTS} == {
        "Loop_0.body/p",
        "Loop_0.body/q",
    }
    assert found.sqnr_db == pytest.approx(level(quantizer, Recipe(), kept), abs=0.5)


def test_the_first_step_makes_that_place_wide_and_it_helps(quantizer: Quantizer, kept: list[Sample]) -> None:
    plain = quantizer(Recipe())
    wide = quantizer(with_mix(Recipe(), Mix(int16=widest(plain.graph))))
    found = sensitivity(plain.source, plain.graph, runs(kept))
    machine = capabilities.machine(select_target(None))
    steps = ordered_steps(
        quantizer.graph, plain.source, plain.graph, wide.graph, found, machine, may_float=False
    )
    assert steps[0].mix.int16 == ("Loop_0.body/Add_0",) and not steps[0].mix.keep_float
    better = level(quantizer, with_mix(Recipe(), steps[0].mix), kept)
    assert better > level(quantizer, Recipe(), kept) + 25.0


def test_cycles_of_a_node_inside_are_those_of_all_rounds() -> None:
    machine = capabilities.machine(select_target(None))
    inside = node_cycles(recurrent(), machine)["Loop_0.body/Gemm_0"]
    (loop,) = recurrent().nodes
    once = node_cycles(loop.operator.regions[0], machine)["Gemm_0"]
    assert once > 0.0 and inside == pytest.approx(3.0 * once)


def test_ranges_inside_are_compared_by_the_outputs(quantizer: Quantizer, kept: list[Sample]) -> None:
    names = ("minmax", "percentile:60")
    made_by = {n: quantizer(replace(Recipe(), calibration=Calibration.parse(n))) for n in names}
    graphs = {name: result.graph for name, result in made_by.items()}
    choices = {c.value: c for c in choose_ranges(made_by["minmax"].source, graphs, runs(kept), samples=3)}
    assert LARGE in choices and choices[LARGE].best == "minmax"
    assert choices[LARGE].noise["percentile:60"] > choices[LARGE].noise["minmax"] > 0.0


def branches() -> Graph:
    """A branch in a loop: what is carried is doubled where its sum is positive, else given as it is."""
    b = GraphBuilder("double")
    inner = b.input("t", float_type(1, 4))
    double = b.finish(b.node(Mul(), inner, b.constant("two", np.full((1, 1), 2.0, np.float32)), name="twice"))
    b = GraphBuilder("keep")
    keep = b.finish(b.node(Relu(), b.input("t", float_type(1, 4)), name="same"))
    b = GraphBuilder("cell")
    b.input("number", TensorType(ElementType.INT64, ()))
    state = b.input("s", float_type(1, 4))
    total = b.node(ReduceSum(axes=(0, 1), keepdims=False), state)
    flag = b.node(Compare("greater"), total, b.constant("nought", np.float32(0.0)))
    cell = b.finish(b.node(If(double, keep), flag, state, name="next"))
    b = GraphBuilder("branches")
    x = b.input("x", float_type(1, 4))
    return b.finish(b.node(Loop(rounds=2, carried=1, body=cell), None, None, x, name="y"))


def test_each_error_moves_the_outputs_as_it_does_by_hand() -> None:
    graph, x = branches(), np.array([[0.3, 1.1, 70.0, -0.9]], np.float32)
    path = "Loop_0.body/If_0.then_body/"
    errors = [
        InsideError(path, "twice", change(KIND))
        for change in (QuantizedChange, ClippingChange, RoundingChange)
    ]
    power, found = InsideErrors(graph, errors).distances({"x": x})
    exact = outputs(graph, {"x": x})

    def moved(change: object) -> float:
        state = x
        for _ in range(2):
            state = change(np.float32(2.0) * state)  # type: ignore[operator]
        return float(np.sum(np.square(state.astype(np.float64) - exact)))

    low, high = (np.float32(bound) for bound in KIND.real_range)

    def quantized(array: Array) -> Array:
        return dequantize_by(quantize_by(array, KIND), KIND)

    def clipped(array: Array) -> Array:
        return np.clip(array, low, high)

    def rounded(array: Array) -> Array:
        return array + (quantized(array) - clipped(array))

    assert power == pytest.approx(float(np.sum(np.square(exact.astype(np.float64)))))
    assert found == pytest.approx([moved(quantized), moved(clipped), moved(rounded)])
    assert all(found) and len(set(found)) == 3


def test_without_errors_nothing_runs() -> None:
    assert InsideErrors(branches(), []).distances({}) == (0.0, [])

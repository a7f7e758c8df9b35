"""Products that a profile saw too few elements for measure their rows while the model runs."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from qglow.graph.graph import Graph
from qglow.graph.ops.elementwise import Sub
from qglow.graph.ops.pool import GlobalAveragePool
from qglow.graph.ops.reduce import ReduceMean
from qglow.graph.ops.shape import Reshape, Transpose
from qglow.graph.rewriting import operand
from qglow.profiling.histogram import ValueProfile
from qglow.profiling.samples import Sample
from qglow.recipe.choices import FIXED, Calibration
from qglow.recipe.rules import DYNAMIC, Match, Rule
from qglow.recipe.schema import Recipe
from qglow.tuning.quantizer import Quantizer
from qglow.tuning.row_rules import is_even
from qglow.tuning.stage import Stage
from qglow.tuning.without_range import FEWEST, without_range
from tests.unit.quantization.attention_networks import TOKENS, WIDTH, Network, bert, gated_convolutions
from tests.unit.quantization.test_single_steps import BATCH, INPUTS, LSTM, layer_of, stream
from tests.unit.tuning.repair_networks import level, made

DECIDED = (
    Recipe(scheme="cnn"),
    Recipe(per_tensor=True),
    Recipe(requantization=FIXED),
    Recipe(calibration=Calibration("minmax", stated=True)),
    Recipe(assert_all_quantized=True),
)
"""Recipes that leave no product to measure its rows."""


def texts(count: int, seed: int = 3) -> list[Sample]:
    tokens = np.random.default_rng(seed).integers(0, 20, (count, TOKENS))
    return [Sample(f"text {number}", {"tokens": each}) for number, each in enumerate(tokens)]


def drawn(graph: Graph, count: int) -> list[Sample]:
    (given,) = graph.inputs
    arrays = np.random.default_rng(1).normal(size=(count, *given.type.shape[1:])).astype(np.float32)
    return [Sample(f"sample {number}", {given.name: each}) for number, each in enumerate(arrays)]


def seen_often(quantizer: Quantizer) -> dict[str, ValueProfile]:
    """The same histograms, as if of many more elements."""
    statistics = quantizer.statistics
    return {name: replace(seen, counts=seen.counts * FEWEST) for name, seen in statistics.items()}


def named(graph: Graph, result: str) -> str:
    """The name of the node that gives a value."""
    return next(node.name for node in graph.nodes if node.output.name == result)


def test_other_texts_lose_less_than_by_ranges_of_a_few() -> None:
    graph = bert()
    quantizer = made(graph, texts(3))
    recipe, repairs = without_range(Recipe(), graph, quantizer.statistics)
    fresh = texts(40, seed=77)
    assert level(quantizer, recipe, fresh) > level(quantizer, Recipe(), fresh) + 1.0
    repair, *_ = repairs
    assert "measure their rows while the model runs" in repair.what and repair.won_db is None
    report = quantizer(recipe).report
    measured = {node.name for node in report.quantized if node.dynamic}
    assert measured and {operand(n).name for n in graph.nodes if n.name in measured} == set(repair.values)


def test_rows_in_units_of_their_own_measure_are_measured_uneven_as_they_are() -> None:
    """The next series may reach farther from its mean than all that were seen."""
    network = Network()
    given = network.input(1, TOKENS, WIDTH)
    rest = network.add(Sub(), given, network.add(ReduceMean((1, 2)), given, name="mean"), name="rest")
    linear = network.linear(rest, WIDTH, "first")
    graph = network.finish(network.linear(network.block(linear, "a"), 3, "head"))
    samples = [replace(each, inputs={"x": each.inputs["x"] ** 2}) for each in drawn(graph, 8)]
    quantizer = made(graph, samples)
    assert not is_even(rest, quantizer.statistics)
    _, (repair, *_) = without_range(Recipe(), graph, quantizer.statistics)
    assert "first.rows" in repair.values


def test_products_measure_their_rows_however_often_their_inputs_were_seen() -> None:
    """Rows are better than ranges of any number of samples; uneven inputs, results of Gelu, have ranges."""
    graph = bert()
    quantizer = made(graph, texts(40))
    recipe, _ = without_range(Recipe(), graph, seen_often(quantizer))
    report = quantizer(recipe).report
    measured = {node.name for node in report.quantized if node.dynamic}
    assert {named(graph, f"{block}.up") for block in "ab"} <= measured
    kept = [node.reason for node in report.float_nodes if node.reason.startswith("kept by")]
    assert kept and all(reason.endswith(": products that read it measure its rows") for reason in kept)
    assert not {named(graph, f"{block}.down") for block in "ab"} & measured
    fresh = texts(40, seed=77)
    assert level(quantizer, recipe, fresh) > level(quantizer, Recipe(), fresh)


def test_an_uneven_input_that_was_seen_least_reaches_farther() -> None:
    graph = bert()
    quantizer = made(graph, texts(3))
    recipe, (_, repair) = without_range(Recipe(), graph, quantizer.statistics)
    (rule,) = [rule for rule in recipe.rules if rule.calibration is not None]
    assert str(rule.calibration) == "minmax:1.35" and "1.35 times" in repair.what
    values = {value.name: value for value in graph.values()}
    gelus = [values[name] for name in repair.values if name.endswith("gelu")]
    assert len(gelus) == 2
    assigned = {tensor.value: tensor for tensor in quantizer(recipe).report.tensors}
    for value in gelus:
        seen, found = quantizer.statistics[value.name], assigned[value.name]
        assert found.scale * 255 == pytest.approx(1.35 * (seen.high - seen.low), rel=0.01)
    often, _ = without_range(Recipe(), graph, seen_often(quantizer))
    assert not [rule for rule in often.rules if rule.calibration is not None]


def test_networks_without_attention_stay_as_they_are() -> None:
    graph = gated_convolutions()
    statistics = made(graph, drawn(graph, 4)).statistics
    assert without_range(Recipe(), graph, statistics) == (Recipe(), ())


@pytest.mark.parametrize("recipe", [*DECIDED, Recipe(dynamic=True)])
def test_a_recipe_that_decides_stays_as_it_is(recipe: Recipe) -> None:
    graph = bert()
    assert without_range(recipe, graph, made(graph, texts(3)).statistics) == (recipe, ())


def test_rules_come_first() -> None:
    graph = bert()
    statistics = made(graph, texts(3)).statistics
    rule = Rule(Match(operator="Gemm"), dtype="int8")
    assert without_range(Recipe(rules=(rule,)), graph, statistics) == (Recipe(rules=(rule,)), ())


def test_a_pooled_row_that_a_classifier_alone_reads_is_float() -> None:
    network = Network()
    x = network.norm(network.input(1, TOKENS, WIDTH), "norm0")
    x = network.linear(network.block(x, "a"), WIDTH, "projected")
    columns = network.add(Transpose((0, 2, 1)), x, name="columns")
    square = network.add(Reshape((1, WIDTH, 2, TOKENS // 2)), columns, name="square")
    pooled = network.add(GlobalAveragePool(), square, name="pooled")
    flat = network.add(Reshape((1, WIDTH)), pooled, name="flat")
    graph = network.finish(network.linear(flat, 4 * WIDTH, "head"))
    recipe, _ = without_range(Recipe(), graph, made(graph, drawn(graph, 3)).statistics)
    by_type = {rule.dtype: rule.match.name or "" for rule in recipe.rules}
    assert re.fullmatch(by_type["float"], named(graph, "pooled"))
    assert re.fullmatch(by_type[DYNAMIC], named(graph, "head"))


def test_other_products_get_the_calibration_that_suits_the_outputs() -> None:
    """A rehearsal has weights and biases of products that measure their rows."""
    graph = bert()
    kept = texts(32)
    quantizer = made(graph, kept)
    rule = Rule(Match(name=named(graph, "a.up")), dtype=DYNAMIC)
    stage = Stage.first(Recipe(rules=(rule,)), quantizer, kept)
    assert stage.level == pytest.approx(level(quantizer, stage.recipe, kept), abs=1.0)


def test_a_state_that_calls_carry_is_measured_in_every_model() -> None:
    graph = stream(LSTM)
    recipe, (repair,) = without_range(Recipe(), graph, {})
    assert repair.what == "one product measures its rows while the model runs" and repair.values == ("h",)
    rule = recipe.rules[0]
    assert (rule.match.name, rule.dtype) == (re.escape(layer_of(graph).name), DYNAMIC)


@pytest.mark.parametrize("recipe", [*DECIDED, Recipe(io="int8")])
def test_a_state_is_not_measured_where_a_recipe_has_ranges(recipe: Recipe) -> None:
    assert without_range(recipe, stream(LSTM), {}) == (recipe, ())


def test_states_of_many_steps_keep_their_range() -> None:
    assert without_range(Recipe(), stream(LSTM, steps=2), {}) == (Recipe(), ())


def test_a_state_beyond_all_samples_is_not_clipped() -> None:
    """Streams of calibration were short; later ones carry a state that is ten times as large."""
    graph = stream(LSTM)

    def calls(count: int, seed: int, loud: float) -> list[Sample]:
        random = np.random.default_rng(seed)
        shapes = {v.name: v.type.shape for v in graph.inputs}
        drawn = [
            {n: random.normal(size=s).astype(np.float32) for n, s in shapes.items()} for _ in range(count)
        ]
        given = [each | {"h": np.clip(loud * each["h"], -1, 1)} for each in drawn]
        return [Sample(f"call {i}", each, whole=(BATCH, INPUTS)) for i, each in enumerate(given)]

    kept, later = calls(8, 5, 0.1), calls(8, 6, 1.0)
    quantizer = made(graph, kept)
    recipe, _ = without_range(Recipe(), graph, quantizer.statistics)
    assert level(quantizer, recipe, later) > level(quantizer, Recipe(), later) + 3.0

"""The mean error of rounded weights leaves the result, whatever the shape of the input."""

from __future__ import annotations

import numpy as np
import pytest

from qglow.core.types import Array, float_type
from qglow.graph.builder import GraphBuilder
from qglow.graph.graph import Graph
from qglow.graph.interpreter import Interpreter
from qglow.graph.ops.linear import Gemm
from qglow.graph.ops.shape import Reshape
from qglow.profiling.histogram import ValueProfile
from qglow.quantization.bias import channel_means
from qglow.quantization.dynamic import added_bias, multiplies_scaled_rows
from qglow.quantization.pipeline import quantize_with
from qglow.recipe.rules import Match, Rule
from qglow.recipe.schema import Recipe

SAMPLES, TOKENS = 16, 6
DATA = np.random.default_rng(0).normal(4.0, 0.5, size=(SAMPLES, TOKENS, 32)).astype(np.float32)


def network() -> Graph:
    random = np.random.default_rng(1)
    b = GraphBuilder("g")
    x = b.input("x", float_type(1, TOKENS, 32))
    # A large weight a column leaves few levels to the others, whose errors then show in the mean.
    w = random.normal(size=(32, 5)).astype(np.float32)
    w[0] = 40.0
    rows = b.node(Reshape((TOKENS, 32)), x, name="rows")
    return b.finish(b.node(Gemm(), rows, b.constant("w", w), name="y"))


def run(graph: Graph) -> Array:
    program = Interpreter(graph)
    return np.stack([program.run({"x": sample[None]})["y"] for sample in DATA])


def statistics(graph: Graph) -> dict[str, ValueProfile]:
    found: dict[str, ValueProfile] = {}

    def tap(value: object, array: np.ndarray) -> None:
        name: str = value.name  # type: ignore[attr-defined]
        found.setdefault(name, ValueProfile.of_shape(array.shape)).observe(array)

    for sample in DATA:
        Interpreter(graph).run({"x": sample[None]}, tap)
    return found


@pytest.mark.parametrize("rules", [(), (Rule(Match(operator="Gemm"), dtype="dynamic"),)])
def test_every_row_of_a_sample_counts_in_the_mean(rules: tuple[Rule, ...]) -> None:
    """Of products with a range and of those that measure their rows."""
    graph = network()
    expected = run(graph)
    off = {}
    for correct in (False, True):
        recipe = Recipe(correct_bias=correct, rules=rules)
        made = quantize_with(graph, statistics(graph), SAMPLES, recipe)
        off[correct] = np.abs(np.mean(run(made.graph) - expected, axis=(0, 1))).max()
    assert off[True] < 0.2 * off[False]


def test_a_rule_leaves_the_bias_of_a_product_that_measures_its_rows_as_it_is() -> None:
    graph = network()
    rules = tuple(
        Rule(Match(operator="Gemm"), dtype="dynamic", correct_bias=correct) for correct in (None, False)
    )
    with_bias, without = (
        quantize_with(graph, statistics(graph), SAMPLES, Recipe(rules=(rule,))).graph for rule in rules
    )
    (first,), (second,) = (
        [node for node in found.nodes if multiplies_scaled_rows(node)] for found in (with_bias, without)
    )
    assert added_bias(first) is not None and added_bias(second) is None


def test_means_of_rows_do_not_depend_on_the_shape_that_was_profiled_most() -> None:
    """Texts of different lengths: rows are those that were counted, not the samples times one length."""
    seen = ValueProfile.of_shape((3, 4))
    rows = [np.full((length, 4), value, np.float32) for length, value in ((3, 1.0), (9, 2.0))]
    for each in rows:
        seen.observe(each)
    for tokens in (1, 3, 50):
        b = GraphBuilder("g")
        x = b.input("x", float_type(1, tokens, 4))
        graph = b.finish(b.node(Reshape((tokens, 4)), x, name="rows"))
        assert seen.channels is not None
        means = channel_means(seen.channels, seen.total, 2, graph, graph.outputs[0])
        assert means == pytest.approx(np.concatenate(rows).mean(axis=0))

"""Recurrent layers of one step, whose product of the state measures its rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from qglow.core.types import Array, float_type
from qglow.graph.builder import GraphBuilder
from qglow.graph.graph import Graph, Node
from qglow.graph.interpreter import interpret
from qglow.graph.ops.linear import Gemm
from qglow.graph.ops.movement import Slice
from qglow.graph.ops.recurrence import Recurrence
from qglow.graph.ops.shape import Reshape
from qglow.graph.verifier import verify_graph
from qglow.profiling.samples import Sample
from qglow.quantization.dynamic import rows_of, unfit_for_rows
from qglow.quantization.pipeline import QuantizedGraph, quantize_with
from qglow.recipe.rules import Match, Rule
from qglow.recipe.schema import Recipe
from tests.unit.tuning.repair_networks import made

INPUTS, WIDTH, BATCH = 6, 20, 3
LSTM = Recurrence("lstm", ("sigmoid", "tanh", "tanh"), ((), (), ()))
GRU = Recurrence("gru", ("sigmoid", "tanh"), ((), ()), linear_before_reset=True)
RNN = Recurrence("rnn", ("tanh",), ((),))
ROWS = Recipe(rules=tuple(Rule(Match(operator=name), dtype="dynamic") for name in ("Gemm", "Recurrence")))


def stream(layer: Recurrence, steps: int = 1, constant_state: bool = False, **given: Array) -> Graph:
    """A layer between two products, with its states as inputs and outputs. given: operands by name."""
    random, b = np.random.default_rng(4), GraphBuilder("stream")
    columns = layer.gates * WIDTH

    def weights(name: str, rows: int, count: int) -> Any:
        return b.constant(name, (random.normal(size=(rows, count)) / np.sqrt(rows)).astype(np.float32))

    x = b.input("x", float_type(steps * BATCH, INPUTS))
    none = b.constant("none", np.zeros(columns, np.float32))
    sums = b.node(Gemm(), x, weights("w", INPUTS, columns), none, name="sums")
    shaped = b.node(Reshape((steps, BATCH, columns)), sums)
    zeros = np.zeros((BATCH, WIDTH), np.float32)
    hidden = b.constant("h", zeros) if constant_state else b.input("h", float_type(BATCH, WIDTH))
    content = b.input("c", float_type(BATCH, WIDTH)) if layer.cell == "lstm" else hidden
    beside = [
        None if given.get(name) is None else b.constant(name, given[name]) for name in ("bias", "peepholes")
    ]
    states = b.node(
        layer, shaped, weights("r", WIDTH, columns), hidden, content, *beside, None, name="states"
    )
    last = states.producer.outputs[1]
    place = 0 if layer.reverse else steps
    new = b.node(Slice((place, 0, 0), (place + 1, BATCH, WIDTH), (1, 1, 1)), states, name="new")
    flat = b.node(Reshape((BATCH, WIDTH)), new, name="flat")
    y = b.node(Gemm(), flat, weights("v", WIDTH, 4), b.constant("b", np.zeros(4, np.float32)), name="y")
    return b.finish(y, new, last) if layer.cell == "lstm" else b.finish(y, new)


def layer_of(graph: Graph) -> Node:
    return next(node for node in graph.nodes if node.operator.recurs is not None)


def drawn(graph: Graph) -> dict[str, Array]:
    random = np.random.default_rng(7)
    return {v.name: random.normal(size=v.type.shape).astype(np.float32) for v in graph.inputs}


def measured(graph: Graph, recipe: Recipe = ROWS) -> QuantizedGraph:
    return quantize_with(graph, {}, 0, recipe)


@pytest.mark.parametrize(
    "layer",
    [LSTM, GRU, RNN, replace(LSTM, reverse=True), replace(GRU, reverse=True)],
    ids=["lstm", "gru", "rnn", "lstm in reverse", "gru in reverse"],
)
def test_the_product_of_the_state_measures_its_rows_and_the_cell_is_float(layer: Recurrence) -> None:
    bias = np.linspace(-1, 1, WIDTH, dtype=np.float32)
    graph = stream(layer, **({"bias": bias} if layer.cell == "gru" else {}))
    result = measured(graph)
    verify_graph(result.graph, "rewritten")
    assert [v.name for v in result.graph.outputs] == [v.name for v in graph.outputs]
    assert not any(node.operator.recurs for node in result.graph.nodes)
    name = layer_of(graph).name
    assert {node.name for node in result.report.quantized if node.dynamic} >= {name}
    given = drawn(graph)
    expected, got = interpret(graph, given), interpret(result.graph, given)
    for output, array in expected.items():
        error = np.linalg.norm(got[output] - array) / np.linalg.norm(array)
        assert 0.0 < error < 0.02, output


def test_large_states_lose_no_more_than_small_ones() -> None:
    graph = stream(LSTM)
    result, given = measured(graph), drawn(graph)
    for factor in (0.01, 100.0):
        scaled = given | {"h": given["h"] * np.float32(factor)}
        expected, got = interpret(graph, scaled)["new"], interpret(result.graph, scaled)["new"]
        assert np.linalg.norm(got - expected) < 0.02 * np.linalg.norm(expected)


PEEPHOLES = np.ones(3 * WIDTH, np.float32)


@pytest.mark.parametrize(
    ("graph", "reason"),
    [
        (stream(LSTM, steps=2), "many steps"),
        (stream(LSTM, constant_state=True), "no call gives its first state"),
        (stream(replace(GRU, linear_before_reset=False)), "reset"),
        (stream(replace(LSTM, clip=3.0)), "its cell is"),
        (stream(replace(LSTM, input_forget=True)), "its cell is"),
        (stream(replace(RNN, activations=("relu",))), "its cell is"),
        (stream(LSTM, peepholes=PEEPHOLES), "its cell is"),
    ],
    ids=["steps", "constant", "reset", "clip", "forget", "relu", "peepholes"],
)
def test_other_layers_have_no_product_of_rows_and_say_why(graph: Graph, reason: str) -> None:
    assert reason in (unfit_for_rows(layer_of(graph)) or "")
    assert any(node.operator.recurs for node in measured(graph).graph.nodes)


def test_a_layer_whose_first_state_is_read_with_the_new_one_stays_whole() -> None:
    graph = stream(LSTM)
    graph.outputs = [*graph.outputs, layer_of(graph).output]
    assert "as well" in (unfit_for_rows(layer_of(graph)) or "")


def test_a_rule_that_makes_readers_of_the_states_int8_leaves_the_layer_whole() -> None:
    graph = stream(LSTM)
    cut = next(node for node in graph.nodes if node.output.name == "new")
    recipe = replace(ROWS, rules=(*ROWS.rules, Rule(Match(name=cut.name), dtype="int8")))
    statistics = made(graph, [Sample("call", drawn(graph), whole=(BATCH, INPUTS))]).statistics
    result = quantize_with(graph, dict(statistics), 1, recipe)
    verify_graph(result.graph, "rewritten")
    assert any(node.operator.recurs for node in result.graph.nodes)


def test_rows_are_those_of_the_state() -> None:
    graph = stream(RNN)
    assert rows_of(layer_of(graph)).name == "h"
    assert [rows_of(node).name for node in graph.nodes if node.operator.accumulate] == ["x", "flat"]

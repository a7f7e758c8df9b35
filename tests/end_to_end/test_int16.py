"""int16 activations from a recipe's rules to compiled code, files and onnxruntime."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import qglow
from qglow.api.quantized import load_quantized
from qglow.core.types import ElementType
from qglow.display.terminal import to_text
from qglow.exporter import export_qdq
from qglow.graph.interpreter import Interpreter
from qglow.profiling.samples import Sample
from qglow.quantization.pipeline import QuantizedGraph
from qglow.recipe import load_recipe
from qglow.recipe.rules import Match, Rule
from qglow.report.layers import compare_layers
from qglow.report.oracle import OnnxruntimeModel
from tests.end_to_end.bits import assert_compiled_tensors_equal, interpreted_tensors
from tests.end_to_end.zoo_flow import MODELS, RUNNABLE, float_graph, inputs, quantized, recipe
from tests.zoo import REPOSITORY

EVERYTHING = (Rule(Match(name=".*"), dtype="int16"),)
MIXED = (Rule(Match(operator="Conv"), dtype="int16"), Rule(Match(name="block2.*"), dtype="int8"))
DIGITS = REPOSITORY / "calib_data"


@cache
def wide(name: str, batch: int, rules: tuple[Rule, ...] = EVERYTHING) -> QuantizedGraph:
    """The model with the shipped recipe's options and these rules."""
    options = recipe(name)
    return quantized(name, batch, replace(options, rules=rules))


def sqnr(name: str, found: QuantizedGraph, batch: int) -> float:
    """dB of the outputs against the float model over one batch."""
    fed = inputs(name, batch)
    wanted, given = (Interpreter(g).run(fed) for g in (float_graph(name, batch), found.graph))
    signal = sum(float(np.sum(np.square(a, dtype=np.float64))) for a in wanted.values())
    noise = sum(float(np.sum(np.square(given[k] - a, dtype=np.float64))) for k, a in wanted.items())
    return 10 * float(np.log10(signal / noise))


@pytest.mark.parametrize("rules", [EVERYTHING, MIXED], ids=["all", "mixed"])
@pytest.mark.parametrize("isa", RUNNABLE)
def test_bits_of_compiled_code_are_those_of_the_interpreter(isa: str, rules: tuple[Rule, ...]) -> None:
    graph, fed = wide("digits", 4, rules).graph, inputs("digits", 4)
    kinds = {v.type.element for v in graph.values() if v.type.is_quantized and not v.is_constant}
    assert kinds == {ElementType.INT16} if rules is EVERYTHING else {ElementType.INT8, ElementType.INT16}
    assert_compiled_tensors_equal(graph, fed, isa, interpreted_tensors(graph, fed))


@pytest.mark.parametrize("rules", [EVERYTHING, MIXED], ids=["all", "mixed"])
@pytest.mark.parametrize("name", ["digits", pytest.param("cifar10_resnet20", marks=pytest.mark.slow)])
def test_onnxruntime_agrees_node_by_node(name: str, rules: tuple[Rule, ...]) -> None:
    model, fed = wide(name, 4, rules), inputs(name, 4)
    outputs = OnnxruntimeModel(export_qdq(model.graph).SerializeToString())(fed)
    assert {k: a.shape for k, a in outputs.items()} == {v.name: v.type.shape for v in model.graph.outputs}
    rows = [Sample(str(row), {k: array[row] for k, array in fed.items()}) for row in range(4)]
    matches = [x.match for x in compare_layers(model.source, model.graph, rows).layers if x.match]
    assert len(matches) > 10 and max(m.max_step for m in matches) <= 1
    assert sum(m.different for m in matches) < 2e-3 * sum(m.elements for m in matches)


@pytest.mark.parametrize(
    ("name", "gained"),
    [
        ("digits", 3.0),
        pytest.param("cifar10_resnet20", 7.0, marks=pytest.mark.slow),
        pytest.param("mlkws_ds_cnn_l", 3.0, marks=pytest.mark.slow),
    ],
)
def test_int16_is_nearer_to_float_than_int8(name: str, gained: float) -> None:
    batch = MODELS[name].batches[-1]
    assert sqnr(name, wide(name, batch), batch) > sqnr(name, quantized(name, batch), batch) + gained


def test_a_recipe_file_reaches_the_program_on_disk(tmp_path: Path) -> None:
    recipe_file = tmp_path / "recipe.yaml"
    recipe_file.write_text("rules:\n- {match: {operator: Conv}, dtype: int16}\n")
    model = qglow.load_model(DIGITS / "digits.onnx")
    made = model.quantize(
        model.profile(DIGITS / "calib.npz", samples=16), load_recipe(recipe_file), repair=False
    )
    made.save(tmp_path / "out")
    text = made.text()
    assert "i16[S:" in text and "i8[S:" in text
    fed = {"input": np.load(DIGITS / "test.npz")["input"][:1]}
    wanted = made.interpret(fed)
    loaded = qglow.load(tmp_path / "out" / "model.qglow")
    np.testing.assert_array_equal(loaded(fed)["logits"], wanted["logits"])
    again = load_quantized(tmp_path / "out")
    assert again.text() == text and again.recipe.rules == made.recipe.rules
    assert "int16" in to_text(again.explain("block0.conv/Conv"))

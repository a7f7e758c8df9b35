"""A block of attention under the scheme `cnn`: its products are int8, what lies between scores and Softmax
stays float."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

import qglow
from qglow import Array, Model, QuantizedModel
from qglow.exporter import export_qdq
from qglow.graph.interpreter import Interpreter
from qglow.importer import import_model
from qglow.passes import canonicalize
from qglow.profiling.samples import Sample
from qglow.quantization.imported import quantize_imported
from qglow.recipe.schema import Recipe
from qglow.report.layers import compare_layers
from qglow.toolchain import CompileOptions, compile_graph
from tests.end_to_end.zoo_flow import RUNNABLE
from tests.unit.importer.tiny import save, tiny_model

LENGTH, HEADS, DEPTH, WIDTH = 13, 2, 12, 24
MASKED = -1e9


def heads(name: str, perm: list[int]) -> list[object]:
    """The projection `name` of x in heads."""
    return [
        helper.make_node("MatMul", ["x", f"w{name}"], [f"{name}1"]),
        helper.make_node("Reshape", [f"{name}1", "heads"], [f"{name}2"]),
        helper.make_node("Transpose", [f"{name}2"], [name], perm=perm),
    ]


NODES = [
    *heads("q", [0, 2, 1, 3]),
    *heads("k", [0, 2, 3, 1]),
    *heads("v", [0, 2, 1, 3]),
    helper.make_node("MatMul", ["q", "k"], ["scores"]),
    helper.make_node("Mul", ["scores", "factor"], ["scaled"]),
    helper.make_node("Add", ["scaled", "mask"], ["masked"]),
    helper.make_node("Softmax", ["masked"], ["weights"], axis=-1),
    helper.make_node("MatMul", ["weights", "v"], ["mixed"]),
    helper.make_node("Transpose", ["mixed"], ["back"], perm=[0, 2, 1, 3]),
    helper.make_node("Reshape", ["back", "joined"], ["rows"]),
    helper.make_node("MatMul", ["rows", "wo"], ["out"]),
    helper.make_node("Add", ["out", "x"], ["y"]),
]


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    weights = {f"w{n}": normal(WIDTH, WIDTH, seed=i) / 5 for i, n in enumerate("qkvo")}
    constants = {
        "heads": np.array([0, 0, HEADS, DEPTH]),
        "joined": np.array([0, 0, WIDTH]),
        "factor": np.float32(DEPTH**-0.5),
        "mask": np.triu(np.full((LENGTH, LENGTH), MASKED, np.float32), 1),
        **weights,
    }
    built = tiny_model(NODES, {"x": ["N", LENGTH, WIDTH]}, ["y"], constants, input_type=TensorProto.FLOAT)
    return qglow.load_model(save(built, tmp_path_factory.mktemp("attention")))


@pytest.fixture(scope="module")
def int8(model: Model) -> QuantizedModel:
    return model.quantize(model.profile({"x": normal(32, LENGTH, WIDTH, seed=9)}), repair=False, scheme="cnn")


def fed(seed: int = 11) -> dict[str, Array]:
    return {"x": normal(1, LENGTH, WIDTH, seed=seed)}


def test_products_are_int8_and_the_mask_is_not(int8: QuantizedModel) -> None:
    products = [node for node in int8.graph.nodes if node.operator.name == "MatMul"]
    assert [[v.type.is_quantized for v in node.inputs if v] for node in products] == [[True, True]] * 2
    assert [node.output.type.is_quantized for node in products] == [False, True]
    reasons = {node.name: node.reason for node in int8.report.float_nodes}
    between = [reason for reason in reasons.values() if "which gives float itself" in reason]
    assert len(between) == 2, reasons
    margins = {node.name: node.margin for node in int8.report.quantized if node.operator == "MatMul"}
    assert len(margins) == 2 and all(margin is not None and margin > 1 for margin in margins.values())


def test_mask_costs_the_scores_nothing(model: Model, int8: QuantizedModel) -> None:
    found, wanted = int8.compile()(fed())["y"], model.compile()(fed())["y"]
    noise = np.sum((found - wanted).astype(np.float64) ** 2)
    assert 10 * np.log10(np.sum(wanted.astype(np.float64) ** 2) / noise) > 28


def test_bits_are_those_of_every_isa_and_node_by_node_of_onnxruntime(int8: QuantizedModel) -> None:
    expected = Interpreter(int8.graph).run(fed())["y"]
    for isa in RUNNABLE:
        np.testing.assert_array_equal(
            compile_graph(int8.graph, CompileOptions(isa=isa, observe=False))(fed())["y"], expected, isa
        )
    compared = compare_layers(int8.float_graph, int8.graph, [Sample("0", {"x": fed()["x"][0]})])
    fused = compared.matches(optimized=True)
    assert fused.elements and fused.different == 0


def test_the_export_read_again_is_the_same_program(int8: QuantizedModel, tmp_path: Path) -> None:
    path = tmp_path / "attention.qdq.onnx"
    export_qdq(int8.graph, path)
    again = quantize_imported(canonicalize(import_model(path).graph)).graph
    products = [node for node in again.nodes if node.operator.name == "MatMul"]
    assert all(v is not None and v.type.is_quantized for node in products for v in node.inputs)
    np.testing.assert_array_equal(Interpreter(again).run(fed())["y"], Interpreter(int8.graph).run(fed())["y"])


def test_a_recipe_keeps_products_float(model: Model) -> None:
    profile = model.profile({"x": normal(4, LENGTH, WIDTH)})
    kept = model.quantize(profile, Recipe(keep_float=("op:MatMul",), scheme="cnn"), repair=False)
    products = [node for node in kept.graph.nodes if node.operator.name == "MatMul"]
    assert not any(v is not None and v.type.is_quantized for node in products for v in node.inputs)

"""Mixtures of experts by default: weights in blocks, routers in float, and what is exported of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import qglow
from qglow.core.types import Array
from qglow.graph.graph import Node
from qglow.graph.traits import BlockForm
from qglow.quantization.experts import BESIDE, ROUTES
from qglow.recipe.choices import BlockFormat
from qglow.recipe.loading import parse_recipe
from qglow.recipe.schema import Recipe
from tests.unit.importer.test_experts import integers as in_blocks
from tests.unit.importer.tiny import saturates, save, session

ROWS, WIDTH, HIDDEN, EXPERTS, K = 12, 32, 48, 4, 2


def mixture() -> onnx.ModelProto:
    """A router, a MoE, and a layer behind it."""
    random = np.random.default_rng(5)
    constants: dict[str, Array] = {
        "route": random.normal(size=(WIDTH, EXPERTS)),
        "w1": random.normal(size=(EXPERTS, HIDDEN, WIDTH)) / 6,
        "b1": random.normal(size=(EXPERTS, HIDDEN)),
        "w2": random.normal(size=(EXPERTS, WIDTH, HIDDEN)) / 7,
        "b2": random.normal(size=(EXPERTS, WIDTH)),
        "last": random.normal(size=(WIDTH, 8)) / 6,
    }
    nodes = [
        helper.make_node("MatMul", ["x", "route"], ["scores"], name="router"),
        helper.make_node(
            "MoE",
            ["x", "scores", "w1", "b1", "w2", "b2"],
            ["mixed"],
            name="mixture",
            domain="com.microsoft",
            k=K,
            activation_type="silu",
            normalize_routing_weights=1,
        ),
        helper.make_node("MatMul", ["mixed", "last"], ["y"], name="head"),
    ]
    stored = [numpy_helper.from_array(a.astype(np.float32), n) for n, a in constants.items()]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [ROWS, WIDTH])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [ROWS, 8])
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph(nodes, "mixture", [x], [y], stored)
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def rows(seed: int) -> dict[str, Array]:
    return {"x": np.random.default_rng(seed).normal(size=(ROWS, WIDTH)).astype(np.float32)}


def decibels(wanted: Array, found: Array) -> float:
    return float(10 * np.log10(np.sum(wanted**2) / np.sum((wanted - found) ** 2)))


def measures_rows(node: Node) -> bool:
    """Whether rows of a product are integers with scales that are measured."""
    return node.operand("row_scales") is not None


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> qglow.Model:
    return qglow.load_model(save(mixture(), tmp_path_factory.mktemp("mixture")), native=True)


@pytest.mark.parametrize(
    ("recipe", "bits"),
    [(Recipe(), 8), (Recipe(dynamic=True), 8), (Recipe(weights=BlockFormat(4, 16)), 4)],
    ids=["default", "dynamic", "int4"],
)
def test_weights_of_experts_get_blocks_and_the_router_stays_float(
    model: qglow.Model, recipe: Recipe, bits: int, tmp_path: Path
) -> None:
    profile = model.profile([rows(seed) for seed in range(4)]) if recipe == Recipe() else None
    quantized = model.quantize(profile, recipe)
    products = [node for node in quantized.graph.nodes if node.operator.name == "ExpertBlockGemm"]
    assert [node.operator.weight_blocks for node in products] == [
        BlockForm(bits, 16 if bits == 4 else 32)
    ] * 2
    assert [measures_rows(node) for node in products] == [recipe.dynamic] * 2
    reasons = {node.name: node.reason for node in quantized.report.float_nodes}
    assert reasons["router"].endswith(ROUTES)
    if recipe == Recipe():
        assert reasons["mixture__activated"].endswith(BESIDE)
        assert reasons["mixture__weighted_results"].endswith(BESIDE)
    sample = rows(9)
    wanted = model.compile()(sample)["y"]
    found = quantized.compile()(sample)["y"]
    assert decibels(wanted, found) > (14 if bits == 4 else 30)
    quantized.save(tmp_path / "out")
    exported = onnx.load(tmp_path / "out" / "model.qdq.onnx")
    if recipe == Recipe() or (recipe.dynamic and saturates()):
        return  # onnxruntime rounds sums of integers elsewhere than it
    assert decibels(found, session(exported).run(None, sample)[0]) > 90


def test_a_rule_keeps_experts_float(model: qglow.Model) -> None:
    recipe = parse_recipe("rules: [{match: {operator: ExpertGemm}, dtype: float}]")
    quantized = model.quantize(model.profile([rows(0)]), recipe)
    assert sum(node.operator.name == "ExpertGemm" for node in quantized.graph.nodes) == 2


def test_a_rule_gives_experts_other_blocks(model: qglow.Model) -> None:
    recipe = parse_recipe("rules: [{match: {operator: ExpertGemm}, weights: 'int4:16'}]")
    quantized = model.quantize(model.profile([rows(0)]), recipe)
    kinds = [node.operator.weight_blocks for node in quantized.graph.nodes if node.operator.weight_blocks]
    assert kinds == [BlockForm(4, 16)] * 2


@pytest.mark.parametrize(("weights", "bits"), [("", 8), (", weights: 'int4:16'", 4)])
def test_a_rule_measures_rows_of_experts(model: qglow.Model, weights: str, bits: int, tmp_path: Path) -> None:
    """Integers of rows are multiplied with weights in blocks, those of experts by default or of the rule."""
    rule = f"{{match: {{operator: ExpertGemm}}, dtype: dynamic{weights}}}"
    recipe = parse_recipe(f"rules: [{rule}, {{match: {{name: head}}, dtype: float}}]")
    quantized = model.quantize(model.profile([rows(0)]), recipe)
    products = [node for node in quantized.graph.nodes if node.operator.weight_blocks]
    block = 32 if bits == 8 else 16
    assert [node.operator.weight_blocks for node in products] == [BlockForm(bits, block)] * 2
    assert all(measures_rows(node) for node in products)
    quantized.save(tmp_path / "out")
    found, exported = quantized.compile()(rows(9))["y"], onnx.load(tmp_path / "out" / "model.qdq.onnx")
    assert decibels(found, session(exported).run(None, rows(9))[0]) > 90


def test_measured_rows_at_run_time(tmp_path: Path) -> None:
    """One program multiplies any number of rows, each with the bits that it has alone."""
    proto = mixture()
    for value in (*proto.graph.input, *proto.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "rows"
    model = qglow.load_model(save(proto, tmp_path), native=True)
    bounded = model.quantize(None, Recipe(dynamic=True, weights=BlockFormat(8, 16, False))).compile(
        bounds={"rows": ROWS}
    )
    x = rows(4)["x"]
    alone = np.concatenate([bounded({"x": row[None]})["y"] for row in x])
    for count in (1, 3, ROWS):
        assert np.array_equal(bounded({"x": x[:count]})["y"], alone[:count])


def correlated(seed: int) -> dict[str, Array]:
    """Rows whose elements depend on each other, as those of layers do."""
    random = np.random.default_rng(seed)
    mixed = np.random.default_rng(1).normal(size=(WIDTH // 4, WIDTH))
    return {"x": (random.normal(size=(ROWS, WIDTH // 4)) @ mixed).astype(np.float32)}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("rounding", ["gptq", "awq-gptq"])
def test_weights_of_experts_are_rounded_by_their_own_rows(
    model: qglow.Model, rounding: str, dynamic: bool
) -> None:
    recipe = Recipe(weights=BlockFormat(4, 32), keep_float=("head", "router"), dynamic=dynamic)
    samples = [correlated(seed) for seed in range(40)]
    nearest = model.quantize(None, recipe)
    fed_back = model.quantize(None, recipe, rounding=rounding, calibration_data=samples)
    judged = [correlated(seed) for seed in range(100, 120)]
    wanted, *found = (
        np.concatenate([program(s)["y"] for s in judged])
        for program in (model.compile(), nearest.compile(), fed_back.compile())
    )
    assert decibels(wanted, found[1]) > decibels(wanted, found[0]) + 1.0
    told = {entry.where for entry in fed_back.report.log if "squared error" in entry.what}
    assert {"mixture__product1", "mixture__product2"} <= told


def test_an_expert_without_rows_keeps_the_nearest_codes(model: qglow.Model) -> None:
    recipe = Recipe(weights=BlockFormat(4, 32), keep_float=("head", "router"))
    one = [{"x": correlated(3)["x"][[0] * ROWS]}]
    nearest = model.quantize(None, recipe)
    fed_back = model.quantize(None, recipe, rounding="gptq", calibration_data=one)
    before, after = (
        next(node.operand("w") for node in each.graph.nodes if node.name == "mixture__product1")
        for each in (nearest, fed_back)
    )
    assert before is not None and after is not None and before.data is not None and after.data is not None
    same = (before.data == after.data).reshape(len(before.data), EXPERTS, -1).all(axis=(0, 2))
    assert same.sum() == EXPERTS - K


@pytest.mark.parametrize("size", ["4.6 bits", "6 bits"])
def test_sizes_count_experts(model: qglow.Model, size: str) -> None:
    """Their formats are chosen with those of all layers, and the noise is about what was predicted."""
    samples = [rows(seed) for seed in range(8)]
    mix = qglow.mix_weights(model, samples, size, recipe=Recipe(keep_float=("router",)))
    assert {layer.layer for layer in mix.layers} == {"mixture__product1", "mixture__product2", "head"}
    assert mix.bits <= float(size.split()[0])
    real, quantized = model.compile(), model.quantize(recipe=mix.recipe).compile()
    wanted, found = (np.concatenate([program(s)["y"] for s in samples]) for program in (real, quantized))
    assert decibels(wanted, found) == pytest.approx(mix.sqnr_db, abs=1.5)


@pytest.mark.parametrize(("bits", "zeros"), [(4, False), (8, True)])
def test_blocks_of_the_model_meet_measured_rows(bits: int, zeros: bool, tmp_path: Path) -> None:
    """QMoE has its weights in blocks already; `dynamic` makes integers of the rows, and keeps the weights."""
    given = in_blocks(np.random.default_rng(4), bits, 16, zeros, k=2)
    model = qglow.load_model(save(given.proto(), tmp_path), native=True)
    quantized = model.quantize(None, Recipe(dynamic=True))
    products = [node for node in quantized.graph.nodes if node.operator.weight_blocks]
    assert len(products) == 2 and all(measures_rows(node) for node in products)
    wanted = model.compile()(given.inputs)["y"]
    assert decibels(wanted, quantized.compile()(given.inputs)["y"]) > 30

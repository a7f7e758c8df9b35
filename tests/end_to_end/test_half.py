"""float16 and bfloat16 from a recipe's rules to compiled code, files, onnxruntime and back."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

import qglow
from qglow.api.quantized import load_quantized
from qglow.core.types import HALF_TYPES, Array, ElementType, float_type
from qglow.display.terminal import to_text
from qglow.exporter import export_qdq
from qglow.graph.builder import GraphBuilder
from qglow.graph.graph import Graph
from qglow.graph.interpreter import Interpreter
from qglow.graph.ops.conv import Conv
from qglow.graph.ops.functions import RoundTo
from qglow.graph.ops.linear import Gemm
from qglow.graph.ops.shape import Reshape
from qglow.importer.model import import_model
from qglow.numerics.half import store
from qglow.passes import canonicalize
from qglow.quantization.half import store_rounded
from qglow.recipe import load_recipe
from tests.runtimes import NATIVE_ISAS
from tests.unit.importer.tiny import save, session, tiny_model
from tests.zoo import REPOSITORY

DIGITS = REPOSITORY / "calib_data"
RULES = """rules:
- {match: {name: "block[0-2].*"}, dtype: float16}
- {match: {operator: Gemm}, dtype: bfloat16}
"""


def exact_network(element: str) -> tuple[Graph, dict[str, Array]]:
    """Conv and Gemm of weights in 16 bits and rounded results, whose sums are exact in any order."""
    random = np.random.default_rng(4)

    def quarters(*shape: int) -> Array:
        return (random.integers(-16, 17, shape) / 4).astype(np.float32)

    b = GraphBuilder("exact")
    x = b.input("x", float_type(1, 3, 5, 5))
    w = b.constant("w", store(quarters(4, 3, 3, 3), element))
    raw = b.node(Conv(lo=0.0), x, w, b.constant("bias", quarters(4)), name="conv")
    rounded = b.node(RoundTo(element), raw, name="rounded")
    flat = b.node(Reshape(shape=(1, 36)), rounded, name="flat")
    product = b.node(Gemm(), flat, b.constant("v", store(quarters(36, 7), element)), name="product")
    return b.finish(b.node(RoundTo(element), product, name="y")), {"x": quarters(1, 3, 5, 5)}


@pytest.mark.parametrize("optimize", [False, True])
@pytest.mark.parametrize("element", list(HALF_TYPES))
def test_onnxruntime_gives_the_same_numbers_and_the_file_comes_back(
    element: str, optimize: bool, tmp_path: Path
) -> None:
    graph, fed = exact_network(element)
    model = export_qdq(graph, tmp_path / "exact.onnx")
    stored = {t.name: t.data_type for t in model.graph.initializer if len(t.dims) > 1}
    kind = {"float16": TensorProto.FLOAT16, "bfloat16": TensorProto.BFLOAT16}[element]
    assert set(stored.values()) == {kind} and len(stored) == 2
    wanted = Interpreter(graph).run(fed)["y"]
    (given,) = session(model, optimize).run(["y"], fed)
    assert np.array_equal(given, wanted) and len(np.unique(wanted)) > 3
    again = canonicalize(import_model(tmp_path / "exact.onnx").graph)
    assert np.array_equal(Interpreter(again).run(fed)["y"], wanted)
    assert set(store_rounded(again).values()) == {element}
    halves = [v for v in again.constants() if v.type.is_half]
    assert [v.type.element for v in halves] == [HALF_TYPES[element]] * 2
    assert np.array_equal(Interpreter(again).run(fed)["y"], wanted)


def test_a_recipe_reaches_files_and_every_instruction_set(tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(RULES)
    model = qglow.load_model(DIGITS / "digits.onnx")
    profile = model.profile(DIGITS / "calib.npz", samples=16)
    made = model.quantize(profile, load_recipe(recipe), repair=False)
    made.save(tmp_path / "out")
    fed = {"input": np.load(DIGITS / "test.npz")["input"][:1]}
    found = {name: made.compile(isa=name)(fed)["logits"] for name in NATIVE_ISAS}
    with_fma = {hashlib.sha256(y.tobytes()).hexdigest() for name, y in found.items() if name != "generic"}
    assert len(with_fma) <= 1
    for logits in (*found.values(), made.interpret(fed)["logits"]):
        np.testing.assert_allclose(logits, found[NATIVE_ISAS[-1]], rtol=0.02, atol=0.05)
    loaded = qglow.load(tmp_path / "out" / "model.qglow")
    assert np.array_equal(loaded(fed)["logits"], made.compile()(fed)["logits"])
    again = load_quantized(tmp_path / "out")
    assert again.text() == made.text() and again.recipe.rules == made.recipe.rules
    assert "bfloat16 by rule 2" in to_text(again.explain("logits/Gemm"))

    returned = qglow.load_model(tmp_path / "out" / "model.qdq.onnx").quantize()
    assert np.array_equal(returned.compile()(fed)["logits"], made.compile()(fed)["logits"])
    kinds = {node.name: node.dtype for node in returned.report.float_nodes}
    assert kinds["block0.conv/Conv"] == "float16" and kinds["logits/Gemm"] == "bfloat16"


def test_models_that_compute_in_16_bits_are_computed_in_32(tmp_path: Path) -> None:
    half = helper.make_node("Cast", ["x"], ["h"], to=TensorProto.BFLOAT16)
    use = helper.make_node("Relu", ["h"], ["y"])
    path = save(tiny_model([half, use], {"x": [2]}, ["y"], output_type=TensorProto.BFLOAT16), tmp_path)
    model = qglow.load_model(path)
    fed = {"x": np.array([1.00293, -3.0], np.float32)}
    for found in (model.interpret(fed)["y"], model.compile()(fed)["y"]):
        assert found.dtype == ElementType.BFLOAT16.dtype
        np.testing.assert_array_equal(found.astype(np.float32), [1.0, 0.0])


def test_casts_of_constants_and_between_both_types(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Cast", ["c"], ["narrow"], to=TensorProto.BFLOAT16),
        helper.make_node("Cast", ["narrow"], ["wide"], to=TensorProto.FLOAT),
        helper.make_node("Cast", ["x"], ["first"], to=TensorProto.FLOAT16),
        helper.make_node("Cast", ["first"], ["second"], to=TensorProto.BFLOAT16),
        helper.make_node("Cast", ["second"], ["back"], to=TensorProto.FLOAT),
        helper.make_node("Add", ["back", "wide"], ["y"]),
    ]
    constant = np.array([1.0, 1.0 + 2.0**-8, 3.14159], np.float16)
    model = tiny_model(nodes, {"x": [3]}, ["y"], {"c": constant}, opset=21)
    fed = {"x": np.array([1e6, 1.00293, -(2.0**-25)], np.float32)}
    found = Interpreter(import_model(save(model, tmp_path)).graph).run(fed)["y"]
    assert np.array_equal(found, session(model).run(["y"], fed)[0])

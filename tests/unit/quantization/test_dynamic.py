"""Products whose rows are scaled while the model runs: what is rewritten, refused and reported."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

import qglow
from qglow.core.errors import UsageError
from qglow.core.passes import PassLog
from qglow.core.types import Array, float_type
from qglow.exporter import export_qdq
from qglow.graph.builder import GraphBuilder
from qglow.graph.graph import Graph, Node, Value
from qglow.graph.interpreter import Interpreter, interpret
from qglow.graph.ops.conv import Conv
from qglow.graph.ops.linear import Gemm
from qglow.graph.ops.shape import Reshape
from qglow.graph.rewriting import operand
from qglow.graph.verifier import verify_graph
from qglow.numerics.rows import row_scales
from qglow.quantization.blocks import unfit_for_blocks
from qglow.quantization.dynamic import (
    added_bias,
    multiplies_scaled_rows,
    scale_rows,
    scaled_columns,
    unfit_for_rows,
)
from qglow.quantization.pipeline import quantize_with
from qglow.quantization.reconstruction import round_weights
from qglow.recipe.rules import Match, Rule
from qglow.recipe.schema import Recipe
from tests.unit.importer.tiny import saturates, save, session, tiny_model

RANDOM = np.random.default_rng(3)
W1 = RANDOM.normal(size=(24, 16)).astype(np.float32)
W2 = RANDOM.normal(size=(16, 8)).astype(np.float32)
BIAS = RANDOM.normal(size=16).astype(np.float32)
X = RANDOM.normal(size=(5, 24)).astype(np.float32) * np.array([1, 10, 0.01, 3, 0], np.float32)[:, None]


def two_layers() -> Graph:
    b = GraphBuilder("g")
    x = b.input("x", float_type(5, 24))
    hidden = b.node(Gemm(lo=0.0), x, b.constant("w1", W1), b.constant("b1", BIAS), name="hidden")
    return b.finish(b.node(Gemm(), hidden, b.constant("w2", W2), name="y"))


def products(graph: Graph) -> list[Node]:
    return [node for node in graph.nodes if node.operator.accumulate is not None]


def reference(x: Array, w: Array, bias: Array | None) -> Array:
    """Rule 11 in numpy, with int64 sums."""
    scales = row_scales(x)
    columns = np.maximum(np.abs(w).max(axis=0) / np.float32(127), np.float32(2.0**-100))
    whole = np.rint(np.clip(x / scales, -127, 127)).astype(np.int64)
    weights = np.rint(np.clip(w / columns, -127, 127)).astype(np.int64)
    y = (whole @ weights).astype(np.float32) * (scales * columns)
    return y if bias is None else y + bias


def test_the_result_is_that_of_the_numeric_contract() -> None:
    graph = two_layers()
    made = scale_rows(graph, dict.fromkeys(products(graph)), PassLog())
    verify_graph(graph, "rewritten")
    hidden = np.maximum(reference(X, W1, BIAS), 0)
    assert np.array_equal(interpret(graph, {"x": X})["y"], reference(hidden, W2, None))
    assert set(made.margins) == {"Gemm_0", "Gemm_1"} and min(made.margins.values()) > 1


def test_bits_of_a_row_do_not_depend_on_its_neighbours() -> None:
    graph = two_layers()
    scale_rows(graph, dict.fromkeys(products(graph)), PassLog())
    together = interpret(graph, {"x": X})["y"]
    for index in range(len(X)):
        alone = interpret(graph, {"x": np.repeat(X[index : index + 1], 5, axis=0)})["y"][0]
        assert np.array_equal(alone, together[index])


def test_products_that_read_the_same_rows_share_their_integers() -> None:
    b = GraphBuilder("g")
    x = b.input("x", float_type(5, 24))
    first, second = (b.node(Gemm(), x, b.constant(f"w{i}", W1), name=f"y{i}") for i in range(2))
    graph = b.finish(first, second)
    scale_rows(graph, dict.fromkeys(products(graph)), PassLog())
    assert sum(node.operator.name == "RowScales" for node in graph.nodes) == 1


@pytest.mark.parametrize("other, measured", [((5, 24), 1), ((10, 12), 2)])
def test_products_share_the_integers_of_rows_that_each_reads_in_its_own_shape(
    other: tuple[int, int], measured: int
) -> None:
    b = GraphBuilder("g")
    x = b.input("x", float_type(1, 5, 24))
    rows = [b.node(Reshape(shape), x) for shape in ((5, 24), other)]
    weights = [b.constant(f"w{i}", W1[: r.type.shape[1]]) for i, r in enumerate(rows)]
    results = [b.node(Gemm(), r, w, name=f"y{i}") for i, (r, w) in enumerate(zip(rows, weights, strict=True))]
    graph = b.finish(*results)
    scale_rows(graph, dict.fromkeys(products(graph)), PassLog())
    verify_graph(graph, "rewritten")
    assert sum(node.operator.name == "RowScales" for node in graph.nodes) == measured
    given = {"x": X[None]}
    for i, shape in enumerate(((5, 24), other)):
        wanted = reference(X.reshape(shape), W1[: shape[1]], None)
        assert np.array_equal(interpret(graph, given)[f"y{i}"], wanted)


def test_others_than_products_with_constant_weights_are_not_rewritten() -> None:
    b = GraphBuilder("g")
    image = b.input("x", float_type(1, 2, 4, 4))
    conv = b.node(Conv(), image, b.constant("w", np.ones((2, 2, 1, 1), np.float32)), name="conv")
    nodes = b.finish(conv).nodes
    assert "products of rows" in str(unfit_for_rows(next(iter(nodes))))
    b = GraphBuilder("g")
    broken = np.full((24, 2), np.inf, np.float32)
    nodes = b.finish(b.node(Gemm(), b.input("x", float_type(1, 24)), b.constant("w", broken))).nodes
    assert "NaN or infinities" in str(unfit_for_rows(next(iter(nodes))))
    b = GraphBuilder("g")
    depth = (1 << 31) // (127 * 127) + 1
    long = b.constant("w", np.ones((depth, 1), np.float32))
    nodes = b.finish(b.node(Gemm(), b.input("x", float_type(1, depth)), long)).nodes
    assert "beyond int32" in str(unfit_for_rows(next(iter(nodes))))


def test_products_that_add_nothing_up_stay_float() -> None:
    """Angles of rotary embedding would have the error of a scale in 16 bits, times the position."""
    b = GraphBuilder("g")
    nodes = b.finish(b.node(Gemm(), b.input("x", float_type(9, 1)), b.constant("w", W1[:1]))).nodes
    for reason in (unfit_for_rows(nodes[0]), unfit_for_blocks(nodes[0])):
        assert "its sums has one term" in str(reason)


def test_a_rule_chooses_it_for_some_products() -> None:
    recipe = Recipe(rules=(Rule(Match(name="hidden"), dtype="dynamic"), Rule(Match(name="y"), dtype="float")))
    result = quantize_with(two_layers(), {}, 1, recipe)
    assert [(node.name, node.dynamic) for node in result.report.quantized] == [("Gemm_0", True)]
    assert [(node.name, node.reason) for node in result.report.float_nodes] == [
        ("Gemm_1", "kept by rule 2 (name y)")
    ]
    assert "1 nodes in int8 (1 with dynamic rows)" in result.report.summary()


def test_the_whole_model_needs_no_profile() -> None:
    result = quantize_with(two_layers(), {}, 0, Recipe(dynamic=True))
    assert [node.dynamic for node in result.report.quantized] == [True, True]
    assert not result.report.float_nodes
    kept = quantize_with(two_layers(), {}, 0, Recipe(dynamic=True, keep_float=("y",)))
    assert [node.name for node in kept.report.quantized] == ["Gemm_0"]


@pytest.mark.parametrize("optimize", [False, True])
@pytest.mark.parametrize("activations", ["uint8", "int8"])
def test_onnx_and_onnxruntime_give_the_same_bits(activations: str, optimize: bool) -> None:
    graph = quantize_with(two_layers(), {}, 0, Recipe(dynamic=True)).graph
    model = export_qdq(graph, None, activations)  # type: ignore[arg-type]
    expected = interpret(graph, {"x": X})["y"]
    assert np.array_equal(ReferenceEvaluator(model).run(None, {"x": X})[0], expected)
    if not (activations == "uint8" and saturates()):
        assert np.array_equal(session(model, optimize).run(None, {"x": X})[0], expected)


def test_the_exported_model_comes_back_with_the_same_bits(tmp_path: Path) -> None:
    graph = quantize_with(two_layers(), {}, 0, Recipe(dynamic=True)).graph
    again = qglow.load_model(save(export_qdq(graph), tmp_path), native=True)
    expected = interpret(graph, {"x": X})["y"]
    assert np.array_equal(again.interpret({"x": X})["y"], expected)
    assert np.array_equal(again.quantize().interpret({"x": X})["y"], expected)


def test_integer_weights_and_the_scales_of_their_columns_are_the_real_weights() -> None:
    first, second = products(quantize_with(two_layers(), {}, 0, Recipe(dynamic=True)).graph)
    for node, weights in ((first, W1), (second, W2)):
        assert multiplies_scaled_rows(node)
        found = scaled_columns(node)
        assert found is not None
        assert np.max(np.abs(found - weights) / np.abs(weights).max(axis=0)) <= 0.5001 / 127
    assert not any(map(multiplies_scaled_rows, products(two_layers())))


def test_error_feedback_rounds_their_weights_by_the_reals_that_they_multiply() -> None:
    """Rows of integers have a scale each, so that moments are those of the reals."""
    random = np.random.default_rng(0)
    mixed = random.normal(size=(4, 24)).astype(np.float32)
    x = random.normal(size=(400, 4)).astype(np.float32) @ mixed
    runs = [x[start : start + 5] for start in range(0, len(x), 5)]

    def run(graph: Graph, values: Sequence[Value]) -> Iterator[dict[Value, Array]]:
        for rows in runs:
            found: dict[Value, Array] = {}
            Interpreter(graph).run({"x": rows}, found.__setitem__)
            yield {value: rows if value.name == "x" else found[value] for value in values}

    made = quantize_with(two_layers(), {}, 0, Recipe(dynamic=True))
    rounded = round_weights(made, run, len(x))
    errors = []
    for graph in (made.graph, rounded.graph):
        found = np.concatenate([interpret(graph, {"x": rows})[graph.outputs[0].name] for rows in runs])
        real = np.concatenate([interpret(two_layers(), {"x": rows})["y"] for rows in runs])
        errors.append(float(np.mean((found - real) ** 2)))
    assert errors[1] < 0.7 * errors[0]
    for before, after in zip(products(made.graph), products(rounded.graph), strict=True):
        first, second = operand(before, 1).data, operand(after, 1).data
        assert first is not None and second is not None and not np.array_equal(first, second)
    bias, kept = (added_bias(products(each.graph)[0]) for each in (rounded, made))
    assert bias is not None and kept is not None and not np.array_equal(bias, kept)


def model_file(folder: Path) -> Path:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Add", ["h", "b"], ["y"])]
    return save(tiny_model(nodes, {"x": [2, 3, 24]}, ["y"], {"w": W1, "b": BIAS}), folder)


def test_python_and_a_directory_have_it(tmp_path: Path) -> None:
    model = qglow.load_model(model_file(tmp_path))
    quantized = model.quantize(dynamic=True)
    x = RANDOM.normal(size=(2, 3, 24)).astype(np.float32)
    expected = quantized.interpret({"x": x})["y"]
    assert np.array_equal(quantized.compile()({"x": x})["y"], expected)
    error = expected - model.interpret({"x": x})["y"]
    assert float(np.square(error).mean()) < 1e-3 * float(np.square(expected).mean())
    quantized.save(tmp_path / "out")
    loaded = qglow.load_quantized(tmp_path / "out")
    assert np.array_equal(loaded.compile()({"x": x})["y"], expected)
    assert loaded.report is not None and loaded.report.quantized[0].dynamic


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({}, "or choose `dynamic`"),
        ({"dynamic": True, "io": "int8"}, "io: int8 needs ranges"),
        ({"dynamic": True, "effort": "balanced"}, "looks at samples"),
        ({"dynamic": True, "rounding": "gptq"}, "looks at samples"),
    ],
)
def test_what_needs_a_profile_says_so(choices: dict[str, object], message: str, tmp_path: Path) -> None:
    model = qglow.load_model(model_file(tmp_path))
    with pytest.raises(UsageError, match=message):
        model.quantize(**choices)  # type: ignore[arg-type]


def test_a_rule_for_static_int8_needs_a_profile(tmp_path: Path) -> None:
    recipe = Recipe(dynamic=True, rules=(Rule(Match(operator="Gemm"), dtype="int8"),))
    with pytest.raises(UsageError, match="operator Gemm needs ranges"):
        qglow.load_model(model_file(tmp_path)).quantize(recipe=recipe)

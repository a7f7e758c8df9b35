"""Products of rows that are scaled while the model runs with weights in blocks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import helper

import qglow
from qglow.core.types import Array
from qglow.graph.interpreter import interpret
from qglow.numerics.block_rounding import quantize_blocks
from qglow.numerics.blocks import gemm_integer_blocks, pack
from qglow.numerics.rows import row_scales
from qglow.quantization.pipeline import quantize_with
from qglow.recipe.choices import BlockFormat
from qglow.recipe.loading import parse_recipe
from qglow.recipe.schema import Recipe
from tests.unit.importer.test_blocks import BLOCK, nbits_model
from tests.unit.importer.test_blocks import X as ROWS
from tests.unit.importer.tiny import save, session, tiny_model
from tests.unit.quantization.test_blocks import (
    BIAS,
    FORMATS,
    RANDOM,
    W1,
    W2,
    X,
    float_model,
    model_file,
    two_layers,
)


def product(x: Array, w: Array, bias: Array | None, chosen: BlockFormat, lo: float = -np.inf) -> Array:
    """Rules 11 and 12 of the contract."""
    scales = row_scales(x)
    integers = np.rint(np.clip(x / scales, -127, 127))
    form = (chosen.bits, chosen.block, chosen.symmetric, chosen.float16)
    codes, *parameters = quantize_blocks(w, *form)
    packed = pack(codes, chosen.bits)
    return gemm_integer_blocks(integers, scales, packed, *parameters, bias, chosen.bits, chosen.block, lo)


@pytest.mark.parametrize("chosen", FORMATS, ids=str)
def test_the_result_is_that_of_the_numeric_contract(chosen: BlockFormat) -> None:
    result = quantize_with(two_layers(), {}, 0, Recipe(weights=chosen, dynamic=True))
    expected = product(product(X, W1, BIAS, chosen, lo=0.0), W2, None, chosen)
    assert np.array_equal(interpret(result.graph, {"x": X})["y"], expected)
    assert [(node.name, node.dynamic, node.weights) for node in result.report.quantized if node.margin] == [
        ("Gemm_0", True, str(chosen)),
        ("Gemm_1", True, str(chosen)),
    ]
    assert f"(2 with dynamic rows: 2 {chosen})" in result.report.summary()
    assert not result.report.float_nodes
    assert result.report.weight_bytes_after < result.report.weight_bytes_before / 2


def test_rules_choose_rows_and_formats_for_parts() -> None:
    recipe = parse_recipe(
        "weights: int4:16\ndynamic: true\nrules:\n"
        "- match: {name: hidden}\n  dtype: dynamic\n  weights: int8:64:symmetric\n"
        "- match: {name: y}\n  weights: int4:16\n"
    )
    report = quantize_with(two_layers(), {}, 0, recipe).report
    assert [(node.name, node.weights) for node in report.quantized if node.margin] == [
        ("Gemm_0", "int8:64:symmetric")
    ]
    assert [(node.name, node.dtype) for node in report.float_nodes] == [("Gemm_1", "int4:16")]
    plain = parse_recipe(
        "weights: int4:16\ndynamic: true\nrules:\n- match: {name: hidden}\n  dtype: dynamic\n"
    )
    report = quantize_with(two_layers(), {}, 0, plain).report
    assert [(node.operator, node.weights) for node in report.quantized if node.margin] == [
        ("Gemm", ""),
        ("BlockGemm", "int4:16"),
    ]


def test_compiled_programs_and_directories_have_the_same_bits(tmp_path: Path) -> None:
    quantized = qglow.load_model(model_file(tmp_path)).quantize(weights="int4:16", dynamic=True)
    x = RANDOM.normal(size=(2, 3, 40)).astype(np.float32)
    x[1, 2, 5] = np.inf
    expected = quantized.interpret({"x": x})["y"]
    assert np.array_equal(expected, product(x, W1, BIAS, BlockFormat(4, 16)), equal_nan=True)
    assert np.isnan(expected[1, 2]).all() and not np.isnan(expected[1, 1]).any()
    assert np.array_equal(quantized.compile()({"x": x})["y"], expected, equal_nan=True)
    quantized.save(tmp_path / "out")
    assert "of weights in blocks" in (tmp_path / "out" / "report.md").read_text()
    loaded = qglow.load_quantized(tmp_path / "out")
    assert np.array_equal(loaded.compile()({"x": x})["y"], expected, equal_nan=True)


@pytest.mark.parametrize("chosen", ["int8:32", "int4:32", "int4:32:symmetric", "int2:16"])
@pytest.mark.parametrize("bias", [False, True])
def test_onnxruntime_computes_the_exported_model(chosen: str, bias: bool, tmp_path: Path) -> None:
    w = RANDOM.normal(size=(256, 64)).astype(np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h" if bias else "y"])]
    if bias:
        nodes.append(helper.make_node("Add", ["h", "b"], ["y"]))
    constants = {"w": w, "b": RANDOM.normal(size=64).astype(np.float32)} if bias else {"w": w}
    model = qglow.load_model(save(tiny_model(nodes, {"x": [5, 256]}, ["y"], constants), tmp_path))
    quantized = model.quantize(weights=chosen, dynamic=True)
    x = RANDOM.normal(size=(5, 256)).astype(np.float32)
    quantized.export_qdq(tmp_path / "out.onnx")
    found = session(tmp_path / "out.onnx").run(None, {"x": x})[0]
    expected = quantized.interpret({"x": x})["y"]
    assert np.allclose(found, expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("zeros", ["", "whole", "real"])
def test_products_that_have_blocks_keep_their_weights(zeros: str, tmp_path: Path) -> None:
    model = qglow.load_model(save(nbits_model(4, zeros), tmp_path), native=True)
    quantized = model.quantize(dynamic=True)
    assert quantized.report is not None
    if zeros == "real":
        (left,) = quantized.report.float_nodes
        assert left.reason == "float by the recipe's dynamic: its zero points are no integers"
        return
    (product_,) = [node for node in quantized.report.quantized if node.margin]
    assert product_.weights == (f"int4:{BLOCK}" if zeros else f"int4:{BLOCK}:symmetric")
    expected, found = (made.interpret({"x": ROWS})["y"] for made in (model, quantized))
    assert 0 < float(np.square(found - expected).sum()) < 1e-3 * float(np.square(expected).sum())
    assert np.array_equal(quantized.compile()({"x": ROWS})["y"], found)


def test_gptq_looks_at_the_real_rows(tmp_path: Path) -> None:
    model, samples = float_model(tmp_path, batch="N")
    expected = np.concatenate([model.interpret({"x": x[None]})["y"] for x in samples[:50]])
    errors = []
    for options in ({}, {"rounding": "gptq", "calibration_data": {"x": samples[50:]}}):
        quantized = model.quantize(weights="int4:16", dynamic=True, **options)  # type: ignore[arg-type]
        found = np.concatenate([quantized.interpret({"x": x[None]})["y"] for x in samples[:50]])
        errors.append(float(np.square(found - expected).sum()))
    assert errors[1] < 0.7 * errors[0]


@pytest.mark.parametrize("dynamic", [False, True])
def test_other_shapes_have_the_weights_that_were_rounded(dynamic: bool, tmp_path: Path) -> None:
    model, samples = float_model(tmp_path, batch="N")
    options = {"rounding": "gptq", "calibration_data": {"x": samples[50:]}}
    quantized = model.quantize(weights="int4:16", dynamic=dynamic, **options)  # type: ignore[arg-type]
    one_by_one = np.concatenate([quantized.interpret({"x": x[None]})["y"] for x in samples[:4]])
    together = quantized.interpret({"x": samples[:4]})["y"]
    assert np.array_equal(together, one_by_one)

"""Tables in blocks: GatherBlockQuantized beside onnxruntime, and tables that a recipe puts in blocks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import qglow
from qglow.core.errors import QglowError
from qglow.core.types import Array
from qglow.numerics.block_rounding import quantize_blocks
from qglow.numerics.blocks import dequantized, pack
from qglow.recipe.choices import BlockFormat
from qglow.recipe.loading import parse_recipe
from tests.unit.importer.test_blocks import integers, joined
from tests.unit.importer.tiny import save, session, tiny_model

RANDOM = np.random.default_rng(11)
ROWS, WIDTH, BLOCK, COUNT = 13, 48, 32, 2
INDICES = np.array([[0, 12, 3], [-1, 5, 5]], np.int64)


def table_model(kind: int, bits: int, zeros: bool, scale: type = np.float32, **more: int) -> onnx.ModelProto:
    """Look-ups in a table of bytes, or of integers of 4 bits."""
    low, high = (-8, 8) if kind == TensorProto.INT4 else (0, 1 << bits)
    codes, points = (RANDOM.integers(low, high, (ROWS, n)) for n in (WIDTH, COUNT))
    scales = RANDOM.uniform(0.1, 1, (ROWS, COUNT)).astype(scale)
    if kind == TensorProto.UINT8:
        packed = [joined(data.astype(np.uint8), bits) for data in (codes, points)]
        tensors = [numpy_helper.from_array(data, name) for data, name in zip(packed, "wz", strict=True)]
    else:
        tensors = [integers(name, kind, data) for data, name in ((codes, "w"), (points, "z"))]
    tensors = [tensors[0], numpy_helper.from_array(scales, "s"), *tensors[1:][: int(zeros)]]
    names = ["w", "i", "s", "z"][: 3 + zeros]
    form = {"bits": bits, "block_size": BLOCK, "gather_axis": 0, "quantize_axis": 1} | more
    node = helper.make_node("GatherBlockQuantized", names, ["y"], domain="com.microsoft", **form)
    result = TensorProto.FLOAT16 if scale is np.float16 else TensorProto.FLOAT
    values = [
        helper.make_tensor_value_info("i", TensorProto.INT64, INDICES.shape),
        helper.make_tensor_value_info("y", result, [*INDICES.shape, WIDTH]),
    ]
    graph = helper.make_graph([node], "table", values[:1], values[1:], tensors)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


@pytest.mark.parametrize(
    ("kind", "bits"),
    [(TensorProto.UINT8, 4), (TensorProto.UINT8, 8), (TensorProto.UINT4, 4), (TensorProto.INT4, 4)],
)
@pytest.mark.parametrize("zeros", [False, True])
def test_tables_are_what_onnxruntime_computes(kind: int, bits: int, zeros: bool, tmp_path: Path) -> None:
    proto = table_model(kind, bits, zeros)
    expected = session(proto).run(None, {"i": INDICES})[0]
    model = qglow.load_model(save(proto, tmp_path), native=True)
    assert [node.operator.name for node in model.graph.nodes] == ["BlockGather"]
    assert np.array_equal(model.interpret({"i": INDICES})["y"], expected)
    assert np.array_equal(model.compile()({"i": INDICES})["y"], expected)


def test_scales_of_16_bits_are_widened(tmp_path: Path) -> None:
    proto = table_model(TensorProto.UINT8, 4, True, np.float16)
    model = qglow.load_model(save(proto, tmp_path), native=True)
    expected = session(proto).run(None, {"i": INDICES})[0]
    assert np.array_equal(model.compile()({"i": INDICES})["y"], expected)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"quantize_axis": 0}, r"gather_axis and quantize_axis are \(0, 0\)"),
        ({"block_size": 512}, "blocks of 512"),
        ({"block_size": 16}, r"scales \[13, 2\] of blocks of 16 do not fit"),
    ],
)
def test_other_tables_are_refused(more: dict[str, int], message: str, tmp_path: Path) -> None:
    with pytest.raises(QglowError, match=message):
        qglow.load_model(save(table_model(TensorProto.UINT8, 8, False, **more), tmp_path), native=True)


def words_model(folder: Path) -> tuple[qglow.Model, Array, Array]:
    nodes = [helper.make_node("Gather", ["t", "x"], ["e"], name="words")]
    nodes.append(helper.make_node("MatMul", ["e", "w"], ["y"], name="head"))
    table, w = (RANDOM.normal(size=shape).astype(np.float32) for shape in ((ROWS, WIDTH), (WIDTH, 8)))
    proto = tiny_model(nodes, {"x": [2, 3]}, ["y"], {"t": table, "w": w}, input_type=TensorProto.INT64)
    return qglow.load_model(save(proto, folder)), table, w


@pytest.mark.parametrize("chosen", ["int8:32", "int4:16", "int4:16:symmetric", "int2:16"])
def test_rules_put_tables_in_blocks(chosen: str, tmp_path: Path) -> None:
    model, table, w = words_model(tmp_path)
    recipe = parse_recipe(
        f"keep_float: [head]\ndynamic: true\nrules:\n- match: {{name: words}}\n  weights: {chosen}\n"
    )
    quantized = model.quantize(recipe=recipe)
    form = BlockFormat.parse(chosen)
    codes, *parameters = quantize_blocks(table.T, form.bits, form.block, form.symmetric)
    rows = dequantized(pack(codes, form.bits), *parameters, WIDTH, form.bits, form.block).T
    tokens = np.array([[0, 12, 3], [7, 5, 5]], np.int64)
    expected = model.interpret({"x": tokens})["y"]
    found = quantized.interpret({"x": tokens})["y"]
    assert np.allclose(found, rows[tokens] @ w, rtol=1e-4, atol=1e-4) and not np.array_equal(found, expected)
    assert np.allclose(quantized.compile()({"x": tokens})["y"], found, rtol=1e-5, atol=1e-5)
    assert quantized.report is not None
    assert {n.name: n.dtype for n in quantized.report.float_nodes}["words"] == chosen
    quantized.export_qdq(tmp_path / "out.onnx")
    kinds = [node.op_type for node in onnx.load(tmp_path / "out.onnx").graph.node]
    assert kinds[0] == ("Gather" if form.bits == 2 else "GatherBlockQuantized")
    near = session(tmp_path / "out.onnx").run(None, {"x": tokens})[0]
    assert np.allclose(near, found, rtol=1e-5, atol=1e-5)
    again = qglow.load_model(tmp_path / "out.onnx", native=True).interpret({"x": tokens})["y"]
    assert np.array_equal(again, found)


def test_tables_stay_float_without_a_rule(tmp_path: Path) -> None:
    quantized = words_model(tmp_path)[0].quantize(weights="int4:16")
    assert quantized.report is not None
    reasons = {node.name: node.reason for node in quantized.report.float_nodes}
    assert "a table gets blocks by a rule with `weights` that fits it" in reasons["words"]

"""Inputs and outputs that are uint8 in a model's file: callers have uint8 with its own values, everywhere."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import qglow
from qglow.core.types import Array
from qglow.graph.text import constant_data, parse_graph, print_graph

X = np.random.default_rng(3).normal(size=(1, 3, 6, 6)).astype(np.float32)
KINDS = {"conv": ("c",), "pooled": ("c", "p"), "read": ("c",), "copied": ()}


def model_of(kind: str, path: Path) -> Path:
    """Write a model that ends with uint8: after a convolution or a pooling, read once more, or at once."""
    rng = np.random.default_rng(1)
    constants = {
        "sx": np.float32(0.02), "zx": np.uint8(130), "sy": np.float32(0.1), "zy": np.uint8(100),
        "w": rng.integers(-30, 30, (4, 3, 3, 3)).astype(np.int8), "sw": np.float32(0.01), "zw": np.int8(0),
    }  # fmt: skip
    nodes = [helper.make_node("QuantizeLinear", ["x", "sx", "zx"], ["y" if kind == "copied" else "xq"])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.UINT8, None)]
    if kind != "copied":
        nodes += [
            helper.make_node("DequantizeLinear", ["xq", "sx", "zx"], ["xd"]),
            helper.make_node("DequantizeLinear", ["w", "sw", "zw"], ["wd"]),
            helper.make_node("Conv", ["xd", "wd"], ["c"], pads=[1, 1, 1, 1]),
            helper.make_node("QuantizeLinear", ["c", "sy", "zy"], ["q" if kind == "pooled" else "y"]),
        ]
    if kind == "pooled":
        nodes.append(helper.make_node("MaxPool", ["q"], ["y"], kernel_shape=[2, 2]))
    if kind == "read":
        nodes.append(helper.make_node("DequantizeLinear", ["y", "sy", "zy"], ["z"]))
        outputs.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, None))
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 6, 6])]
    data = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "g", inputs, outputs, data)
    opset = helper.make_opsetid("", 17)
    onnx.save(helper.make_model(graph, opset_imports=[opset], ir_version=8), path)
    return path


def in_onnxruntime(path: Path) -> Array:
    """The output as onnxruntime has it, without its fused kernels, which saturate on some processors."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    found: Array = onnxruntime.InferenceSession(str(path), options).run(["y"], {"x": X})[0]
    return found


def require_same(found: Array, wanted: Array) -> None:
    assert found.dtype == np.uint8
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("kind", KINDS)
def test_programs_interpreters_artefacts_and_exports_give_the_values_of_the_file(
    kind: str, tmp_path: Path
) -> None:
    path = model_of(kind, tmp_path / "m.onnx")
    wanted = in_onnxruntime(path)
    model = qglow.load_model(path)
    require_same(model.interpret({"x": X})["y"], wanted)
    require_same(model.compile()({"x": X})["y"], wanted)
    quantized = model.quantize()
    require_same(quantized.interpret({"x": X})["y"], wanted)
    for isa in (None, "reference"):
        require_same(quantized.compile(isa=isa)({"x": X})["y"], wanted)
    quantized.save(tmp_path / "made")
    require_same(qglow.load(tmp_path / "made" / "model.qglow")({"x": X})["y"], wanted)
    require_same(qglow.load_quantized(tmp_path / "made").interpret({"x": X})["y"], wanted)
    for activations in ("uint8", "int8"):
        export = tmp_path / f"{activations}.onnx"
        quantized.export_qdq(export, activations)
        require_same(in_onnxruntime(export), wanted)


def test_an_exported_model_of_integers_gives_the_values_of_its_file(tmp_path: Path) -> None:
    model = qglow.load_model(model_of("conv", tmp_path / "m.onnx"))
    model.quantize(io="int8").export_qdq(tmp_path / "again.onnx")
    again = qglow.load_model(tmp_path / "again.onnx").quantize()
    assert again.inputs["x"].is_quantized
    x = np.random.default_rng(5).integers(0, 255, (1, 3, 6, 6)).astype(np.uint8)
    session = onnxruntime.InferenceSession(str(tmp_path / "again.onnx"))
    (wanted,) = session.run(["y"], {"x": x})
    for given in (x, (x ^ np.uint8(128)).view(np.int8)):
        require_same(again.interpret({"x": given})["y"], wanted)
        require_same(again.compile()({"x": given})["y"], wanted)
        require_same(again.compile(isa="reference")({"x": given})["y"], wanted)
    for activations in ("uint8", "int8"):
        again.export_qdq(tmp_path / "third.onnx", activations)
        session = onnxruntime.InferenceSession(str(tmp_path / "third.onnx"))
        require_same(session.run(["y"], {"x": x})[0], wanted)


def test_a_model_with_inputs_of_int8_and_outputs_of_uint8_is_compared(tmp_path: Path) -> None:
    path = model_of("copied", tmp_path / "m.onnx")
    model = onnx.load(path)
    model.graph.input[0].type.tensor_type.elem_type = TensorProto.INT8
    model.graph.initializer.append(numpy_helper.from_array(np.int8(3), "zi"))
    model.graph.node.insert(0, helper.make_node("DequantizeLinear", ["x", "sx", "zi"], ["real"]))
    model.graph.node[1].input[0] = "real"
    onnx.save(model, path)
    made = qglow.compare(qglow.load_model(path).quantize(), {"x": X})
    assert all(pairing.outputs["y"].equal == 1.0 for pairing in made.pairings)


def test_graph_text_keeps_it(tmp_path: Path) -> None:
    graph = qglow.load_model(model_of("conv", tmp_path / "m.onnx")).quantize().graph
    text = print_graph(graph)
    assert "> unsigned = " in text and print_graph(parse_graph(text, constant_data(graph))) == text


def test_comparison_is_of_reals_and_results_of_runs_are_floats(tmp_path: Path) -> None:
    quantized = qglow.load_model(model_of("conv", tmp_path / "m.onnx")).quantize()
    samples = {"x": np.concatenate([X, X + np.float32(0.5)])}
    assert all(p.outputs["y"].equal == 1.0 for p in qglow.compare(quantized, samples).pairings)
    ((_, first), _) = qglow.run_data(quantized.compile(), samples)
    real = (quantized.interpret({"x": X})["y"][0].astype(np.float32) - 100) * np.float32(0.1)
    np.testing.assert_allclose(first["y"], real, rtol=1e-6)

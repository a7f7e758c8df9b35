"""Inputs, arithmetic and outputs of every element type, as onnxruntime has them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper

import qglow
from qglow.core.errors import QglowError
from tests.unit.importer.cases import floats
from tests.unit.importer.tiny import save, session, tiny_model

PIXELS = np.random.default_rng(5).integers(0, 256, (1, 3, 12, 12), np.uint8)
KERNEL = floats(4, 3, 3, 3)


def image_model(kind: int) -> ModelProto:
    """Pixels -> float -> normalized -> resized -> Conv -> y"""
    nodes = [
        helper.make_node("Cast", ["x"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Sub", ["f", "mean"], ["s"]),
        helper.make_node("Div", ["s", "std"], ["n"]),
        helper.make_node("Resize", ["n", "", "scales"], ["r"], mode="linear"),
        helper.make_node("Conv", ["r", "w"], ["y"]),
    ]
    constants = {
        "mean": floats(3, 1, 1) + 120,
        "std": np.full((3, 1, 1), 60, np.float32),
        "scales": np.array([1, 1, 0.5, 0.5], np.float32),
        "w": KERNEL,
    }
    return tiny_model(nodes, {"x": PIXELS.shape}, ["y"], constants, input_type=kind)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.int32])
def test_a_model_of_pixels_is_quantized_and_compiled(dtype: type, tmp_path: Path) -> None:
    pixels = PIXELS.astype(dtype)
    path = save(image_model(helper.np_dtype_to_tensor_dtype(pixels.dtype)), tmp_path)
    (expected,) = session(path.read_bytes()).run(None, {"x": pixels})
    model = qglow.load_model(path)
    feeds = {"x": pixels}
    for found in (model.interpret(feeds), model.compile()(feeds)):
        np.testing.assert_allclose(found["y"], expected, atol=1e-5)
    profile = model.profile({"x": np.concatenate([pixels] * 2)})
    quantized = model.quantize(profile, check=False)
    result = quantized.compile()(feeds)["y"]
    np.testing.assert_array_equal(result, quantized.interpret(feeds)["y"])
    assert np.abs(result - expected).max() < 0.1 * np.abs(expected).max()


def half_model(kind: int, opset: int = 18) -> ModelProto:
    """x of this type -> Conv -> Relu -> y, and a float32 Softmax of y cast back to the type of x"""
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("Relu", ["c"], ["y"]),
        helper.make_node("Cast", ["y"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Softmax", ["f"], ["s"]),
        helper.make_node("CastLike", ["s", "x"], ["z"]),
    ]
    weights = {"w": np.asarray(KERNEL, dtype)}
    return tiny_model(nodes, {"x": PIXELS.shape}, ["y", "z"], weights, opset, kind, kind)


@pytest.mark.parametrize("kind", [TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE])
def test_reals_of_other_widths_are_computed_in_float32_between_their_borders(
    kind: int, tmp_path: Path
) -> None:
    x = np.asarray(floats(*PIXELS.shape), helper.tensor_dtype_to_np_dtype(kind))
    model = qglow.load_model(save(half_model(kind), tmp_path))
    found = model.compile()({"x": x})
    same = model.interpret({"x": x})
    reference = qglow.load_model(save(half_model(TensorProto.FLOAT), tmp_path, "float.onnx"))
    expected = reference.interpret({"x": x.astype(np.float32)})
    for name in "yz":
        assert found[name].dtype == same[name].dtype == x.dtype
        for result in (found, same):
            np.testing.assert_allclose(result[name].astype(np.float32), expected[name], 2e-2, 8e-2)
    quantized = model.quantize(model.profile({"x": np.concatenate([x] * 2)}), check=False)
    result = quantized.compile()({"x": x})["y"]
    assert result.dtype == x.dtype and np.array_equal(result, quantized.interpret({"x": x})["y"])


def test_a_float16_model_gives_what_onnxruntime_gives(tmp_path: Path) -> None:
    path = save(half_model(TensorProto.FLOAT16), tmp_path)
    x = floats(*PIXELS.shape).astype(np.float16)
    model = qglow.load_model(path)
    for found, expected in zip(
        model.compile()({"x": x}).values(), session(path.read_bytes()).run(None, {"x": x}), strict=True
    ):
        np.testing.assert_allclose(found.astype(np.float32), expected.astype(np.float32), 5e-3, 5e-3)


def test_opset_6_says_where_the_second_operand_spreads(tmp_path: Path) -> None:
    x, b = floats(2, 3, 4), floats(3)
    nodes = [
        helper.make_node("Add", ["x", "b"], ["a"], broadcast=1, axis=1),
        helper.make_node("Mul", ["a", "a"], ["y"]),
    ]
    path = save(tiny_model(nodes, {"x": [2, 3, 4]}, ["y"], {"b": b}, opset=6), tmp_path)
    expected = (x + b[:, None]) ** 2
    np.testing.assert_allclose(qglow.load_model(path).interpret({"x": x})["y"], expected, 1e-6)


@pytest.mark.parametrize("kind", ["optional", "sequence", "string"])
def test_inputs_of_no_numbers_say_where_to_begin(kind: str) -> None:
    tensor = helper.make_tensor_type_proto(TensorProto.FLOAT, [2])
    value = {
        "optional": helper.make_value_info("x", helper.make_optional_type_proto(tensor)),
        "sequence": helper.make_value_info("x", helper.make_sequence_type_proto(tensor)),
        "string": helper.make_tensor_value_info("x", TensorProto.STRING, [2]),
    }[kind]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "none", [value], [output])
    with pytest.raises(QglowError, match="input 'x' .*; begin the model behind it with qglow cut"):
        qglow.load_model(helper.make_model(graph, ir_version=8))

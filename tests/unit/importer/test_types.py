"""Inputs, arithmetic and outputs of every element type, as onnxruntime has them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper

import qglow
from tests.unit.importer.cases import floats
from tests.unit.importer.tiny import save, session, tiny_model

PIXELS = np.random.default_rng(5).integers(0, 256, (1, 3, 12, 12), np.uint8)


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
        "w": floats(4, 3, 3, 3),
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

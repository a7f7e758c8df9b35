"""Scaler, which converters write in front of a network over columns of a table."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper

import qglow
from tests.unit.importer.tiny import save, session, tiny_model

RANDOM = np.random.default_rng(9)


def network(offset: list[float], scale: list[float], kind: int = TensorProto.FLOAT) -> ModelProto:
    nodes = [
        helper.make_node("Scaler", ["x"], ["s"], domain="ai.onnx.ml", offset=offset, scale=scale),
        helper.make_node("MatMul", ["s", "w"], ["y"]),
    ]
    constants = {"w": RANDOM.normal(size=(4, 3)).astype(np.float32)}
    made = tiny_model(nodes, {"x": (1, 4)}, ["y"], constants, input_type=kind)
    made.opset_import.add(domain="ai.onnx.ml", version=1)
    return made


@pytest.mark.parametrize(
    ("offset", "scale"),
    [([0.5, -1.0, 3.0, 0.0], [2.0, 0.1, 1.0, -3.0]), ([0.25], [4.0])],
)
def test_columns_are_moved_and_scaled(tmp_path: Path, offset: list[float], scale: list[float]) -> None:
    path = save(network(offset, scale), tmp_path)
    model = qglow.load_model(path, native=True)
    x = RANDOM.normal(size=(1, 4)).astype(np.float32)
    (wanted,) = session(path).run(None, {"x": x})
    np.testing.assert_allclose(model.interpret({"x": x})["y"], wanted, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(model.compile()({"x": x})["y"], wanted, rtol=1e-5, atol=1e-5)


def test_what_follows_it_is_int8(tmp_path: Path) -> None:
    """Its shape was not known, so that all of the model ran in onnxruntime."""
    model = qglow.load_model(save(network([0.5] * 4, [2.0, 1.0, 1.0, 0.5]), tmp_path))
    quantized = model.quantize(model.profile({"x": RANDOM.normal(size=(64, 4)).astype(np.float32)}))
    assert "Gemm" in {node.operator for node in quantized.report.quantized}
    assert quantized.verdict is not None and quantized.verdict.is_good


def test_whole_numbers_stay_with_onnxruntime(tmp_path: Path) -> None:
    path = save(network([0.5] * 4, [2.0] * 4, TensorProto.INT64), tmp_path)
    with pytest.raises(qglow.QglowError, match="supported are floats"):
        qglow.load_model(path, native=True)
    x = np.arange(4)[None]
    (wanted,) = session(path).run(None, {"x": x})
    np.testing.assert_allclose(qglow.load_model(path).compile()({"x": x})["y"], wanted, rtol=1e-5)

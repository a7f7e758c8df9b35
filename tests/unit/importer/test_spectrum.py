"""Fourier transforms that onnxruntime computes otherwise than ONNX defines them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

import qglow
from tests.unit.importer.tiny import save, tiny_model


@pytest.mark.parametrize("length", [1, 6, 7, 8, 9, 12])
def test_real_signals_of_any_length_from_one_side(length: int, tmp_path: Path) -> None:
    """onnxruntime divides by another number where the length is not twice that of the spectrum."""
    node = helper.make_node("DFT", ["x", "n", "a"], ["y"], inverse=1, onesided=1)
    constants = {"n": np.int64(length), "a": np.int64(1)}
    model = tiny_model([node], {"x": (2, 5, 3, 2)}, ["y"], constants, opset=20)
    x = np.random.default_rng(1).standard_normal((2, 5, 3, 2)).astype(np.float32)
    (wanted,) = ReferenceEvaluator(model).run(None, {"x": x})
    loaded = qglow.load_model(save(model, tmp_path), native=True)
    for found in (loaded.interpret({"x": x}), loaded.compile()({"x": x})):
        np.testing.assert_allclose(found["y"], wanted, rtol=1e-4, atol=1e-5)

"""Products with weights in blocks as exported files, run by onnxruntime as it is set up by default."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import helper

import qglow
from tests.unit.importer.tiny import tiny_model


@pytest.mark.parametrize("depth", [32, 40, 128])
@pytest.mark.parametrize("form", ["int8:16", "int8:32:symmetric", "int8:64", "int4:16", "int4:32:symmetric"])
def test_rows_that_are_measured_have_the_integers_of_the_graph(form: str, depth: int) -> None:
    random = np.random.default_rng(depth)
    weights = random.normal(size=(depth, 24)).astype(np.float32)
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    model = qglow.load_model(tiny_model([node], {"x": [4, depth]}, ["y"], {"w": weights}))
    quantized = model.quantize(weights=form, dynamic=True)
    x = random.normal(size=(4, depth)).astype(np.float32)
    session = onnxruntime.InferenceSession(quantized.qdq_bytes(), providers=["CPUExecutionProvider"])
    found = session.run(None, {"x": x})[0]
    np.testing.assert_allclose(found, quantized.compile()({"x": x})["y"], rtol=1e-5, atol=1e-4)

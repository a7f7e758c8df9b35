from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from qglow.core.errors import ModelError
from qglow.report.metrics import error_between
from qglow.report.oracle import OnnxruntimeModel
from qglow.report.rivals import METHODS, Method, quantize_with_onnxruntime
from tests.unit.report.digits import MODEL, data


@pytest.mark.parametrize("method", sorted(METHODS))
def test_the_tool_gives_a_quantized_model(method: Method) -> None:
    model = quantize_with_onnxruntime(MODEL, data("calib.npz", 16), method)
    x = {"input": np.stack([sample.inputs["input"] for sample in data("test.npz", 8)])}
    shapes = {"input": (8, 1, 8, 8)}
    expected = OnnxruntimeModel(MODEL, shapes=shapes)(x)["logits"]
    found = OnnxruntimeModel(model, shapes=shapes)(x)["logits"]
    assert 10.0 < error_between(found, expected).sqnr_db < 60.0


def test_a_model_that_the_tool_cannot_read_is_named(tmp_path: Path) -> None:
    path = tmp_path / "broken.onnx"
    path.write_bytes(b"no model")
    with pytest.raises(ModelError, match=r"broken\.onnx"):
        quantize_with_onnxruntime(path, [], "minmax")

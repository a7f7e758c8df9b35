"""Models whose constants are too many for one file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import qglow
from qglow.core.errors import UnsupportedError
from qglow.exporter import filed
from qglow.exporter import files as files_module
from tests.unit.importer.tiny import save, session, tiny_model

RNG = np.random.default_rng(4)
X = RNG.standard_normal((8, 40)).astype(np.float32)


@pytest.fixture
def quantized(tmp_path: Path) -> qglow.QuantizedModel:
    """Two products, whose weights have 1600 bytes in int8."""
    weights = {name: (RNG.standard_normal((40, 40)) / 6).astype(np.float32) for name in ("v", "w")}
    nodes = [helper.make_node("MatMul", ["x", "v"], ["a"]), helper.make_node("MatMul", ["a", "w"], ["y"])]
    model = qglow.load_model(save(tiny_model(nodes, {"x": (1, 40)}, ["y"], weights), tmp_path))
    return model.quantize(model.profile({"x": X}), repair=False)


def test_constants_go_to_a_second_file(
    quantized: qglow.QuantizedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quantized.export_qdq(tmp_path / "one.onnx")
    assert not (tmp_path / "one.onnx.data").exists()
    monkeypatch.setattr("qglow.exporter.files.LARGEST", 3000)
    quantized.export_qdq(tmp_path / "two.onnx")
    quantized.save(tmp_path / "q")
    assert (tmp_path / "two.onnx.data").stat().st_size == 2 * files_module.ALIGNMENT
    assert "model.qdq.onnx.data" in (tmp_path / "q" / "manifest.json").read_text()
    (wanted,) = session(tmp_path / "one.onnx").run(None, {"x": X[:1]})
    for path in (tmp_path / "two.onnx", tmp_path / "q" / "model.qdq.onnx"):
        onnx.checker.check_model(path)
        np.testing.assert_array_equal(session(path).run(None, {"x": X[:1]})[0], wanted)
        again = qglow.load_model(path).compile()({"x": X[:1]})["y"]
        np.testing.assert_allclose(again, quantized.compile()({"x": X[:1]})["y"], rtol=1e-4, atol=1e-6)
    with pytest.raises(UnsupportedError, match="GB of constants as ONNX, more than one file holds"):
        quantized.qdq_bytes()


def test_a_model_in_one_file_has_the_bytes_of_its_message(quantized: qglow.QuantizedModel) -> None:
    model = onnx.load_model_from_string(quantized.qdq_bytes())
    files = filed(model, "m.onnx")
    assert files.data == () and files.single() == model.SerializeToString(deterministic=True)

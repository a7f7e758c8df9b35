"""A recurrent layer that is a Loop over a free length: int8 inside, for every length and batch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import helper

import qglow
from qglow.core.types import Array
from tests.unit.importer.test_free_sizes import keras_loop, loop_constants
from tests.unit.importer.tiny import save, session, tiny_model

STEPS, WIDTH = 12, 16
node = helper.make_node


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    random = np.random.default_rng(4)
    v = (random.standard_normal((WIDTH, 5)) * 0.4).astype(np.float32)
    constants = {**loop_constants(random, WIDTH), "v": v}
    nodes = [*keras_loop(width=WIDTH), node("MatMul", ["y", "v"], ["scores"])]
    model = tiny_model(nodes, {"x": ["N", "T", 3]}, ["scores"], constants, opset=16)
    return save(model, tmp_path_factory.mktemp("loop"))


@pytest.fixture(scope="module")
def quantized(path: Path) -> qglow.QuantizedModel:
    x = np.random.default_rng(5).standard_normal((12, STEPS, 3)).astype(np.float32)
    model = qglow.load_model(path, native=True)
    return model.quantize(model.profile({"x": x}))


def samples(count: int, steps: int) -> Array:
    return np.random.default_rng(6).standard_normal((count, steps, 3)).astype(np.float32)


def test_products_inside_are_int8_at_other_lengths_and_batches(
    path: Path, quantized: qglow.QuantizedModel, tmp_path: Path
) -> None:
    assert any(n.name.startswith("cell.body/") and n.operator == "Gemm" for n in quantized.report.quantized)
    quantized.save(tmp_path / "q")
    program, runtime = quantized.compile(), session(path)
    loaded = qglow.load(tmp_path / "q" / "model.qglow")
    x = samples(1, STEPS)
    np.testing.assert_array_equal(loaded({"x": x})["scores"], program({"x": x})["scores"])
    exported = session(tmp_path / "q" / "model.qdq.onnx")
    for count, steps in ((1, STEPS), (3, STEPS), (2, 5), (1, 40)):
        x = samples(count, steps)
        found = program({"x": x})["scores"]
        single = [program({"x": row[None]})["scores"] for row in x]
        np.testing.assert_array_equal(found, np.concatenate(single))
        (wanted,) = runtime.run(None, {"x": x})
        error = np.sum((wanted - found) ** 2) / np.sum(wanted**2)
        assert 1e-8 < error < 1e-2  # int8, not float
        np.testing.assert_allclose(exported.run(None, {"x": x})[0], found, rtol=1e-3, atol=1e-3)

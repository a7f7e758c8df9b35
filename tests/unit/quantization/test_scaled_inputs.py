"""Inputs of products with weights in blocks are scaled so that rounding costs the results less."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import qglow
from qglow.core.errors import UsageError
from qglow.core.types import Array
from qglow.quantization.scaled_inputs import SUFFIX
from tests.unit.importer.tiny import save, session, tiny_model

RANDOM = np.random.default_rng(11)
WIDTH = 40
LARGE = np.geomspace(0.02, 20, WIDTH)[RANDOM.permutation(WIDTH)].astype(np.float32)
"""Sizes of the elements of the inputs."""


def weights(rows: int, columns: int) -> Array:
    return RANDOM.normal(size=(rows, columns)).astype(np.float32)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two products read x, which one more node reads besides; a third reads the sum of theirs."""
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["a"], name="left"),
        helper.make_node("MatMul", ["x", "w2"], ["b"], name="right"),
        helper.make_node("Relu", ["a"], ["r"], name="relu"),
        helper.make_node("Add", ["r", "b"], ["s"], name="sum"),
        helper.make_node("MatMul", ["s", "w3"], ["t"], name="last"),
        helper.make_node("Add", ["t", "x"], ["y"], name="skip"),
    ]
    constants = {"w1": weights(WIDTH, 24), "w2": weights(WIDTH, 24), "w3": weights(24, WIDTH)}
    return save(tiny_model(nodes, {"x": ["N", WIDTH]}, ["y"], constants), tmp_path_factory.mktemp("awq"))


def rows(count: int) -> Array:
    return (RANDOM.normal(size=(count, WIDTH)) * LARGE).astype(np.float32)


SAMPLES, OTHERS = rows(256), rows(64)
FORMS: dict[str, dict[str, Any]] = {
    "zero-points": {"weights": "int4:16"},
    "symmetric": {"weights": "int4:32:symmetric"},
    "float16": {"weights": "int4:16:float16"},
    "dynamic": {"weights": "int4:16", "dynamic": True},
}


def noise(quantized: qglow.QuantizedModel, model: qglow.Model) -> float:
    wanted = np.concatenate([model.interpret({"x": x[None]})["y"] for x in OTHERS])
    found = np.concatenate([quantized.interpret({"x": x[None]})["y"] for x in OTHERS])
    return float(np.square(found - wanted).sum() / np.square(wanted).sum())


@pytest.mark.parametrize("form", FORMS)
def test_scaled_inputs_lower_the_error_of_results(form: str, path: Path) -> None:
    model = qglow.load_model(path)
    made = {
        rounding: model.quantize(
            **FORMS[form],
            rounding=rounding,
            calibration_data=None if rounding == "nearest" else {"x": SAMPLES},
        )
        for rounding in ("nearest", "gptq", "awq", "awq-gptq")
    }
    errors = {rounding: noise(quantized, model) for rounding, quantized in made.items()}
    assert errors["awq"] < 0.9 * errors["nearest"]
    assert errors["awq-gptq"] < 1.05 * errors["gptq"] and errors["awq-gptq"] < errors["awq"]
    for quantized in (made["awq"], made["awq-gptq"]):
        scaled = [node for node in quantized.graph.nodes if node.name.endswith(SUFFIX)]
        # Both products of x read one scaled form of it, the sum reads x as it is.
        assert [node.inputs[0].name for node in scaled if node.inputs[0] is not None] == ["x", "s"]
        compiled = quantized.compile(threads=1)({"x": OTHERS[:1]})["y"]
        assert np.array_equal(compiled, quantized.interpret({"x": OTHERS[:1]})["y"])


def test_a_scaled_model_is_the_same_in_other_shapes_and_from_its_directory(
    path: Path, tmp_path: Path
) -> None:
    model = qglow.load_model(path)
    quantized = model.quantize(weights="int4:16", rounding="awq", calibration_data={"x": SAMPLES})
    one = np.concatenate([quantized.interpret({"x": x[None]})["y"] for x in OTHERS[:5]])
    program = quantized.compile(threads=1)
    assert np.array_equal(program({"x": OTHERS[:5]})["y"], one)
    quantized.save(tmp_path / "out")
    again = qglow.load_quantized(tmp_path / "out")
    assert np.array_equal(again.compile(threads=1)({"x": OTHERS[:5]})["y"], one)
    exported = session(tmp_path / "out" / "model.qdq.onnx").run(None, {"x": OTHERS[:5]})[0]
    np.testing.assert_allclose(exported, one, rtol=1e-4, atol=1e-4)


def test_inputs_of_equal_size_stay_as_they_are(tmp_path: Path) -> None:
    node = helper.make_node("MatMul", ["x", "w"], ["y"], name="product")
    path = save(tiny_model([node], {"x": [1, WIDTH]}, ["y"], {"w": weights(WIDTH, 8)}), tmp_path)
    samples = np.sign(RANDOM.normal(size=(64, WIDTH))).astype(np.float32)
    model = qglow.load_model(path)
    quantized = model.quantize(weights="int4:16", rounding="awq", calibration_data={"x": samples})
    assert not [node for node in quantized.graph.nodes if SUFFIX in node.name]
    nearest = model.quantize(weights="int4:16")
    assert np.array_equal(
        quantized.interpret({"x": samples[:1]})["y"], nearest.interpret({"x": samples[:1]})["y"]
    )


def test_inputs_without_any_element_of_size_stay_as_they_are(path: Path) -> None:
    model = qglow.load_model(path)
    none = {"x": np.zeros((8, WIDTH), np.float32)}
    quantized = model.quantize(weights="int4:16", rounding="awq-gptq", calibration_data=none)
    assert not [node for node in quantized.graph.nodes if SUFFIX in node.name]
    assert np.isfinite(quantized.interpret({"x": OTHERS[:1]})["y"]).all()


def test_scaling_is_for_weights_in_blocks(path: Path) -> None:
    model = qglow.load_model(path)
    with pytest.raises(UsageError, match="rounding awq is for weights in blocks, and there are none"):
        model.quantize(model.profile({"x": SAMPLES}), rounding="awq", calibration_data={"x": SAMPLES})
    with pytest.raises(UsageError, match="give them with `calibration_data`"):
        model.quantize(weights="int4", rounding="awq")


def test_the_exported_model_is_well_formed(path: Path, tmp_path: Path) -> None:
    model = qglow.load_model(path)
    quantized = model.quantize(weights="int4:16", rounding="awq", calibration_data={"x": SAMPLES})
    quantized.export_qdq(tmp_path / "q.onnx")
    onnx.checker.check_model(tmp_path / "q.onnx", full_check=True)

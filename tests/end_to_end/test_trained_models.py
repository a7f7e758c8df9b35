"""The tiny trained models of the repository: accuracy with default settings, and the same bits everywhere."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import qglow
from qglow.core.types import Array
from tests.runtimes import NATIVE_ISAS, PLAIN
from tests.zoo import REPOSITORY

FOLDER = REPOSITORY / "tests" / "models"
FEW = 8


@dataclass(frozen=True)
class Trained:
    """A model; `float_score` is that of float32 on the test data, `most_drop` what int8 may lose of it."""

    name: str
    float_score: float
    most_drop: float

    def data(self, key: str) -> Array:
        """One of the arrays `calibration`, `test` and `label`."""
        with np.load(FOLDER / f"{self.name}.npz") as arrays:
            return np.asarray(arrays[key])

    def score(self, output: Array) -> float:
        """Per cent of right classes or, of images, PSNR in dB."""
        label = self.data("label")
        if label.dtype == np.float32:
            return float(-10 * np.log10(np.mean((output - label) ** 2)))
        return float(100 * np.mean(output.argmax(-1) == label))


MODELS = {m.name: m for m in (Trained("sorter", 100.0, 0.5), Trained("denoiser", 18.33, 0.02),
                              Trained("wine", 97.75, 1.2))}  # fmt: skip


@functools.cache
def loaded(name: str, batch: int) -> qglow.Model:
    return qglow.load_model(FOLDER / f"{name}.onnx", {"input": (batch, *MODELS[name].data("test").shape[1:])})


@functools.cache
def quantized(name: str, batch: int) -> qglow.QuantizedModel:
    profile = loaded(name, 1).profile({"input": MODELS[name].data("calibration")})
    return loaded(name, batch).quantize(profile, repair=False)


def float_outputs(name: str) -> Array:
    session = onnxruntime.InferenceSession(FOLDER / f"{name}.onnx")
    return np.asarray(session.run(None, {"input": MODELS[name].data("test")})[0])


@pytest.mark.parametrize("name", MODELS)
def test_float_model_is_as_good_as_when_it_was_trained(name: str) -> None:
    model, images = MODELS[name], MODELS[name].data("test")
    expected = float_outputs(name)
    assert model.score(expected) == pytest.approx(model.float_score, abs=0.01)
    actual = loaded(name, len(images)).compile()({"input": images})["output"]
    np.testing.assert_allclose(actual, expected, rtol=0, atol=2e-5 * float(np.max(np.abs(expected))))


@pytest.mark.parametrize("name", MODELS)
def test_int8_model_is_accurate_with_default_settings(name: str) -> None:
    model, images = MODELS[name], MODELS[name].data("test")
    actual = quantized(name, len(images)).compile()({"input": images})["output"]
    assert model.score(actual) >= model.float_score - model.most_drop


@pytest.mark.parametrize("name", MODELS)
def test_int8_outputs_are_the_same_interpreted_and_on_every_isa(name: str) -> None:
    images = MODELS[name].data("test")[:FEW]
    model = quantized(name, FEW)
    outputs = {isa: model.compile(isa=isa)({"input": images})["output"] for isa in NATIVE_ISAS}
    with_fma = {isa: output for isa, output in outputs.items() if isa != "generic"}
    first = next(iter(with_fma.values()))
    assert all(np.array_equal(first, other) for other in with_fma.values())
    # Islands of float differ in rounding without fused multiply-add; integer results must not.
    for other in (outputs[PLAIN], model.interpret({"input": images})["output"]):
        if name == "denoiser":
            assert np.array_equal(first, other)
        else:
            np.testing.assert_allclose(first, other, rtol=0, atol=0.05 * float(np.max(np.abs(first))))


@pytest.mark.parametrize("name", MODELS)
def test_exported_model_is_as_accurate_in_onnxruntime(name: str, tmp_path: Path) -> None:
    model = MODELS[name]
    quantized(name, len(model.data("test"))).save(tmp_path / name)
    options = onnxruntime.SessionOptions()
    # Else sums of 16 bits saturate on processors without VNNI: 0.2 dB less here.
    options.add_session_config_entry("session.x64quantprecision", "1")
    session = onnxruntime.InferenceSession(tmp_path / name / "model.qdq.onnx", options)
    (output,) = session.run(None, {"input": model.data("test")})
    assert model.score(np.asarray(output)) >= model.float_score - model.most_drop

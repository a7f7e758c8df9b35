from __future__ import annotations

from pathlib import Path

import pytest

import qglow
from qglow.core.errors import UsageError
from qglow.profiling.profile import Profile
from qglow.recipe.schema import Recipe
from qglow.toolchain.calibration import CalibrationSamples
from qglow.toolchain.loaded import LoadedModel, read_model
from qglow.toolchain.profiling import profile_model
from qglow.tuning.quantize import QuantizeOptions, quantize_model
from tests.zoo import REPOSITORY

DIGITS = REPOSITORY / "calib_data" / "digits.onnx"
CALIBRATION = CalibrationSamples(str(REPOSITORY / "calib_data" / "calib.npz"), samples=8)


@pytest.fixture(scope="module")
def model() -> LoadedModel:
    return read_model(DIGITS)


@pytest.fixture(scope="module")
def profile(model: LoadedModel) -> Profile:
    return profile_model(model, CALIBRATION, engine="interpreter")


def test_parts_name_the_model_and_the_choices(model: LoadedModel, profile: Profile) -> None:
    parts = quantize_model(model, profile, Recipe(schema="symmetric"))
    assert parts.source == model.source
    assert parts.recipe.schema == "symmetric"
    assert parts.shapes == model.shapes
    assert parts.report is not None
    assert parts.report.log[: len(model.log)] == model.log


def test_profile_is_needed_unless_the_model_has_parameters(
    model: LoadedModel, profile: Profile, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="profile it"):
        quantize_model(model, None, Recipe())
    path = tmp_path / "model.qdq.onnx"
    path.write_bytes(quantize_model(model, profile, Recipe()).qdq_model())
    imported = read_model(path)
    assert imported.is_quantized
    assert quantize_model(imported, None, Recipe()).report is not None
    with pytest.raises(UsageError, match="takes no profile"):
        quantize_model(imported, profile, Recipe())
    with pytest.raises(UsageError, match="effort and rounding"):
        quantize_model(imported, None, Recipe(rounding="gptq"))
    with pytest.raises(UsageError, match="not rounded"):
        quantize_model(imported, None, Recipe(), QuantizeOptions(rounding_state=tmp_path / "state"))


def test_work_on_samples_asks_for_samples(model: LoadedModel, profile: Profile) -> None:
    for recipe, effort in ((Recipe(), "balanced"), (Recipe(rounding="gptq"), "fast")):
        with pytest.raises(UsageError, match="calibration samples"):
            quantize_model(model, profile, recipe, QuantizeOptions(effort=effort))
    with pytest.raises(UsageError, match="effort"):
        quantize_model(model, profile, Recipe(), QuantizeOptions(effort="utmost"))


def test_qdq_model_and_its_file_are_the_same_bytes(
    model: LoadedModel, profile: Profile, tmp_path: Path
) -> None:
    parts = quantize_model(model, profile, Recipe())
    for activations in (None, "int8"):
        (tmp_path / "m.onnx").write_bytes(parts.qdq_model(activations))
        assert (tmp_path / "m.onnx").read_bytes() == parts.qdq_model(activations)
    assert parts.qdq_model("uint8") != parts.qdq_model("int8")
    with pytest.raises(qglow.UsageError, match="int4"):
        parts.qdq_model("int4")
